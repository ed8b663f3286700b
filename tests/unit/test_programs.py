"""A program as a child: what it says, how it ends, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import psutil
import pytest

from tidemark.cli.programs import Interrupted, run, run_together


def python(code: str) -> tuple[int, list[str]]:
    said: list[str] = []
    return run([sys.executable, "-u", "-c", code], os.environ, said.append), said


def test_its_exit_code_and_what_it_says() -> None:
    assert python("import sys; print('a\\nb'); print('c', file=sys.stderr); sys.exit(7)") == (7, ["a", "b", "c"])
    assert python("import os; os.kill(os.getpid(), 9)") == (-9, [])
    # Nobody can be asked anything.
    assert python("import sys; print(repr(sys.stdin.read()))") == (0, ["''"])


def test_what_it_has_started_ends_with_it() -> None:
    code, (number,) = python("import subprocess; print(subprocess.Popen(['sleep', '600'], stdout=-3).pid)")
    assert code == 0
    assert _ended(int(number))


def test_one_that_fails_ends_no_other() -> None:
    said: list[list[str]] = [[], []]
    codes = ["print('a'); raise SystemExit(3)", "import time; time.sleep(1); print('b')"]
    commands = [([sys.executable, "-c", code], say.append) for code, say in zip(codes, said, strict=True)]
    assert run_together(commands, os.environ) == [3, 0]
    assert said == [["a"], ["b"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_of_it(number: signal.Signals) -> None:
    said: list[str] = []
    before = signal.getsignal(number)

    def interrupt(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            threading.Timer(0.1, os.kill, (os.getpid(), number)).start()

    # Both print their numbers, and sleep.
    code = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
    with pytest.raises(Interrupted, match=number.name) as caught:
        run([sys.executable, "-u", "-c", code], os.environ, interrupt)
    assert caught.value.number == number
    assert [_ended(int(one)) for one in said] == [True, True]
    assert signal.getsignal(number) == before


def _ended(process: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(process).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False
