"""A process that has loaded the command and forks for each call: to load it takes longer than most commands work.

What runs in the fork is the program itself, with arguments, environment, folder and files of its own, to the end of its
interpreter. `command_line.tidemark` asks it; who needs a process of its own starts `python -m tidemark`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import tidemark

SECONDS = 900
_started: list[subprocess.Popen[bytes]] = []


def called(words: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `python -m tidemark` with these words, in this environment and folder."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, ours:
        request.write(json.dumps([[*words], dict(environment), str(Path.cwd())]).encode())
        request.seek(0)
        with theirs:
            socket.send_fds(_server(), [b"!"], [one.fileno() for one in (request, out, err, theirs)])
        ours.settimeout(SECONDS)
        code = int(ours.recv(100) or b"-9")
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([*words], code, *(one.read().decode() for one in (out, err)))


@cache
def _server() -> socket.socket:
    """Ends with this process, which alone has the other end of its standard input."""
    ours, theirs = socket.socketpair()
    with theirs:
        _started.append(subprocess.Popen([sys.executable, "-m", __name__], stdin=theirs, stdout=subprocess.DEVNULL))
    return ours


def _next_call() -> tuple[int, ...]:
    """Return in the fork of a call, with its files; end when nobody can call any more."""
    asking = socket.socket(fileno=os.dup(0))
    while True:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        said, files, *_ = socket.recv_fds(asking, 1, 4)
        if not said:
            sys.exit()
        *_, answering = files
        if os.fork() == 0:
            asking.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child = os.fork()
            if child == 0:
                os.close(answering)
                return tuple(files[:-1])
            _, status = os.waitpid(child, 0)
            os.write(answering, b"%d" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        for one in files:
            os.close(one)


def _become(request: int, out: int, err: int) -> None:
    with os.fdopen(request) as file:
        words, environment, folder = json.load(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, number in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(given, number)
        os.close(given)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0] = folder
    sys.argv = [str(Path(tidemark.__file__).with_name("__main__.py")), *words]


def _run(main: Callable[[], None]) -> NoReturn:
    """Call the program, and end as the interpreter does, but without taking apart what the server has loaded."""
    code = None
    try:
        main()
    except SystemExit as end:
        code = end.code
    if not isinstance(code, int | None):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    # What commands load when they need it.
    import happybase  # noqa: F401
    import kafka  # noqa: F401
    import kazoo.client  # noqa: F401

    from tidemark.cli import commands
    from tidemark.cli.app import main

    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        import_module(module.name)

    # As `python -m tidemark` calls itself.
    __package__ = "tidemark"
    gc.freeze()
    _become(*_next_call())
    _run(main)
