"""Operators for DAGs of one's own: a wrong request is refused when Airflow parses the DAG."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    DagRunTriggerException,
    ErrorType,
)
from airflow.sdk.execution_time import macros
from airflow.sdk.execution_time.comms import ErrorResponse

from services.site import REPOSITORY
from tidemark.airflow.operators import (
    AuditOperator,
    BackfillOperator,
    EraseOperator,
    IngestOperator,
    ReplayOperator,
    run_for,
)
from tidemark.errors import WrongUse


@pytest.mark.covers("N74")
def test_the_examples_of_the_page_are_dags(tmp_path: Path) -> None:
    """As Airflow parses them. The page has all imports that one needs, and arguments that operators and sensors take."""
    page = (REPOSITORY / "docs" / "own-dags.md").read_text()
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", page, re.DOTALL)):
        (tmp_path / f"example_{number}.py").write_text(text)
    bag = DagBag(dag_folder=str(tmp_path))
    assert bag.import_errors == {}
    proof = bag.dags["proof_of_yesterday"]
    assert set(bag.dags) == {"orders_of_the_day", "orders_when_behind", proof.dag_id}
    # What is asked for is a day, whatever the interval of Airflow's timetable.
    day: Any = {"logical_date": datetime(2026, 11, 28, tzinfo=UTC), "macros": macros}
    complete, audit = proof.get_task("complete"), proof.get_task("audit")
    asked: Any = [complete.since, complete.until, audit.conf["since"], audit.conf["until_time"]]
    assert audit.render_template(asked, day) == ["2026-11-27T00:00:00+00:00", "2026-11-28T00:00:00+00:00"] * 2


@pytest.mark.covers("N74")
def test_a_request_is_checked_and_means_what_it_says() -> None:
    replay = ReplayOperator(task_id="again", stream="orders", window="ingest/3", reason="fixed")
    assert replay.trigger_dag_id == "orders__replay"
    assert replay.conf == {"window": "ingest/3", "reason": "fixed", "dry_run": False}
    assert ReplayOperator(task_id="dry", stream="orders", window="ingest", reason="try", dry_run=True).conf["dry_run"]
    assert IngestOperator(task_id="ingest", stream="orders").conf == {}
    assert AuditOperator(task_id="audit", stream="orders", level="ledger").conf == {"level": "ledger"}
    # What is a template is known when it runs.
    BackfillOperator(task_id="fill", stream="orders", since="{{ data_interval_start }}", reason="late")


@pytest.mark.covers("N74")
@pytest.mark.parametrize(
    ("operator", "request_", "said"),
    [
        (ReplayOperator, {"reason": "fixed"}, "fill in exactly one of"),
        (ReplayOperator, {"window": "ingest"}, "reason"),
        (BackfillOperator, {"ranges": "orders/0@5-1", "reason": "x y z", "holes": True}, "fill in exactly one of"),
        (EraseOperator, {"reason": "asked for"}, "fill in exactly one of"),
        (AuditOperator, {"level": "everything"}, "level"),
    ],
)
def test_a_wrong_request_is_refused(operator: type, request_: dict[str, object], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        operator(task_id="task", stream="orders", **request_)


@pytest.mark.covers("N74")
@pytest.mark.parametrize("operator", [BackfillOperator, ReplayOperator, AuditOperator, EraseOperator])
def test_a_request_is_mapped_over_what_a_task_gives(operator: type) -> None:
    """Airflow maps by the names of arguments that a class declares. What is mapped is checked as any request is."""
    with DAG("mine", schedule=None):
        found = EmptyOperator(task_id="find").output
        more: dict[str, Any] = {} if operator is AuditOperator else {"reason": "request 4711"}
        field = "records" if operator is EraseOperator else "ranges"
        mapped: Any = operator.partial(task_id="each", stream="orders", **more).expand(**{field: found})  # type: ignore[attr-defined]
        one = operator(task_id="one", stream="orders", **more, **{field: found})
        with pytest.raises(TypeError, match="unexpected keyword argument 'rangs'"):
            operator.partial(task_id="wrong", stream="orders", rangs="")  # type: ignore[attr-defined]
    assert mapped.upstream_task_ids == one.upstream_task_ids == {"find"}
    said = "orders/0@5" if operator is EraseOperator else "orders/0@5-9"
    wanted = {field: said, **more, **({} if operator is AuditOperator else {"dry_run": False})}
    assert mapped.unmap({field: said}).conf == wanted
    if operator is not AuditOperator:
        with pytest.raises(WrongUse, match="fill in exactly one of"):
            mapped.unmap({field: ""})


@pytest.mark.covers("N74")
def test_each_request_has_a_run_of_its_own() -> None:
    """Airflow keeps the first request of a run, whatever is asked for under its name: an erasure would be that of another."""
    name = "mine__erase__manual__2026-11-27T20:00:00+00:00"
    asked: dict[str, Any] = {"records": "orders/0@5", "reason": "request 4711", "dry_run": False}
    first = run_for(name, -1, asked)
    assert first == run_for(name, -1, dict(reversed(asked.items())))
    others = [
        run_for(name, 0, asked),
        run_for(name, 1, asked),
        run_for(name, -1, {**asked, "records": "orders/0@6"}),
        run_for(f"{name}x", -1, asked),
        run_for("x" * 300, -1, asked),
        run_for("x" * 301, -1, asked),
    ]
    assert len({first, *others}) == 7
    assert all(len(one) <= 250 for one in others)
    operator = EraseOperator(task_id="erase", stream="orders", **asked)
    operator.trigger_run_id = name
    instance: Any = SimpleNamespace(map_index=3, get_dag=lambda dag: SimpleNamespace(is_paused=False))
    with pytest.raises(DagRunTriggerException) as triggered:
        operator.execute({"ti": instance})
    assert triggered.value.dag_run_id == run_for(name, 3, asked)


@pytest.mark.covers("N74")
def test_a_stream_without_dags_is_named() -> None:
    """As Airflow says it of a DAG that it does not have, and of an API that is in trouble."""

    class Instance:
        map_index = -1

        def __init__(self, status: int) -> None:
            detail = {"status_code": status, "message": "Client error", "detail": {"reason": "not_found"}}
            self.problem = AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))

        def get_dag(self, dag_id: str) -> None:
            assert dag_id == "orders__audit"
            raise self.problem

    operator = AuditOperator(task_id="audit", stream="orders")
    with pytest.raises(
        AirflowException, match="no DAG orders__audit: it has read no stream file that is valid"
    ) as failed:
        operator.execute({"ti": Instance(404)})  # type: ignore[typeddict-item]
    assert not isinstance(failed.value, AirflowFailException)
    with pytest.raises(AirflowRuntimeError):
        operator.execute({"ti": Instance(500)})  # type: ignore[typeddict-item]
