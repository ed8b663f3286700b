"""Whether a job runs the code of the command that asked for it, whatever Python finds first when the job starts.

A checkout on PYTHONPATH, or in the folder where a command was given, comes before an installed package. A job, or a warm
engine that started without that path, would run the other one, and commit what that makes of messages.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import tidemark
from tidemark.errors import WrongUse

# The variable that tells a job where the code is of the command that asked for it, and its version.
ASKING = "TIDEMARK_ASKING_CODE"
_CODE = (".py", ".java", ".thrift")
# Airflow's rooms are no part of a job.
_OTHERS = ("airflow", "plugin")


def asking_code() -> str:
    """What ASKING says for this process's code."""
    return f"{tidemark.__version__} {_package()}"


def check_same_code(asking: str | None) -> None:
    """Raises WrongUse where the command that asked has other code than this process. None: nobody says which it has."""
    if not asking:
        return
    version, _, folder = asking.partition(" ")
    here = _package()
    if folder == str(here) or (version == tidemark.__version__ and _digest(folder) == _digest(str(here))):
        return
    raise WrongUse(
        f"the command that asked has Tidemark {version} in {folder}, and the job would run Tidemark {tidemark.__version__} in "
        f"{here}, which is other code; nothing was read. Have both find the same: take {folder} out of PYTHONPATH, give the "
        "command in another folder, or remove one of the two"
    )


def _package() -> Path:
    return Path(tidemark.__file__).resolve().parent


@lru_cache(maxsize=8)
def _digest(folder: str) -> str:
    """Of all code in a package's folder that jobs run, by name and content."""
    found = sha256()
    package = Path(folder)
    for file in sorted(package.rglob("*")):
        inside = file.relative_to(package)
        if file.suffix in _CODE and inside.parts[0] not in _OTHERS:
            try:
                found.update(f"{inside}\0{sha256(file.read_bytes()).hexdigest()}\n".encode())
            except OSError:
                # A link that leads nowhere.
                found.update(f"{inside}\n".encode())
    return found.hexdigest()
