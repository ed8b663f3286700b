"""Airflow's REST API, as its administrator."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

from services import environment
from services.site import Site

# A run through Airflow and Spark takes about 30 s. This allows for slow machines and three tries.
PATIENCE_SECONDS = 600
# How often a wait looks whether something moves.
_LOOK_SECONDS = 5.0
# Airflow on SQLite answers 500 when two of its processes write at the same moment. Such a call is repeated.
TRIES_OF_A_CALL = 6

OWN = "own"


class Airflow:
    """One Airflow. Calls carry the administrator's token unless told otherwise."""

    def __init__(self, site: Site) -> None:
        self.url = f"http://{site.address('airflow')}"
        self.password = environment.password(site)
        self.token: str | None = self.token_of(environment.ADMIN, self.password)

    def token_of(self, user: str, password: str) -> str:
        """The token that a user gets by logging in."""
        status, answer = self.call("POST", "/auth/token", {"username": user, "password": password}, None)
        if status != 201:
            raise RuntimeError(f"Airflow did not log {user} in: {status} {answer}")
        return str(answer["access_token"])

    def call(self, method: str, path: str, body: Any = None, token: str | None = OWN) -> tuple[int, Any]:
        """Status and answer, whatever the status is. `token`: `own`, another one, or None for a stranger.

        A call that Airflow answers with 500, or not in time, is repeated. So make only calls that may happen twice.
        """
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {self.token if token == OWN else token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        for waits in range(TRIES_OF_A_CALL):
            time.sleep(waits)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    text, status = answer.read().decode(), answer.status
            except urllib.error.HTTPError as refused:
                text, status = refused.read().decode(), refused.code
            except TimeoutError:
                # SQLite again: a writer may keep others waiting for a minute.
                if waits == TRIES_OF_A_CALL - 1:
                    raise
                continue
            if status != 500:
                break
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def wait_for_dag(self, dag: str, beside: str | None = None) -> None:
        """Wait until the DAG processor has found a DAG. `beside`: one of the same file, which is parsed at once then."""

        def found(name: str) -> bool:
            return bool(self.call("GET", f"/api/v2/dags/{name}")[0] == 200)

        if beside is not None and not found(dag):
            self.parse(beside)
        _wait(lambda: found(dag), f"Airflow has not found the DAG {dag}")

    def parse(self, dag: str) -> None:
        """Let the DAG processor parse the file of a DAG next."""
        _, known = self.call("GET", f"/api/v2/dags/{dag}")
        self.call("PUT", f"/api/v2/parseDagFile/{known['file_token']}")

    def unpause(self, stream: str) -> None:
        """Let the DAGs of a stream run, by the clock too."""
        self.call("PATCH", f"/api/v2/dags?dag_id_pattern={stream}__%25", {"is_paused": False})

    def trigger(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        """Trigger a run and give its id."""
        run_id = f"manual__{uuid.uuid4().hex[:12]}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}}
        status, answer = self.call("POST", f"/api/v2/dags/{dag}/dagRuns", body)
        # 409: an earlier try of this call has made the run.
        if status not in (200, 409):
            raise RuntimeError(f"Airflow did not take the run of {dag}: {status} {answer}")
        return run_id

    def state(self, dag: str, run: str) -> str:
        _, found = self.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")
        return str(found["state"])

    def wait(self, dag: str, run: str, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Wait for a run's end and give its state, `success` or `failed`."""
        ended: list[str] = []

        def look() -> bool:
            meanwhile()
            ended.append(self.state(dag, run))
            return ended[-1] in ("success", "failed")

        _wait(look, f"{dag} {run} has not ended", lambda: self.steps(dag, run))
        return ended[-1]

    def steps(self, dag: str, run: str) -> str:
        """How far a run is: its tasks that are at work or have ended, and what its job has said of itself last."""
        _, found = self.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
        tasks = [f"{one['task_id']} {one['state']}" for one in found["task_instances"] if one["state"]]
        stream = dag.rpartition("__")[0]
        status, said = self.call("GET", f"/tidemark/api/streams/{stream}/progress?run={dag}/{run}")
        job = said.get("job") if status == 200 else None
        if job:
            tasks.append(f"{job['step']}: {job['done']} of {job['offsets']} offsets")
        return ", ".join(tasks) or "no task has begun"

    def run(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        """Trigger a run, wait for its end and give its state."""
        return self.wait(dag, self.trigger(dag, conf))

    def result(self, dag: str, run: str, task: str, instance: int = -1) -> Any:
        """The return value of a task, or of an instance of a mapped one."""
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value?map_index={instance}"
        _, found = self.call("GET", path)
        value = found["value"]
        return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value

    def last_lines(self, dag: str, run: str, count: int = 15) -> str:
        """The end of the log of each failed task, for a person to read."""
        _, tasks = self.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
        shown = []
        for task in tasks["task_instances"]:
            if task["state"] == "failed":
                path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task['task_id']}/logs/{task['try_number']}"
                # A task for each lane is told apart by its index.
                _, log = self.call("GET", f"{path}?map_index={task['map_index']}")
                lines = [line for entry in log["content"] for line in _lines(entry)]
                shown.append("\n".join([f"{task['task_id']}:", *lines[-count:]]))
        return "\n".join(shown)


def _lines(entry: dict[str, Any]) -> list[str]:
    """The lines of an entry in a task's log: its event, and its errors."""
    event = str(entry.get("event", ""))
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or []]
    return errors if event.startswith("::") else [event, *errors]


class StoodStill(TimeoutError):
    """Raised when nothing has moved for too long. Says what was waited for, and how far it is."""


def _wait(happened: Callable[[], bool], late: str, progress: Callable[[], str] = lambda: "") -> None:
    """Wait as long as `progress` changes, and for `PATIENCE_SECONDS` after that."""
    seen, looked = progress(), time.monotonic()
    deadline = looked + PATIENCE_SECONDS
    while not happened():
        now = time.monotonic()
        if now > looked + _LOOK_SECONDS:
            looked, moved = now, progress()
            if moved != seen:
                seen, deadline = moved, now + PATIENCE_SECONDS
        if now > deadline:
            raise StoodStill(f"{late}, and nothing has moved for {PATIENCE_SECONDS} s{f': {seen}' if seen else ''}")
        time.sleep(0.5)
