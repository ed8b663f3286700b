"""`python -m services COMMAND`: `./run` calls it once the Python environment is ready."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from services import control, environment, jars, processes
from services.errors import ServiceError
from services.servers import SERVERS
from services.site import Site


def setup(site: Site) -> None:
    jars.fetch(site.jars)


def up(site: Site, *names: str) -> None:
    began = time.monotonic()
    setup(site)
    print(f"Starting the servers in {site.state}")
    with engine_starting(site) if not names else nullcontext():
        control.up(site, _known(names) or tuple(SERVERS))
    print(f"All up after {time.monotonic() - began:.0f} s.")
    if not names:
        print(
            f"Airflow: http://{site.address('airflow')}  user {environment.ADMIN}  password {environment.password(site)}"
        )


def down(site: Site, *names: str) -> None:
    if not names:
        _engine(site, "stop", "--now", "--yes").wait()
    control.down(site, _known(names) or tuple(control.ALL))


def status(site: Site) -> None:
    for name, state, where in control.status(site):
        print(f"  {name:22} {state:12} {where}")


def logs(site: Site, *names: str) -> None:
    if len(names) != 1:
        raise ServiceError(f"logs takes one name of: {', '.join(SERVERS)}")
    (name,) = _known(names)
    log = site.log_file(name)
    if not log.exists():
        raise ServiceError(f"{name} has no log yet ({log})")
    subprocess.run(["less" if sys.stdout.isatty() else "cat", str(log)], check=False)


def env(site: Site) -> None:
    """The environment in which a program finds these servers, for `eval "$(./run env)"`."""
    settings = {**environment.everything(site), **environment.object_store(site), **environment.registry(site)}
    for key, value in settings.items():
        print(f"export {key}={shlex.quote(value)}")


@contextmanager
def engine_starting(site: Site) -> Iterator[None]:
    """Start the warm engine while the servers start. It needs none of them, and any run would start it too."""
    starting = _engine(site, "start")
    yield
    if starting.wait():
        print("  the warm engine did not start; the first run tries again, and says why")
    else:
        print(f"  {'warm engine':22} ready")


def _engine(site: Site, *words: str) -> subprocess.Popen[bytes]:
    marks = {processes.SITE_MARK: str(site.state), processes.SERVER_MARK: "engine"}
    settings = {**os.environ, **environment.everything(site), **marks}
    command = [sys.executable, "-m", "tidemark", "engine", *words]
    return subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in control.ALL:
            raise ServiceError(f"no server is called {name!r}; there are: {', '.join(control.ALL)}")
    return names


COMMANDS = {"setup": setup, "up": up, "down": down, "status": status, "logs": logs, "env": env}


def main(arguments: list[str]) -> int:
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        print(f"usage: python -m services {'|'.join(COMMANDS)} [NAME ...]", file=sys.stderr)
        return 2
    try:
        command(Site.from_environment(), *arguments[1:])
    except ServiceError as problem:
        print(f"{problem}", file=sys.stderr)
        return 5
    except KeyboardInterrupt:
        left = ", ".join(sorted(processes.servers_running(Site.from_environment())))
        print(f"\nInterrupted. Still running: {left or 'nothing'}. `./run down` ends it.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
