"""A guide's packages, installed as pip would install them, and the command line that finds them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from services import environment
from services.site import Site
from tests.support.covering import REPOSITORY


def installed(guide: Path, folder: Path, suffix: str = "") -> Path:
    """The package that a guide shows: each block of Python is a file, the block of TOML its entry points.

    With a suffix, the package and its type have names that end so: many of them fit into one folder.
    """
    text = guide.read_text()
    (named,) = re.findall(r'^(\w+) = "(\w+)\.settings:KIND"$', text, re.MULTILINE)
    type_, package = named
    text = re.sub(
        rf'"{type_}"|^{type_} =', lambda found: found[0].replace(type_, f"{type_}{suffix}"), text, flags=re.MULTILINE
    )
    text = re.sub(rf"\b{package}(?=[./])", f"{package}{suffix}", text)
    metadata = folder / f"guide{suffix}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: guide{suffix}\nVersion: 1.0\n")
    for language, block in re.findall(r"```(python|toml)\n(.*?)```", text, re.DOTALL):
        if language == "python":
            file = folder / block.partition("\n")[0].removeprefix("# ")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block)
        else:
            entries = re.sub(r'\[project.entry-points."(.*)"\]', r"[\1]", block)
            (metadata / "entry_points.txt").write_text(entries.replace('"', ""))
    return folder


class CommandLine:
    """`tidemark`, with some packages installed."""

    def __init__(self, site: Site, packages: Path) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"},
            **environment.spark(site),
            **environment.connections(site),
        }
        before = self._environment.get("PYTHONPATH", "")
        self._environment["PYTHONPATH"] = f"{packages}{os.pathsep}{before}"

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tidemark", *words],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run the command, which has to end with `code`. Gives its standard output."""
        ran = self.start(*words)
        out, said = ran.communicate(timeout=300)
        assert ran.returncode == code, said[-3000:]
        return out
