"""docker-compose.yaml, started by an engine of the tests' own: Debian's, in a network namespace, with all data in one folder.

What stands in for what people have: base images of Debian's packages, and builds that use the machine's network. The scripts
are in tests/compose.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from tests.support.covering import REPOSITORY
from tests.support.waiting import until

SCRIPTS = REPOSITORY / "tests" / "compose"
STATE = REPOSITORY / ".local" / "compose"
# Where programs are in an image that is imported from files.
_PATH = "ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
_BASES: dict[str, list[str]] = {
    "debian": ["debian:bookworm-slim", 'CMD ["bash"]'],
    "python": ["python:3.13-slim-bookworm", 'CMD ["python3"]', _PATH],
    "postgres": [
        "stand-in-postgres:files",
        'CMD ["postgres"]',
        'ENTRYPOINT ["docker-entrypoint.sh"]',
        f"{_PATH}:/usr/lib/postgresql/17/bin",
        "ENV PGDATA=/var/lib/postgresql/data",
        "VOLUME /var/lib/postgresql/data",
    ],
}


class Engine:
    """An engine with the images of this repository's compose file, and a copy of the repository with a .env of its own."""

    def __init__(self) -> None:
        self.folder = STATE
        self.source = STATE / "source"
        self._environment = os.environ | {
            "DOCKER_HOST": f"unix://{STATE}/engine/docker.sock",
            "DOCKER_CONFIG": f"{STATE}/config",
            "COMPOSE_FILE": f"docker-compose.yaml:{SCRIPTS}/build-network.yaml",
        }
        self._inside = ["nsenter", f"--net=/run/netns/tm-{STATE.name}"]

    def build(self) -> None:
        """Everything until images are there, from what is there of an earlier time."""
        STATE.mkdir(parents=True, exist_ok=True)
        self._script("install.sh", str(STATE))
        self._script("bases.sh", str(STATE / "bases"))
        self._copy_repository()
        self._script("engine.sh", "build", str(STATE))
        known = self.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        for name, (tag, *changes) in _BASES.items():
            if tag not in known:
                words = [word for change in changes for word in ("--change", change)]
                self.docker("import", *words, str(STATE / "bases" / f"{name}.tar"), tag)
        file = str(SCRIPTS / "postgres.Dockerfile")
        # A build without BuildKit, for which this old client needs no plugin.
        words = ["--network", "host", "--quiet", "--tag", "postgres:17-bookworm", "--file", file, str(SCRIPTS)]
        self._run(["docker", "build", *words], DOCKER_BUILDKIT="0")
        self.prepare("sql")
        self.compose("--profile", "full", "build")
        self._script("engine.sh", "stop", str(STATE))

    def start(self) -> None:
        self._script("engine.sh", "run", str(STATE))

    def stop(self) -> None:
        self._script("engine.sh", "stop", str(STATE))

    def prepare(self, profile: str) -> None:
        (self.source / ".env").unlink(missing_ok=True)
        self._run([str(self.source / "docker" / "prepare"), profile])

    def secrets(self) -> dict[str, str]:
        lines = (self.source / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def docker(self, *words: str) -> str:
        return self._run(["docker", *words])

    def compose(self, *words: str, check: bool = True, given: str | None = None) -> str:
        return self._run(["docker", "compose", "--progress", "quiet", *words], check=check, given=given)

    def execute(self, service: str, *words: str, check: bool = True, given: str | None = None) -> str:
        return self.compose("exec", "-T", service, *words, check=check, given=given)

    def up(self) -> None:
        """A service that does not start says only in its log why."""
        try:
            self.compose("up", "--build", "--detach", "--wait")
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.compose('logs', '--tail', '40', '--no-color')}") from failed

    def containers(self) -> dict[str, tuple[str, str]]:
        """Of each service that runs: its container, and when that was started."""
        ids = self.compose("ps", "--quiet").split()
        form = '{{index .Config.Labels "com.docker.compose.service"}} {{.Id}} {{.State.StartedAt}}'
        lines = self.docker("inspect", "--format", form, *ids).splitlines()
        return {service: (container, started) for service, container, started in map(str.split, lines)}

    def state(self, service: str) -> dict[str, Any]:
        container, _ = self.containers()[service]
        return dict(json.loads(self.docker("inspect", "--format", "{{json .State}}", container)))

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """What Airflow's API answers at the port that is published, as a status and JSON."""
        password = self.secrets()["TIDEMARK_ADMIN_PASSWORD"]
        command = [*self._inside, sys.executable, str(SCRIPTS / "rest.py"), password, method, path, json.dumps(body)]
        status, answer = json.loads(self._run(command))
        return status, answer

    def trigger(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        run = f"manual__{uuid.uuid4().hex[:12]}"
        body = {"dag_run_id": run, "logical_date": None, "conf": conf or {}}
        # The DAG processor may need some seconds for a file that has just come.
        until(lambda: self._slowly("GET", f"/api/v2/dags/{dag}")[0] == 200, f"Airflow does not know {dag}", 120)
        status, answer = self.ask("POST", f"/api/v2/dags/{dag}/dagRuns", body)
        assert status == 200, answer
        return run

    def finished(self, dag: str, run: str, meanwhile: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The states of the tasks of a run that has succeeded."""
        found: list[str] = []

        def is_over() -> bool:
            meanwhile()
            status, answer = self._slowly("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")
            found[:] = [answer["state"]] if status == 200 else []
            return found[:1] in (["success"], ["failed"])

        until(is_over, f"{dag} {run} is not over", 900)
        _, answer = self.ask("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
        states = {one["task_id"]: one["state"] for one in answer["task_instances"]}
        assert found == ["success"], (states, self.compose("logs", "--tail", "60", "airflow-scheduler"))
        return states

    def run_dag(self, dag: str, conf: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.finished(dag, self.trigger(dag, conf))

    def _slowly(self, method: str, path: str) -> tuple[int, Any]:
        """Each question is a program of its own."""
        time.sleep(2)
        try:
            return self.ask(method, path)
        except AssertionError:
            # The API server may just be starting anew.
            return 0, None

    def _copy_repository(self) -> None:
        """What git has, and has not ignored, as it is now: nothing here writes into the repository."""
        words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(words, cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
        shutil.rmtree(self.source, ignore_errors=True)
        for name in listed.split("\0"):
            if name and (REPOSITORY / name).is_file():
                target = self.source / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(REPOSITORY / name, target)

    def _script(self, name: str, *words: str) -> None:
        self._run([str(SCRIPTS / name), *words])

    def _run(self, words: list[str], check: bool = True, given: str | None = None, **more: str) -> str:
        """What a program writes. Its errors go to a file: a server that it starts keeps them open."""
        where = self.source if self.source.is_dir() else STATE
        with (STATE / "said.txt").open("a+") as said:
            said.seek(0, os.SEEK_END)
            began = said.tell()
            done = subprocess.run(
                words,
                cwd=where,
                env=self._environment | more,
                input=given,
                stdin=None if given is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                check=False,
            )
            said.seek(began)
            assert not check or done.returncode == 0, (
                f"{' '.join(words)}: {done.returncode}\n{said.read()}\n{done.stdout}"
            )
        return done.stdout
