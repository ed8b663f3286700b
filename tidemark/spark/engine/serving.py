"""The engine's process: it takes runs at its socket, forks a process for each, and tells each asking program its end.

It has one thread and never waits for the JVM, so that it can always fork and always answer.
"""

from __future__ import annotations

import array
import logging
import os
import selectors
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from tidemark.errors import EXIT_WRONG_USE, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.spark.engine.staleness import Code
from tidemark.spark.engine.working import Process, environment_of
from tidemark.spark.runtime import engine_run
from tidemark.spark.runtime.engine_run import EngineRun
from tidemark.submit.client import ENDED, EXIT_UNREACHABLE, send, taken
from tidemark.submit.same_code import ASKING, check_same_code

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
# A run whose asking program is gone is asked to end first, as if the program had been asked. Then it is killed.
_PATIENCE_SECONDS = 15.0
# How long the JVM may take to end what a run has left there.
_CLEANING_SECONDS = 120.0
# An engine makes place for a new one after so long, as soon as it has nothing to do: whatever piles up in a JVM ends then.
_MAX_SECONDS = 24 * 3600.0
_FILES = 3
_CREDENTIALS = struct.Struct("3i")


@dataclass(eq=False)
class _Client:
    """A program that asks, and what it has said so far."""

    connection: socket.socket
    data: bytearray = field(default_factory=bytearray)
    files: list[int] = field(default_factory=list)
    run: _Run | None = None


@dataclass(eq=False)
class _Run:
    """A run, from the moment it was asked for until nothing of it is left. `code` is its exit code once it has ended."""

    name: str
    client: _Client | None
    request: dict[str, Any]
    asked_at: float
    slot: int | None = None
    pid: int | None = None
    watched: int | None = None
    killed_at: float | None = None
    spark: EngineRun | None = None
    cleaner: int | None = None
    cleaning_since: float = 0.0

    @property
    def command(self) -> list[str]:
        return [str(one) for one in self.request["command"]]

    @property
    def is_ingest(self) -> bool:
        """Whether it waits behind no replay, backfill or audit."""
        words = self.command
        return any(one == "--lane" and other == "ingest" for one, other in pairwise(words))


