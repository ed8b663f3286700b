"""Whether the code that an engine has loaded is still the code on the disk."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import tidemark

# What no job imports: a change of it needs no new engine.
_OF_AIRFLOW = ("airflow", "plugin")


@dataclass(frozen=True)
class Code:
    """The files that were loaded, and the folders where packages are installed, each with its state at that time."""

    states: dict[str, object]

    @classmethod
    def of_now(cls) -> Code:
        """The code of this process. Tidemark's own files are among it, also those that no run has needed yet."""
        loaded = {str(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
        package = Path(tidemark.__file__).parent
        ours = {
            str(file)
            for file in package.rglob("*")
            if file.suffix in (".py", ".java", ".thrift") and file.relative_to(package).parts[0] not in _OF_AIRFLOW
        }
        # A package that is installed or removed changes its folder.
        folders = {place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")}
        return cls({path: _state(path) for path in sorted(loaded | ours | folders)})

    def changed(self) -> str | None:
        """The first file or folder that has changed since."""
        return next((path for path, state in self.states.items() if _state(path) != state), None)


def _state(path: str) -> object:
    try:
        # Two thousand files, for each run: a Path for each would take as long as all the rest.
        state = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    # Not the time of a change of anything: installers link one file into many environments, and each link is such a change.
    return state.st_ino, state.st_size, state.st_mtime_ns
