"""Operators for DAGs of one's own: a wrong request is refused when Airflow parses the DAG."""

from __future__ import annotations

import pytest

from tidemark.airflow.operators import AuditOperator, BackfillOperator, EraseOperator, IngestOperator, ReplayOperator
from tidemark.errors import WrongUse


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
