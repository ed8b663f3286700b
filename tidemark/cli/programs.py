"""Running programs as children that end with us: their output is passed on, and an interrupt ends them too."""

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
    """Run a program to its end and give its exit code, as `run_together`."""
    (code,) = run_together([(command, say)], environment)
    return code


def run_together(commands: Sequence[tuple[Sequence[str], Say]], environment: Mapping[str, str]) -> list[int]:
    """Run programs at the same time, and return the exit code of each, negative for the signal that killed it.

    Every line that a program prints goes to its `say`. No program ends because another has. SIGINT and SIGTERM to this
    process end all children, politely at first; then Interrupted is raised. When this returns or raises, no process of
    the children's process groups runs any more.
    """
    with _listening() as received:
        children: list[subprocess.Popen[str]] = []
        readers: list[threading.Thread] = []
        try:
            for command, say in commands:
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
                children.append(child)
                readers.append(threading.Thread(target=_pass_on, args=(child, say), daemon=True))
                readers[-1].start()
            _wait(children, received)
        finally:
            # The children are not reaped yet, so the number of each group is still its own.
            for child in children:
                _signal(child, signal.SIGKILL)
            codes = [child.wait() for child in children]
        for reader in readers:
            reader.join(PATIENCE_SECONDS)
    if received.signals:
        raise Interrupted(received.signals[0])
    return codes


def _wait(children: Sequence[subprocess.Popen[str]], received: _Received) -> None:
    """Return when all children have ended, or when they were told to end and have not done so in time."""
    deadline: float | None = None
    while not all(_has_ended(child) for child in children):
        if received.signals and deadline is None:
            for child in children:
                _signal(child, signal.SIGTERM)
            deadline = time.monotonic() + PATIENCE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(_LOOK_SECONDS)


def _has_ended(child: subprocess.Popen[str]) -> bool:
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


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
