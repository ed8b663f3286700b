"""Programs that have failed, shortened. A seed changes its meaning with the menu, a program does not.

A search keeps what it finds in `.local/`: only people put a program among those that everybody plays.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from services.site import REPOSITORY
from tests.simulation.playing import Failure
from tests.simulation.steps import Program

FOLDER = Path(__file__).with_name("kept")
# What searches on this machine have found.
FOUND = REPOSITORY / ".local" / "simulation"


def kept(folder: Path = FOLDER) -> dict[str, Program]:
    """All programs of a folder, by their names."""
    return {path.stem: Program.of_data(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}


def keep(program: Program, failure: Failure) -> Path:
    """Keep a program that a search has found. Its name is a number, until somebody gives it a better one."""
    data = {"said": failure.text, **program.as_data()}
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"{hashlib.sha256(json.dumps(program.as_data()).encode()).hexdigest()[:8]}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def how_to_keep(path: Path) -> str:
    """What to do with a program that a search has found."""
    here, there = (os.path.relpath(one, REPOSITORY) for one in (path, FOLDER / "what_it_shows.json"))
    return (
        f"It is in {here}, and is played first on this machine. When the fault is mended, keep it for everybody, under a name "
        f"that says what it shows: mv {here} {there}"
    )
