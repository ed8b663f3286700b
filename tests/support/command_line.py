"""The command line, called as people call it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from typing import Any

from tests.support.command_server import called


def tidemark(*arguments: str, code: int = 0, **variables: str) -> tuple[str, str]:
    """Run the command, which has to end with `code`. Gives standard output and standard error."""
    done = called(arguments, {**os.environ, **variables})
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def asked(*arguments: str) -> Any:
    out, _ = tidemark(*arguments, "--json")
    return json.loads(out)


# What moves the cursor, colours and hides.
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def at_a_terminal(*arguments: str, code: int = 0, **variables: str) -> str:
    """Run the command at a terminal of its own. Gives all that it has drawn, without the codes."""
    ended, said = drawn([sys.executable, "-m", "tidemark", *arguments], {**os.environ, **variables})
    assert ended == code, said
    return said


def drawn(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a program at a terminal, 100 columns wide. Gives its exit code, and what it has drawn, without the codes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    environment = {**environment, "TERM": "xterm-256color"}
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    found = b""
    # EIO: so says a terminal on Linux whose programs have all ended.
    with os.fdopen(ours, "rb", buffering=0) as screen, suppress(OSError):
        while piece := screen.read(65536):
            found += piece
    return child.wait(300), _CODES.sub("", found.decode())
