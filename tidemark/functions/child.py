"""Calls in a child process. A call that never returns, or that ends its process, costs only its message.

See docs/adr/0018. For Linux only: parent and child share memory through `memfd_create`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from mmap import mmap
from operator import attrgetter
from typing import Any, NoReturn

from tidemark.functions import Message, ProcessEnded, TimedOut
from tidemark.functions.caller import Result, raised

# How long a child works before it says how far it is.
_TURN_SECONDS = 0.1
# The longest wait between two looks, and the least number of looks before a call is given up.
_LOOK_SECONDS = 1.0
_LEAST_LOOKS = 10

# The shared memory for results, in bytes. It grows for results that need more.
_MEMORY = 1 << 20
# A length in bytes: of the message's data, of all results with this one before them, and of each.
_LENGTH = struct.Struct("<Q")
_DONE = b"."
_PARTS = attrgetter(*(field.name for field in fields(Message)))

# `prctl`: which signal a process gets when its parent has ended.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

Call = Callable[[Message], Result]


class Child:
    """Calls a function in a process that starts with the first message, and again after a message that it did not survive.

    `look` is called every second, also while a call hangs. An exception of `look` is raised here. Call `close` at the end.
    """

    def __init__(self, call: Call, timeout_ms: int, look: Callable[[], None] = lambda: None) -> None:
        self._call = call
        self._timeout_ms = timeout_ms
        self._look = look
        self._process: _Process | None = None

    def __call__(self, messages: Sequence[Message]) -> list[Result]:
        """The results of the first messages: at least one."""
        if self._process is None or self._process.exit_code() is not None:
            self.close()
            self._process = _Process(self._call)
        process = self._process
        process.begin(messages)
        problem = self._wait(process)
        results = process.results()
        if problem is not None:
            self.close()
            if len(results) < len(messages):
                results.append(Result(raised=raised(problem)))
        return results

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process.close()
            self._process = None

    def _wait(self, process: _Process) -> Exception | None:
        """Why the process will give no more results. None when the process is well, and waits for messages."""
        pause = min(_LOOK_SECONDS, self._timeout_ms / 1000 / _LEAST_LOOKS)
        # Looks are counted, not time: no call is late because the machine stood still for an hour.
        most = round(self._timeout_ms / 1000 / pause)
        left, before = most, 0
        while left:
            said = process.said(pause)
            if said == _DONE:
                return None
            if said is not None or process.exit_code() is not None:
                return ProcessEnded(_ending(process.kill()))
            self._look()
            now = process.progress()
            left, before = (left - 1, before) if now == before else (most, now)
        return TimedOut(f"longer than {self._timeout_ms} ms")


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


class _Process:
    """A child process, and what it shares with its parent: messages and results in memory, and two pipes to wait at.

    In shared memory, neither process waits for the other to read, and results stay whatever becomes of the child.
    """

    def __init__(self, call: Call) -> None:
        self._messages = os.memfd_create("tidemark-messages")
        self._results = os.memfd_create("tidemark-results")
        os.ftruncate(self._results, _MEMORY)
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        self._code: int | None = None
        # Otherwise both processes would write the text in these buffers.
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write)
            os.close(self._read)
            _serve(call, parent, self._messages, self._results, read, write)
        os.close(read)
        os.close(write)

    def begin(self, messages: Sequence[Message]) -> None:
        """Have the child work on these messages."""
        data = pickle.dumps([_PARTS(message) for message in messages])
        os.pwrite(self._results, _LENGTH.pack(_LENGTH.size), 0)
        os.ftruncate(self._messages, 0)
        os.pwrite(self._messages, data, 0)
        # `Child._wait` notices a child that has just ended.
        with suppress(BrokenPipeError):
            os.write(self._write, _LENGTH.pack(len(data)))

    def said(self, seconds: float) -> bytes | None:
        """_DONE; no bytes when the child can say no more; None when it has been silent for the time-out."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        return os.read(self._read, 1) if poll.poll(seconds * 1000) else None

    def progress(self) -> int:
        """How far the results go, in bytes."""
        return int(_LENGTH.unpack(os.pread(self._results, _LENGTH.size, 0))[0])

    def results(self) -> list[Result]:
        """The results so far of the messages that the child works on, or worked on last."""
        data = os.pread(self._results, self.progress(), 0)
        results, at = [], _LENGTH.size
        while at < len(data):
            start = at + _LENGTH.size
            at = start + _LENGTH.unpack_from(data, at)[0]
            results.append(Result(*pickle.loads(data[start:at])))  # noqa: S301 - from our own child
        return results

    def exit_code(self) -> int | None:
        """The child's exit code, or the negative number of the signal that ended it. None while the child runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def kill(self) -> int:
        """End the child unless it has ended. Returns its exit code."""
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def close(self) -> None:
        for queue in (self._messages, self._results, self._read, self._write):
            os.close(queue)


def _serve(call: Call, parent: int, messages: int, results: int, read: int, write: int) -> NoReturn:
    """The child's loop, until its parent closes the pipe or ends."""
    code = 1
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # Without this, a garbage collection would write to the parent's memory, and so copy it.
        gc.freeze()
        shared = mmap(results, _MEMORY)
        while os.getppid() == parent and (length := os.read(read, _LENGTH.size)):
            given = pickle.loads(os.pread(messages, _LENGTH.unpack(length)[0], 0))  # noqa: S301 - from our own parent
            _work(call, given, shared)
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(write, _DONE)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Not `sys.exit`: the child must not run what the parent runs at its end.
        os._exit(code)


def _work(call: Call, given: Sequence[tuple[Any, ...]], results: mmap) -> None:
    """Call the function for messages, given as their parts, until the turn is over."""
    until, at = time.monotonic() + _TURN_SECONDS, _LENGTH.size
    if len(results) > _MEMORY:
        results.resize(_MEMORY)
    for parts in given:
        data = pickle.dumps(tuple(call(Message(*parts))))
        start = at + _LENGTH.size
        if start + len(data) > len(results):
            results.resize(2 * (start + len(data)))
        _LENGTH.pack_into(results, at, len(data))
        at = start + len(data)
        results[start:at] = data
        # Only now can the parent see the result.
        _LENGTH.pack_into(results, 0, at)
        if time.monotonic() > until:
            return
