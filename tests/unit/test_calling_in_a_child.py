"""Functions of one's own that never return or end their process: their message fails, and nothing else does."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.covering import REPOSITORY
from tests.support.waiting import until
from tidemark import Message
from tidemark.errors import Fenced
from tidemark.functions.caller import Caller, CallResult, Result, result_of, steady_clock
from tidemark.functions.child import Child
from tidemark.functions.retries import ExponentialBackoff
from tidemark.types.fields import FieldType

FIELDS: dict[str, FieldType] = {"id": "integer", "text": "string"}
# Long enough for a call of a busy machine, and short enough to be waited for.
TIMEOUT_MS = 800
# Seconds that a call takes that never returns, for this test.
EVER = 600


def loop() -> None:
    while True:
        pass


def swallow() -> None:
    while True:
        with suppress(BaseException):
            time.sleep(EVER)


def receive() -> None:
    here, _ = socket.socketpair()
    here.recv(1)


def hold_the_gil() -> None:
    # Unlike CDLL, it keeps Python's lock while the C code runs.
    ctypes.PyDLL(None).sleep(EVER)


def ignore_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.PyDLL(None).sleep(EVER)


def segfault() -> None:
    faulthandler.disable()
    ctypes.string_at(0)


NEVER: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (loop, swallow, receive, hold_the_gil, ignore_signals, time.sleep)
}
ENDINGS: dict[str, tuple[Callable[[], Any], str]] = {
    "exit": (lambda: os._exit(3), "exit code 3"),
    "exit well": (lambda: os._exit(0), "exit code 0"),
    "segfault": (segfault, "signal 11"),
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "signal 9"),
}


def work(message: Message) -> Any:
    """What the value says, for ever or to the end; or a row with the process that made it."""
    said = (message.value or b"").decode()
    if said in NEVER:
        NEVER[said](*([EVER] if said == "sleep" else []))
    if said in ENDINGS:
        ENDINGS[said][0]()
    if said == "raise":
        raise KeyboardInterrupt("nobody has pressed a key")
    return {"id": os.getpid(), "text": said}


def messages(*values: str) -> list[Message]:
    return [Message("logs", 0, offset, b"key", value.encode()) for offset, value in enumerate(values)]


@pytest.fixture
def child() -> Iterator[Child]:
    with closing(Child(partial(result_of, work, FIELDS), TIMEOUT_MS)) as made:
        yield made


def answers(child: Child, given: Sequence[Message], limit: int = 0) -> dict[int, CallResult]:
    caller = Caller(child, ExponentialBackoff(10, limit=limit), steady_clock())
    found = [(one.message.offset, one) for one in caller.answers(given)]
    assert len(found) == len(given)
    return dict(found)


def assert_neighbours_are_stored(found: dict[int, CallResult], failed: int) -> None:
    assert all(answer.rows for offset, answer in found.items() if offset != failed)
    # In a process of their own, and in another one behind the message that held it up.
    (before,), (after,) = ({found[offset].rows[0][0] for offset in part} for part in ((0, 1), (3, 4)))
    assert len({before, after, os.getpid()}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("never", NEVER)
def test_a_call_that_never_returns_fails_its_message(child: Child, never: str) -> None:
    found = answers(child, messages("a", "b", never, "c", "d"))
    why = found[2].failed
    assert why is not None
    assert (why.reason, why.attempts) == ("raised tidemark.functions.TimedOut", 1)
    assert why.detail == "tidemark.functions.TimedOut: longer than 800 ms"
    assert_neighbours_are_stored(found, 2)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_call_that_ends_its_process_fails_its_message(child: Child, ending: str) -> None:
    found = answers(child, messages("a", "b", ending, "c", "d"))
    why = found[2].failed
    assert why is not None
    assert (why.reason, why.attempts) == ("raised tidemark.functions.ProcessEnded", 1)
    assert why.detail == f"tidemark.functions.ProcessEnded: {ENDINGS[ending][1]}"
    assert_neighbours_are_stored(found, 2)


@pytest.mark.slow
def test_it_is_tried_again_as_the_policy_says_which_knows_of_all_attempts(child: Child) -> None:
    found = answers(child, messages("a", "exit", "sleep", "b"), limit=2)
    assert [found[offset].failed and found[offset].failed.attempts for offset in range(4)] == [None, 3, 3, None]
    times = found[2].failed
    assert times is not None
    # Two waits of 10 and 20 ms and two calls lie between the first failure and the last.
    assert times.last_at - times.first_at >= 2 * TIMEOUT_MS


def test_one_that_recovers_is_stored(tmp_path: Path) -> None:
    marker = tmp_path / "called"

    def once(message: Message) -> Any:
        if message.value == b"hang" and not marker.exists():
            marker.touch()
            time.sleep(EVER)
        return work(message)

    with closing(Child(partial(result_of, once, FIELDS), TIMEOUT_MS)) as recovering:
        found = answers(recovering, messages("a", "hang", "b"), limit=1)
    assert [answer.rows[0][1] for _, answer in sorted(found.items())] == ["a", "hang", "b"]


def test_what_is_raised_is_no_end_of_the_process(child: Child) -> None:
    found = answers(child, messages("a", "raise", "b"))
    assert found[1].failed is not None
    assert found[1].failed.detail == "KeyboardInterrupt: nobody has pressed a key"
    assert found[0].rows[0][0] == found[2].rows[0][0] != os.getpid()


def test_no_message_is_blamed_for_a_process_that_ended_between_two(child: Child) -> None:
    pid = child(messages("a"))[0].rows[0][0]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    (result,) = child(messages("b"))
    assert result.rows
    assert result.rows[0][0] != pid


def test_a_slow_call_is_not_late_for_those_before_it() -> None:
    """Together they take longer than one call may, and the child says after each turn how far it is."""

    def slow(message: Message) -> Any:
        time.sleep(TIMEOUT_MS / 4_000)
        return work(message)

    with closing(Child(partial(result_of, slow, FIELDS), TIMEOUT_MS)) as patient:
        given = messages(*"abcdefgh")
        assert 1 <= len(patient(given)) < 8
        assert all(answer.rows for answer in answers(patient, given).values())


def test_large_messages_and_large_results() -> None:
    sizes = [0, 1, 1 << 20, 5 << 20, 3, 30 << 20, 7]
    # 30 MB there and back can take a busy machine some seconds.
    with closing(Child(partial(result_of, work, FIELDS), 20 * TIMEOUT_MS)) as child:
        found = answers(child, messages(*("x" * size for size in sizes)))
    assert [len(found[offset].rows[0][1]) for offset in range(len(sizes))] == sizes


def test_many_messages_are_called_for_at_once(child: Child) -> None:
    turns: list[int] = []

    def counted(given: Sequence[Message]) -> list[Result]:
        results = child(given)
        turns.append(len(results))
        return results

    given = messages(*("a" for _ in range(5_000)))
    found = list(Caller(counted, ExponentialBackoff(), steady_clock()).answers(given))
    assert [one.message.offset for one in found] == list(range(5_000))
    assert sum(turns) == 5_000
    assert max(turns) > 100


def test_the_fence_is_looked_at_while_a_call_hangs() -> None:
    looks: list[float] = []

    def look() -> None:
        looks.append(time.monotonic())
        if len(looks) == 2:
            raise Fenced("a newer attempt has taken the window")

    hanging = Child(partial(result_of, work, FIELDS), 86_400_000, look)
    with closing(hanging), pytest.raises(Fenced):
        hanging(messages("loop"))
    assert max(after - before for before, after in pairwise(looks)) < 30


def test_a_child_ends_with_its_parent() -> None:
    """Also when its parent is killed while a call hangs."""
    read, write = os.pipe()

    def hang(_: Message) -> Result:
        os.write(write, b"%d" % os.getpid())
        hold_the_gil()
        return Result()

    parent = os.fork()
    if parent == 0:
        Child(hang, 86_400_000)(messages("a"))
        os._exit(0)
    pid = int(os.read(read, 20))
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the child runs on")
    os.close(read)
    os.close(write)


# In a process of its own: threads of other tests' servers open and close files while this one counts.
COUNTED = """
import os
from tidemark import Message
from tidemark.functions.caller import Result
from tidemark.functions.child import Child

def open_files():
    return len(os.listdir("/proc/self/fd"))

before = open_files()
child = Child(lambda message: Result(rows=((os.getpid(),),)), 60_000)
pid = child([Message("t", 0, 0, None, None)])[0].rows[0][0]
assert os.path.exists(f"/proc/{pid}")
during = open_files()
child.close()
print(during - before, open_files() - before, os.path.exists(f"/proc/{pid}"))
"""


def test_a_child_that_is_closed_leaves_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, cwd=REPOSITORY, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["4", "0", "False"], "")
