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


# What moves the cursor, colours and hides.
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def at_a_terminal(*arguments: str, code: int = 0, **variables: str) -> str:
    """Run the command at a terminal of its own, 100 columns wide. Gives all that it has drawn, without the codes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [sys.executable, "-m", "tidemark", *arguments]
    environment = {**os.environ, "TERM": "xterm-256color", **variables}
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    drawn = b""
    with os.fdopen(ours, "rb", buffering=0) as screen:
        while True:
            try:
                found = screen.read(65536)
            except OSError:
                # EIO: so says a terminal on Linux whose programs have all ended.
                break
            if not found:
                break
            drawn += found
    ended = child.wait(300)
    said = _CODES.sub("", drawn.decode())
    assert ended == code, said
    return said
