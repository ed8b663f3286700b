"""Shipping the driver's own code to Spark's workers: they run that code, not what is installed on their machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

from pyspark import SparkContext, SparkFiles

import tidemark
from tidemark.errors import WrongUse
from tidemark.spark.runtime.engine_run import EngineRun

# The setting by which a stream file names modules of the user's.
PY_FILES = "spark.submit.pyFiles"
_ARCHIVE = "tidemark-code.zip"


def ship_code(context: SparkContext) -> None:
    """Send the package to the workers, once per application. A local master's workers have them already.

    An engine has sent them when it started: then its runs' tasks import them from there.
    """
    if str(context.master).startswith("local"):
        return
    _send(_ARCHIVE, _pack, context)


def _pack(target: Path) -> None:
    with ZipFile(target, "w") as packed:
        folder = Path(tidemark.__file__).parent
        for source in folder.rglob("*"):
            if source.suffix in (".py", ".thrift"):
                packed.write(source, Path(folder.name) / source.relative_to(folder))


def own_modules(run: EngineRun, context: SparkContext) -> list[str]:
    """The folders and archives with modules of the user's, for a run in an engine: those of PYTHONPATH and `PY_FILES`.

    This process imports from them too. Executors of a cluster get the files of `PY_FILES`, and have no PYTHONPATH of ours.
    Raises WrongUse for a file that this machine does not have.
    """
    given = [word for word in run.conf.get(PY_FILES, "").split(",") if word]
    if missing := [one for one in given if not Path(one).is_file()]:
        raise WrongUse(f"engine.conf: {PY_FILES} names {', '.join(missing)}: a warm engine takes files of this machine")
    files = [Path(one).resolve() for one in given]
    # An archive is on the path itself, a module by its folder.
    places = [str(file if file.suffix in SparkContext.PACKAGE_EXTENSIONS else file.parent) for file in files]
    sys.path[1:1] = [place for place in places if place not in sys.path]
    if not str(context.master).startswith("local"):
        for file in files:
            _ship(file, context)
    return [*places, *(word for word in run.environment.get("PYTHONPATH", "").split(os.pathsep) if word)]


def _ship(file: Path, context: SparkContext) -> None:
    """Send a module or an archive to the executors, under a name that no other content has."""
    content = file.read_bytes()

    def write(target: Path) -> None:
        if file.suffix in SparkContext.PACKAGE_EXTENSIONS:
            target.write_bytes(content)
        else:
            with ZipFile(target, "w") as packed:
                packed.writestr(file.name, content)

    _send(f"tidemark-{sha256(file.name.encode() + content).hexdigest()[:16]}.zip", write, context)


def _send(name: str, write: Callable[[Path], None], context: SparkContext) -> None:
    """Send an archive to the executors, and have this program's tasks import from it. `write` makes it, if it is not there.

    It stays in the application's folder: executors that start later fetch it too, for tasks of whichever run. Spark knows a
    file by its name, and takes none from two places.
    """
    archive = Path(SparkFiles.getRootDirectory()) / name
    if not archive.exists():
        # Whole at once, even where two runs send the same file.
        half = archive.with_suffix(f".{os.getpid()}")
        write(half)
        half.replace(archive)
    context.addPyFile(str(archive))
