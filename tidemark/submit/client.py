"""Hands a run to the warm engine, as spark-submit's place in a command: same output, same exit code, ends with it.

    client.py SOCKET [--conf NAME=VALUE ...] --start WORD ... -- [SCRIPT ARGUMENT ...]

If no engine listens at SOCKET, the words start one. Without a script, that is all. This file imports nothing of Tidemark
and little of Python: it is run by its path, without site-packages, so that it begins within some hundredths of a second.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
import sys
import time

# The exit codes of `tidemark.errors`, and the error that says so.
EXIT_WRONG_USE = 2
EXIT_UNREACHABLE = 5
ENDED = "tidemark: EngineEnded:"

# The time that a starting engine may take. Spark alone takes ten seconds, on a busy machine minutes; a cluster's queue more.
PATIENCE_SECONDS = 600.0
_LOOK_SECONDS = 0.05
# The bytes of the engine's log that are shown when it did not start.
_LAST_LINES = 15
# A starting engine moves a log of this many bytes aside, over the one before.
_MAX_OF_A_LOG = 16 << 20
# A connection to an engine that is about to end is tried again, with the next engine.
_MAX_ENGINES = 10

_LENGTH = struct.Struct("!I")
MAX_BYTES = 32 << 20

# The engine works for all streams. It gets nothing that only one task or stream may know.
_OF_ONE_TASK = (
    "AIRFLOW_CONN_",
    "AIRFLOW_CTX_",
    "AIRFLOW_VAR_",
    "AIRFLOW__",
    "TIDEMARK_CODE_VERSION",
    "PYSPARK_GATEWAY_",
)


class EngineClosed(Exception):
    """Raised when the engine has ended, or takes no more runs."""


def send(connection: socket.socket, value: dict[str, object], files: tuple[int, ...] = ()) -> None:
    """Send a value, and with it open files."""
    body = json.dumps(value).encode()
    data = _LENGTH.pack(len(body)) + body
    if files:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
        data = data[connection.sendmsg([data], rights) :]
    connection.sendall(data)


def taken(data: bytearray) -> dict[str, object] | None:
    """Take the first whole value out of the received bytes; None if there is none yet."""
    if len(data) < _LENGTH.size:
        return None
    size = _LENGTH.unpack_from(data)[0]
    if size > MAX_BYTES:
        raise ValueError(f"a message of {size} bytes")
    if len(data) < _LENGTH.size + size:
        return None
    value = json.loads(data[_LENGTH.size : _LENGTH.size + size])
    del data[: _LENGTH.size + size]
    if not isinstance(value, dict):
        raise ValueError("a message that is no object")
    return value


def receive(connection: socket.socket, data: bytearray) -> dict[str, object]:
    """The next value. Raises Gone when the other side has ended."""
    while (value := taken(data)) is None:
        try:
            more = connection.recv(65536)
        except ConnectionError:
            more = b""
        if not more:
            raise EngineClosed
        data += more
    return value


def connected(path: str) -> socket.socket | None:
    """A connection to the engine that listens there; None when none does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionError):
        connection.close()
        return None
    return connection


def environment_of_engine(given: dict[str, str]) -> dict[str, str]:
    """An environment without what belongs to the task or stream that happens to start the engine."""
    return {name: value for name, value in given.items() if not name.startswith(_OF_ONE_TASK) and name != "PYTHONPATH"}


def started(path: str, words: list[str]) -> socket.socket:
    """A connection to the engine, which is started unless another program starts it. Raises Gone if it does not start."""
    import fcntl

    said = False
    with open(f"{path}.lock", "a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    _say("another run is starting the warm engine; waiting for it")
                said = True
                time.sleep(_LOOK_SECONDS)
        if (connection := connected(path)) is not None:
            return connection
        return _start(path, words)


def _start(path: str, words: list[str]) -> socket.socket:
    import subprocess

    log = f"{path}.log"
    if os.path.exists(log) and os.path.getsize(log) > _MAX_OF_A_LOG:
        os.replace(log, f"{log}.old")
    _say(f"starting the warm engine; its log is {log}")
    number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    before = os.fstat(number).st_size
    engine = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=number,
        stderr=number,
        cwd=os.path.dirname(path),
        env=environment_of_engine(dict(os.environ)),
        start_new_session=True,
    )
    os.close(number)
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        if (connection := connected(path)) is not None:
            return connection
        if engine.poll() is not None:
            raise EngineClosed(
                f"the engine did not start: it ended with code {engine.returncode}. {_end_of(log, before)}"
            )
        time.sleep(_LOOK_SECONDS)
    os.killpg(engine.pid, signal.SIGKILL)
    raise EngineClosed(f"the engine did not start within {PATIENCE_SECONDS:.0f} seconds. {_end_of(log, before)}")


def _end_of(log: str, start: int) -> str:
    with open(log, errors="replace") as file:
        file.seek(start)
        lines = file.read().splitlines()
    return "\n".join([f"The end of its log {log}:", *lines[-_LAST_LINES:]])


def run(path: str, words: list[str], conf: dict[str, str], command: list[str]) -> int:
    """Have the engine run a script, and give the exit code of the run."""
    for _ in range(_MAX_ENGINES):
        connection = connected(path) or started(path, words)
        if not command:
            return 0
        with connection:
            try:
                return handed_over(connection, command, conf)
            except EngineRefused:
                # It was about to end. The next one has another socket of the same name.
                continue
    raise EngineClosed("the engine took no run")


class EngineRefused(Exception):
    """Raised when the engine takes no more runs: nothing of this one has begun."""


def handed_over(connection: socket.socket, command: list[str], conf: dict[str, str]) -> int:
    """Have a process of the engine run a command in place of this one. Returns its exit code. Raises EngineRefused, Gone."""
    data = bytearray()
    asked = {"do": "run", "command": command, "conf": conf}
    request = {**asked, "environment": dict(os.environ), "cwd": os.getcwd(), "umask": _umask()}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: _pass_on(connection, number))
    begun = False
    try:
        send(connection, request, (0, 1, 2))
        while True:
            said = receive(connection, data)
            begun = begun or "begun" in said
            if "say" in said:
                _say(str(said["say"]))
            if "leaving" in said:
                raise EngineRefused
            if "exit" in said:
                return int(str(said["exit"]))
    except (EngineClosed, ConnectionError):
        if not begun:
            raise EngineRefused from None
        raise EngineClosed(
            "the warm engine has ended, and this run with it. What was not committed does not count; run it again"
        ) from None


def _pass_on(connection: socket.socket, number: int) -> None:
    try:
        send(connection, {"signal": number})
    except OSError:
        pass


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(words: list[str]) -> int:
    """Run the program. Returns its exit code."""
    path, conf, at = words[0], {}, 1
    while words[at] == "--conf":
        name, _, value = words[at + 1].partition("=")
        conf[name] = value
        at += 2
    end = words.index("--")
    try:
        return run(path, words[at + 1 : end], conf, words[end + 1 :])
    except EngineClosed as problem:
        _say(f"{ENDED} {problem}")
        return EXIT_UNREACHABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
