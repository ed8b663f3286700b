"""Running a program as a child that ends with us: its output is passed on, and an interrupt ends it too."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

# A Spark job that is asked to end takes a second or two. After this time it is killed.
PATIENCE_SECONDS = 15.0
_LOOK_SECONDS = 0.1

Say = Callable[[str], None]


class Interrupted(BaseException):
    """Raised when a signal told this program to end, after the child has ended."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@dataclass
class _Received:
    signals: list[int] = field(default_factory=list)


def run(command: Sequence[str], environment: Mapping[str, str], say: Say) -> int:
    """Run a program to its end and give its exit code, negative for the signal that killed it.

    Every line that the program prints goes to `say`. SIGINT and SIGTERM to this process end the child, politely at first;
    then Interrupted is raised. When this returns or raises, no process of the child's process group runs any more.
    """
    with _listening() as received:
        # A session of its own: Ctrl-C reaches the child only through us, and one signal ends all its processes.
        child = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            reader = threading.Thread(target=_pass_on, args=(child, say), daemon=True)
            reader.start()
            _wait(child, received)
        finally:
            # The child is not reaped yet, so the number of its group is still its own.
            _signal(child, signal.SIGKILL)
            code = child.wait()
        reader.join(PATIENCE_SECONDS)
    if received.signals:
        raise Interrupted(received.signals[0])
    return code


def _wait(child: subprocess.Popen[str], received: _Received) -> None:
    """Return when the child has ended, or when it was told to end and has not done so in time."""
    deadline: float | None = None
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if received.signals and deadline is None:
            _signal(child, signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(_LOOK_SECONDS)


def _signal(child: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        # Only the child is left of the group, and waits to be reaped (macOS refuses the signal then).
        return


def _pass_on(child: subprocess.Popen[str], say: Say) -> None:
    for line in child.stdout or ():
        say(line.rstrip("\n"))


@contextmanager
def _listening() -> Iterator[_Received]:
    """Note SIGINT and SIGTERM instead of ending at once."""
    received = _Received()
    before = {
        number: signal.signal(number, lambda got, _: received.signals.append(got))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
