"""The stack of docker-compose.yaml, built and started, in both profiles: `./run test compose`.

tests/support/containers.py says what stands in for what people have.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.containers import Engine
from tests.support.waiting import until

STREAM = "cdn_logs"
# As docker/airflow/first_lines.py sends them.
FIRST = 2000
SECOND = 500
_SIZE = 1_500_000_000
_SMALL = 3 << 30


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine()
    try:
        engine.build()
        engine.start()
        yield engine
    finally:
        engine.stop()


@pytest.fixture(params=["sql", "full"])
def stack(engine: Engine, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The servers of a profile, as `docker/prepare` and `up` start them."""
    engine.prepare(request.param)
    # What a run that was cut off has left has other passwords.
    engine.compose("down", "--volumes", "--timeout", "20", check=False)
    try:
        engine.up()
        yield engine
    finally:
        engine.compose("down", "--volumes", "--timeout", "20", check=False)


def accounted(engine: Engine, messages: int) -> None:
    """Check that an audit by the command line in the container accounts for each message."""
    says = engine.execute("airflow-scheduler", "tidemark", "audit", STREAM, "--level", "recompute", check=False)
    counts = {name: int(number) for name, number in re.findall(r"(\w[\w ]*?) (\d+)", " ".join(says.split()))}
    assert "missing 0, different 0, extra 0, twice 0" in " ".join(says.split()), says
    assert counts["expected"] == messages, says


def send_more(engine: Engine) -> None:
    words = ["python", "-m", "demo.cdn_lines", "--bootstrap-servers", "kafka:9092", "--count", str(SECOND)]
    engine.compose("exec", "-T", "--workdir", "/opt/tidemark", "airflow-scheduler", *words)


def test_the_image_is_small_and_has_no_program_that_checks(engine: Engine) -> None:
    assert int(engine.docker("image", "inspect", "--format", "{{.Size}}", "tidemark-airflow:local")) < _SIZE
    look = "import importlib.util as u; print([n for n in ('pytest', 'hypothesis', 'mypy', 'playwright') if u.find_spec(n)])"
    words = ["--rm", "--network", "none", "--entrypoint", "python", "tidemark-airflow:local", "-c", look]
    assert engine.docker("run", *words).strip() == "[]"


@pytest.mark.covers("N77")
def test_the_stack_ingests_replays_audits_and_survives(stack: Engine) -> None:
    """The whole way of somebody who tries it, with a kill in the middle of a run and a `down`."""
    # The first run that anybody sees; the schedule may have begun another one before it, which has read all then.
    stack.run_dag(f"{STREAM}__ingest")
    accounted(stack, FIRST)
    used = memory(stack)
    print(f"memory: {used}")
    if "zookeeper" not in used:
        assert sum(used.values()) < _SMALL

    # The warm engine has taken the job, and the command finds it.
    engines = json.loads(stack.execute("airflow-scheduler", "tidemark", "engine", "status", "--json"))["engines"]
    assert [one["connection"] for one in engines] == ["spark_default"]
    assert engines[0]["done"] >= 2, "the command has an engine of its own"

    ranges = {"ranges": "cdn-logs/3@100-120", "reason": "test", "dry_run": False}
    stack.run_dag(f"{STREAM}__replay", ranges)
    stack.run_dag(f"{STREAM}__audit", {"level": "recompute"})

    # The page reads the files itself.
    answer = answered(stack, f"/tidemark/api/streams/{STREAM}/messages/cdn-logs/3/100?whole=true")
    assert "gone" not in str(answer), answer

    nothing_is_started_anew(stack)
    secrets_are_shown_nowhere(stack)
    files_of_records_are_readable(stack)
    an_edit_needs_no_build(stack)
    if "spark-master" in stack.containers():
        # Spark's REST submission would be there.
        assert "closed" in stack.execute(
            "spark-worker", "bash", "-c", "(: </dev/tcp/spark-master/6066) 2>/dev/null || echo closed"
        )

    killed_in_the_middle(stack)
    accounted(stack, FIRST + SECOND)

    stack.compose("down")
    stack.up()
    accounted(stack, FIRST + SECOND)


def answered(engine: Engine, path: str) -> Any:
    """The page's answer. On a busy machine its first question takes longer than it waits: then it says so, and asks on."""

    def looked() -> Any:
        status, answer = engine.ask("GET", path)
        assert status in (200, 504), answer
        return answer if status == 200 else None

    return until(looked, f"no answer to {path}")


def memory(engine: Engine) -> dict[str, int]:
    """What each container uses, in bytes."""
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    lines = engine.docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}").splitlines()
    found = [re.match(r"tidemark-(\S+?)-\d+ ([\d.]+)(KiB|MiB|GiB)", line) for line in lines]
    return {one[1]: int(float(one[2]) * units[one[3]]) for one in found if one}


def nothing_is_started_anew(engine: Engine) -> None:
    before = engine.containers()
    engine.up()
    assert engine.containers() == before


def secrets_are_shown_nowhere(engine: Engine) -> None:
    ids = [container for container, _ in engine.containers().values()]
    shown = engine.docker("inspect", *ids)
    values = {name: value for name, value in engine.secrets().items() if not name.startswith(("COMPOSE", "TIDEMARK_S"))}
    assert len(values) == 6
    assert [name for name, value in values.items() if value in shown] == []


def files_of_records_are_readable(engine: Engine) -> None:
    engine.execute("airflow-scheduler", "tee", "/selections/late.csv", given="cdn-logs,3,100\n")
    for service in ("airflow-scheduler", "airflow-api"):
        assert engine.execute(service, "cat", "/selections/late.csv") == "cdn-logs,3,100\n"


def an_edit_needs_no_build(engine: Engine) -> None:
    folder = engine.source / engine.secrets()["TIDEMARK_STREAM_FILES"]
    file = folder / f"{STREAM}.yaml"
    before = file.read_text()
    file.write_text(re.sub(r"^description: .*$", "description: edited here", before, flags=re.MULTILINE))
    try:
        assert "edited here" in engine.execute("airflow-dag-processor", "cat", f"/streams/{STREAM}.yaml")
    finally:
        file.write_text(before)


def killed_in_the_middle(engine: Engine) -> None:
    """Kill the scheduler, and with it the tasks and the engine, while a window is processed; Airflow goes on by itself."""
    send_more(engine)
    run = engine.trigger(f"{STREAM}__ingest")

    def is_processing() -> bool:
        _, answer = engine.ask("GET", f"/api/v2/dags/{STREAM}__ingest/dagRuns/{run}/taskInstances")
        return any(one["task_id"] == "process" and one["state"] == "running" for one in answer["task_instances"])

    until(is_processing, "the task process does not run", 120)
    before = engine.state("airflow-scheduler")
    os.kill(before["Pid"], signal.SIGKILL)
    until(lambda: engine.state("airflow-scheduler")["StartedAt"] != before["StartedAt"], "it is not started again", 60)
    engine.finished(f"{STREAM}__ingest", run)