class EngineServer:
    """Serves at a socket until it was told to end, or has had nothing to do for long, or its code is old."""

    def __init__(self, path: Path, port: int, secret: str, code: Code, *, runs: int, idle_seconds: float) -> None:
        self._path = path
        self._port = port
        self._secret = secret
        self._code = code
        self._idle_seconds = idle_seconds
        self._slots: list[_Run | None] = [None] * runs
        self._waiting: deque[_Run] = deque()
        self._clients: set[_Client] = set()
        self._numbers = count(1)
        self._selector = selectors.DefaultSelector()
        self._began = self._busy_at = time.monotonic()
        self._leaving: str | None = None
        self._jvm = os.getppid()
        self._jvm_is_gone = False
        self._done = 0

    def serve(self) -> None:
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        self._listener.bind(str(self._path))
        os.umask(before)
        self._listener.listen(512)
        self._listener.setblocking(False)
        self._watch(self._listener, self._accept)
        self._jvm_file = os.pidfd_open(self._jvm)
        self._watch(self._jvm_file, self._jvm_ended)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._leave("it was told to end by a signal", now=True))
        log.info("ready: %s runs at a time, at %s", len(self._slots), self._path)
        try:
            while self._leaving is None or self._at_work():
                for key, _ in self._selector.select(_LOOK_SECONDS):
                    key.data()
                self._look()
        finally:
            if self._leaving is None:
                self._path.unlink(missing_ok=True)
        log.info("ended after %s runs: %s", self._done, self._leaving)

    def _watch(self, file: Any, act: Callable[[], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, act)

    # what programs ask

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        _, owner, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if owner != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        client = _Client(connection)
        self._clients.add(client)
        self._watch(connection, lambda: self._hear(client))

    def _hear(self, client: _Client) -> None:
        try:
            data, rights, _, _ = client.connection.recvmsg(1 << 20, socket.CMSG_SPACE(_FILES * 4))
            for level, kind, numbers in rights:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    client.files += array.array("i", numbers[: len(numbers) - len(numbers) % 4])
            client.data += data
            while data and (value := taken(client.data)) is not None:
                self._answer(client, value)
        except BlockingIOError:
            return
        except (OSError, ValueError, KeyError, TypeError) as problem:
            log.warning("a program asked what cannot be understood: %s", problem)
            data = b""
        if not data:
            self._client_gone(client)

    def _answer(self, client: _Client, value: dict[str, Any]) -> None:
        if "signal" in value:
            self._pass_on(client.run, int(value["signal"]))
        elif value["do"] == "run":
            self._ask(client, value)
        elif value["do"] == "status":
            self._tell(client, self._status())
        elif value["do"] == "stop":
            self._leave("`tidemark engine stop`", now=bool(value.get("now")))
            self._tell(client, self._status())

    def _ask(self, client: _Client, request: dict[str, Any]) -> None:
        changed = self._code.changed()
        if changed is not None:
            self._leave(f"{changed} has changed")
        if self._leaving is not None:
            self._tell(client, {"leaving": self._leaving})
            return
        if len(client.files) != _FILES or not request["command"]:
            self._tell(client, {"say": "tidemark: WrongUse: a run without its files", "exit": EXIT_WRONG_USE})
            return
        try:
            check_same_code(dict(request["environment"]).get(ASKING))
        except WrongUse as problem:
            self._tell(client, {"say": f"tidemark: WrongUse: {problem}"})
            self._tell(client, {"exit": EXIT_WRONG_USE})
            # All who know its socket have that code.
            self._leave("it has other code than the command that asked")
            return
        run = _Run(f"{os.getpid()}-{next(self._numbers)}", client, request, time.time())
        client.run = run
        self._busy_at = time.monotonic()
        self._waiting.append(run)
        self._begin_some()
        if run.pid is None:
            at_work = number_of(len(self._at_work()), "run", "is", "are")
            before = self._waiting.index(run)
            self._tell(
                client,
                {"say": f"waiting for the warm engine: {at_work} at work, and {before} before this one"},
            )

    def _tell(self, client: _Client | None, value: dict[str, Any]) -> None:
        if client is None:
            return
        try:
            # These are a few bytes: they fit, unless the other side has stopped reading for good.
            send(client.connection, value)
        except OSError:
            self._client_gone(client)

    def _client_gone(self, client: _Client) -> None:
        if client not in self._clients:
            return
        self._clients.remove(client)
        self._selector.unregister(client.connection)
        client.connection.close()
        for file in client.files:
            os.close(file)
        client.files.clear()
        run, client.run = client.run, None
        if run is None:
            return
        run.client = None
        if run in self._waiting:
            self._waiting.remove(run)
        elif run.pid is not None:
            # As with spark-submit: whoever kills it wants the run to end.
            self._kill(run)

    # runs

    def _begin_some(self) -> None:
        """Start the runs whose turn it is. Others than ingests leave one place free, so that a replay holds up no ingest."""
        while self._leaving is None and None in self._slots:
            others = sum(not run.is_ingest for run in self._at_work())
            room = others < max(1, len(self._slots) - 1)
            chosen = next((run for run in self._waiting if room or run.is_ingest), None)
            if chosen is None:
                return
            self._waiting.remove(chosen)
            self._begin(chosen, self._slots.index(None))

    def _begin(self, run: _Run, slot: int) -> None:
        """Start a run in a place."""
        client, request = run.client, run.request
        if client is None:
            return
        environment = {str(name): str(value) for name, value in request["environment"].items()}
        run.spark = EngineRun(
            run.name,
            # As many pools as places: Spark never forgets a pool.
            f"place {slot}",
            self._port,
            self._secret,
            {str(name): str(value) for name, value in request["conf"].items()},
            environment_of(environment),
        )
        parent, files = os.getpid(), client.files[:]
        pid = os.fork()
        if pid == 0:
            try:
                self._forget_in_child(files)
                process = Process(run.command, files, str(request["cwd"]), int(request["umask"]), parent)
                process.become(run.spark)
            finally:
                os._exit(1)
        for file in client.files:
            os.close(file)
        client.files.clear()
        run.pid, run.slot = pid, slot
        self._slots[slot] = run
        run.watched = os.pidfd_open(pid)
        self._watch(run.watched, lambda: self._ended(run))
        log.info("run %s began as process %s: %s", run.name, pid, " ".join(run.command))
        self._tell(client, {"begun": pid})

    def _forget_in_child(self, files: list[int]) -> None:
        """Close what belongs to the engine: while a run had it open too, other programs would wait for its end."""
        self._selector.close()
        self._listener.close()
        for client in self._clients:
            client.connection.close()
            for file in client.files:
                if file not in files:
                    os.close(file)
        for run in self._at_work():
            if run.watched is not None:
                os.close(run.watched)

    def _ended(self, run: _Run) -> None:
        pid, watched = run.pid, run.watched
        if pid is None or watched is None:
            return
        self._selector.unregister(watched)
        os.close(watched)
        run.watched = None
        # Not reaped yet: the number of its group is still its own.
        _killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        run.pid = None
        log.info("run %s ended with %s", run.name, code)
        # The exit code that spark-submit has for a driver that a signal has ended.
        self._tell(run.client, {"exit": code if code >= 0 else 128 - code})
        if run.client is not None:
            run.client.run = None
        self._clean(run)

    def _clean(self, run: _Run) -> None:
        """End in the JVM what the run has left there, in a process that may take its time."""
        if run.spark is None or self._jvm_is_gone:
            self._over(run)
            return
        pid = os.fork()
        if pid == 0:
            try:
                self._forget_in_child([])
                engine_run.end(run.spark)
                os._exit(0)
            finally:
                os._exit(1)
        run.cleaner, run.cleaning_since = pid, time.monotonic()
        run.watched = os.pidfd_open(pid)
        self._watch(run.watched, lambda: self._cleaned(run))

    def _cleaned(self, run: _Run) -> None:
        if run.cleaner is None or run.watched is None:
            return
        self._selector.unregister(run.watched)
        os.close(run.watched)
        status = os.waitpid(run.cleaner, 0)[1]
        if status:
            log.warning("run %s has left something in the JVM: its cleaning ended with %s", run.name, status)
        run.cleaner = run.watched = None
        self._over(run)

    def _over(self, run: _Run) -> None:
        self._busy_at = time.monotonic()
        if run.slot is not None:
            self._slots[run.slot] = None
            self._done += 1
            self._begin_some()

    def _at_work(self) -> list[_Run]:
        return [run for run in self._slots if run is not None]

    def _pass_on(self, run: _Run | None, number: int) -> None:
        if run is None:
            return
        if run.pid is not None:
            _killpg(run.pid, number)
        elif run in self._waiting:
            self._waiting.remove(run)
            self._tell(run.client, {"exit": 128 + number})

    def _kill(self, run: _Run) -> None:
        if run.pid is not None:
            _killpg(run.pid, signal.SIGKILL)

    # the engine's own end

    def _look(self) -> None:
        """The effects of time alone."""
        now = time.monotonic()
        for run in self._at_work():
            if run.cleaner is not None and now - run.cleaning_since > _CLEANING_SECONDS:
                os.kill(run.cleaner, signal.SIGKILL)
        if self._leaving is not None or self._at_work() or self._waiting:
            return
        if now - self._busy_at > self._idle_seconds:
            self._leave(f"no run for {self._idle_seconds / 60:.0f} minutes")
        elif now - self._began > _MAX_SECONDS:
            self._leave("it has worked for a day")

    def _leave(self, why: str, *, now: bool = False) -> None:
        """Take no more runs, and end when those at work have ended. `now`: end those too."""
        if self._leaving is None:
            self._leaving = why
            log.info("takes no more runs: %s", why)
            # The next program that asks starts another engine, at a socket of the same name.
            self._selector.unregister(self._listener)
            self._listener.close()
            self._path.unlink(missing_ok=True)
            self._path.with_suffix(".lives").unlink(missing_ok=True)
            for run in [*self._waiting]:
                self._waiting.remove(run)
                self._tell(run.client, {"leaving": why})
        if now:
            for run in self._at_work():
                self._kill_with_word(run, f"the warm engine was told to end ({why})")

    def _kill_with_word(self, run: _Run, why: str) -> None:
        if run.client is not None:
            self._tell(
                run.client, {"say": f"{ENDED} {why}, and this run with it. What was not committed does not count"}
            )
            self._tell(run.client, {"exit": EXIT_UNREACHABLE})
        self._kill(run)

    def _jvm_ended(self) -> None:
        """Without its JVM the engine is nothing. The runs end at once, and their programs say why."""
        log.error("the JVM has ended")
        self._jvm_is_gone = True
        self._selector.unregister(self._jvm_file)
        self._leave("its JVM has ended")
        for run in self._at_work():
            self._kill_with_word(run, "the JVM of the warm engine has ended")

    def _status(self) -> dict[str, Any]:
        def shown(run: _Run) -> dict[str, Any]:
            return {
                "run": run.name,
                "pid": run.pid,
                "command": run.command,
                "asked_at": int(1000 * run.asked_at),
                "client_cwd": run.request["cwd"],
            }

        return {
            "pid": os.getpid(),
            "jvm": self._jvm,
            "places": len(self._slots),
            "seconds": round(time.monotonic() - self._began),
            "done": self._done,
            "at_work": [shown(run) for run in self._at_work() if run.pid is not None],
            # These have ended, and hold their place until the JVM is rid of what they left. Then they are done.
            "cleaning": sum(run.cleaner is not None for run in self._at_work()),
            "waiting": [shown(run) for run in self._waiting],
            "leaving": self._leaving,
            "stale": self._code.changed(),
        }


def _killpg(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        # It has ended, or has only just been forked and has no group of its own yet.
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
