"""A command at a terminal of its own, whose person waits for a question and then types."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from collections.abc import Callable

CTRL_C = "\x03"
_PATIENCE_SECONDS = 60


def typed(work: Callable[[], None], after: str, keys: str) -> tuple[int, str]:
    """Do the work in a copy of this process at a terminal, and type the keys once `after` is on the screen.

    The copy has all that a test has in memory, and Ctrl-C ends it as a shell's program. Returns its exit code, and what it
    has written. `work` ends with SystemExit; what it changes in memory is the copy's.
    """
    child, screen = pty.fork()
    if child == 0:
        _work_and_end(work)
    shown, until = b"", time.monotonic() + _PATIENCE_SECONDS
    typed_once = False
    while time.monotonic() < until:
        if not select.select([screen], [], [], 1)[0]:
            # Between its last step and the read, Python notices a signal only with the next one: people press it again.
            if keys == CTRL_C and typed_once:
                os.write(screen, CTRL_C.encode())
            continue
        try:
            shown += os.read(screen, 65536)
        except OSError:
            # EIO: so says a terminal on Linux whose programs have all ended.
            break
        if not typed_once and after in shown.decode(errors="replace"):
            os.write(screen, keys.encode())
            typed_once = True
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode().replace("\r\n", "\n")


def _work_and_end(work: Callable[[], None]) -> None:
    """In the copy: nothing of the test above it may go on."""
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    try:
        work()
        code = 70
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException as problem:
        print(repr(problem))
        code = 71
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
