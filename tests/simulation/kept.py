"""Programs that have failed, shortened. A seed changes its meaning with the menu, a program does not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.simulation.playing import Failure
from tests.simulation.steps import Program

FOLDER = Path(__file__).with_name("kept")


def kept() -> dict[str, Program]:
    """All programs that are kept, by their names."""
    return {path.stem: Program.of_data(json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))}


def keep(program: Program, failure: Failure) -> Path:
    """Keep a program. Its name is a number, until somebody gives it a better one."""
    data = {"said": failure.text, **program.as_data()}
    path = FOLDER / f"{hashlib.sha256(json.dumps(program.as_data()).encode()).hexdigest()[:8]}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path
