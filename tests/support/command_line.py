"""The command line, called as people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def tidemark(*arguments: str, code: int = 0, **variables: str) -> tuple[str, str]:
    """Run the command, which has to end with `code`. Gives standard output and standard error."""
    command = [sys.executable, "-m", "tidemark", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def asked(*arguments: str) -> Any:
    out, _ = tidemark(*arguments, "--json")
    return json.loads(out)
