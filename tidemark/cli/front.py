"""The command `tidemark` before anything else is loaded: a warm engine that lives may have all of it loaded already."""

from __future__ import annotations

import sys

from tidemark.submit.address import sockets
from tidemark.submit.client import ENDED, EXIT_UNREACHABLE, EngineRefused, Gone, connected, handed_over

# The commands that start a job. Loading what they need takes them longer than a small job.
_WITH_A_JOB = ("run", "backfill", "replay", "erase", "audit", "compact")


def main() -> None:
    """The program: a process of a warm engine does the work as if it were this one, or this one does."""
    words = sys.argv[1:]
    code = _in_an_engine(words) if words and words[0] in _WITH_A_JOB else None
    if code is not None:
        sys.exit(code)
    from tidemark.cli.app import main as here

    here()


def _in_an_engine(words: list[str]) -> int | None:
    """The exit code; None if no engine of this installation lives."""
    for path in sockets(of_this_installation=True):
        connection = connected(str(path))
        if connection is None:
            continue
        with connection:
            try:
                return handed_over(connection, {"do": "command", "command": words, "conf": {}})
            except EngineRefused:
                continue
            except Gone as problem:
                sys.stderr.write(f"{ENDED} {problem}\n")
                return EXIT_UNREACHABLE
    return None
