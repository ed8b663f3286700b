"""A DAG run that was deleted and triggered again under its id: the ledger still knows what its name was used for.

The tasks of the DAGs are called here one after the other, on a stream in memory.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.airflow import audit, connections, steps
from tidemark.airflow.backfill_replay import backfill_dag, replay_dag
from tidemark.airflow.erase import erase_dag
from tidemark.audit.levels import Level
from tidemark.audit.report import AuditReport
from tidemark.errors import OffsetsOutOfRange
from tidemark.ledger.erasures import erased
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import auditing, erasing
from tidemark.runs.requests.record_files import FOLDER
from tidemark.runs.windows import lanes
from tidemark.streams.model import Stream
from tidemark.views.summary import ANSWER

REASON = "bug 17"


class DagRun:
    """One run of a DAG, with XComs of its own. A run that was deleted and triggered again is a new one under the same id."""

    def __init__(self, dag: DAG, run_id: str, **params: Any) -> None:
        self.dag, self.run_id = dag, run_id
        self.xcoms: dict[tuple[str, str], Any] = {}
        values = {name: dag.params.get_param(name).value for name in dag.params}
        usual = {name: value for name, value in values.items() if isinstance(value, (str, int, bool, list))}
        self.asked = {"reason": REASON, "dry_run": False, **params}
        self.params = {**usual, **self.asked}

    def call(self, task_id: str, try_number: int = 1) -> Any:
        def push(key: str, value: Any) -> None:
            self.xcoms[task_id, key] = value

        def pull(task_ids: str, key: str = "return_value", **_: Any) -> Any:
            return self.xcoms.get((task_ids, key))

        found = self.dag.get_task(task_id).python_callable(
            dag=self.dag,
            run_id=self.run_id,
            params=self.params,
            ti=SimpleNamespace(xcom_push=push, xcom_pull=pull, try_number=try_number),
            dag_run=SimpleNamespace(conf=self.asked, triggering_user_name="ann", run_type="manual"),
            outlet_events=defaultdict(SimpleNamespace),
        )
        push("return_value", found)
        return found


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """The ingest has read [0, 60)."""
    stream = StreamInMemory(tmp_path, text=TEXT.replace("scheme:", "limits: {max_records: 10}\nscheme:", 1))
    stream.ends((0, 60))
    while stream.ingest("run 1"):
        pass
    monkeypatch.setattr(connections, "open_here", lambda _: stream.opened)
    monkeypatch.setattr(erasing, "remaining", lambda *_: [])
    monkeypatch.setattr(steps, "_event_time", lambda _: {"watermark": None})
    return stream


def gone(made: StreamInMemory) -> RangeSet:
    return erased(made.opened.ledger.committed())


@pytest.mark.covers("N45")
def test_an_erasure_of_other_messages_under_a_deleted_runs_id_is_refused(made: StreamInMemory) -> None:
    dag = erase_dag(made.folder / "orders.yaml", made.opened.stream)
    first = DagRun(dag, "request", records="orders/0@5")
    first.call("check")
    first.call("erase")
    assert first.call("publish")["erased"] == 1
    second = DagRun(dag, "request", records="orders/0@7")
    with pytest.raises(AirflowFailException, match=r"AnotherRequest: .*records was orders/0@5, and is orders/0@7"):
        second.call("check")
    assert second.xcoms["check", ANSWER].startswith("AnotherRequest: run orders__erase/request of orders")
    # Also where `check` was not asked again, or before there was such a run.
    second.xcoms["check", "found"] = {**first.xcoms["check", "found"], "asked": {"records": "orders/0@7"}}
    with pytest.raises(AirflowFailException, match="AnotherRequest"):
        second.call("erase")
    assert gone(made) == offsets((0, 5, 6))
    # The same request again has nothing left to do.
    third = DagRun(dag, "request", records="orders/0@5")
    done = r"the erasure of run orders__erase/request is done, so this run erases nothing.*under another name"
    with pytest.raises(AirflowSkipException, match=done):
        third.call("check")
    assert re.match(done, third.xcoms["check", "found"]["done_before"])
    # An erasure under a new name finds the same, and is told so in other words.
    with pytest.raises(AirflowSkipException, match="nothing was found that is not erased already"):
        DagRun(dag, "another", records="orders/0@5").call("check")


@pytest.mark.covers("E64")
def test_a_longer_list_clears_what_was_erased_before_too(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that slept may have written it once more, and have been killed. A dry run clears nothing."""
    dag, cleared = erase_dag(made.folder / "orders.yaml", made.opened.stream), list[RangeSet]()
    first = DagRun(dag, "request", records="orders/0@5")
    first.call("check")
    first.call("erase")
    monkeypatch.setattr(made.opened.sweeper, "erase", lambda _record, erased, _places: cleared.append(erased))
    for dry_run in (True, False):
        longer = DagRun(dag, f"longer {dry_run}", records="orders/0@5\norders/0@7", dry_run=dry_run)
        with suppress(AirflowSkipException):
            longer.call("check")
        assert longer.xcoms["check", "found"]["offsets"] == 1
        assert cleared == ([] if dry_run else [offsets((0, 5, 6))])


@pytest.mark.covers("N45")
def test_an_erasure_that_has_begun_goes_on_with_what_it_has_claimed(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = erase_dag(made.folder / "orders.yaml", made.opened.stream)
    first = DagRun(dag, "request", records="orders/0@5")
    first.call("check")
    with monkeypatch.context() as dying:
        dying.setattr(erasing, "erase", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            first.call("erase")
    again = DagRun(dag, "request", records="orders/0@5")
    again.call("check")
    assert again.xcoms["check", "found"]["ranges"] == ["orders/0@5-6"]
    again.call("erase")
    assert again.call("publish")["erased"] == 1
    assert gone(made) == offsets((0, 5, 6))


@pytest.mark.covers("N97")
def test_an_erasure_that_waited_erases_what_its_plan_has_shown_or_nothing(made: StreamInMemory) -> None:
    """A second person may take a day. The stream file of that day is another one."""
    dag = erase_dag(made.folder / "orders.yaml", made.opened.stream)
    shown = DagRun(dag, "shown", records="orders/0@5", dry_run=True)
    with pytest.raises(AirflowSkipException, match="dry run"):
        shown.call("check")
    run = DagRun(dag, "request", records="orders/0@5", plan=shown.xcoms["check", "found"]["plan"])
    run.call("check")
    before = made.opened
    made.opened = replace(before, file=replace(before.file, digest="f" * 64))
    with pytest.raises(AirflowFailException, match=r"StaleLedger: the plan .* of orders is stale"):
        run.call("erase")
    assert gone(made) == RangeSet()
    made.opened = before
    run.call("erase")
    assert gone(made) == offsets((0, 5, 6))


@pytest.mark.covers("N45")
def test_a_cleared_run_goes_on_when_the_file_of_its_records_is_gone(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, FOLDER, str(made.folder))
    file = made.folder / "named.csv"
    file.write_text("topic,partition,offset\norders,0,5\n")
    dag = erase_dag(made.folder / "orders.yaml", made.opened.stream)
    first = DagRun(dag, "request", records_file="named.csv")
    first.call("check")
    with monkeypatch.context() as dying:
        dying.setattr(erasing, "erase", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            first.call("erase")
    file.unlink()
    again = DagRun(dag, "request", records_file="named.csv")
    again.call("check")
    again.call("erase")
    assert again.call("publish")["erased"] == 1
    assert gone(made) == offsets((0, 5, 6))


@pytest.mark.covers("N45")
def test_a_replay_of_other_messages_under_a_deleted_runs_id_is_refused(made: StreamInMemory) -> None:
    dag = replay_dag(made.folder / "orders.yaml", made.opened.stream)
    first = DagRun(dag, "fix", records="orders/0@10")
    assert first.call("check") == "plan"
    lane = first.call("plan")[0][3]
    made.process(lane, "orders__replay/fix")
    lanes.finish(made.opened, lane)
    second = DagRun(dag, "fix", records="orders/0@20")
    with pytest.raises(AirflowFailException, match=r"AnotherRequest: .*records was orders/0@10, and is orders/0@20"):
        second.call("check")
    second.xcoms["check", "found"] = {**first.xcoms["check", "found"], "asked": {"records": "orders/0@20"}}
    with pytest.raises(AirflowFailException, match="AnotherRequest"):
        second.call("plan")
    replayed = [one for one in made.opened.ledger.committed() if one.record.kind == LaneKind.REPLAY]
    assert [one.covers for one in replayed] == [offsets((0, 10, 11))]


@pytest.mark.covers("N45")
@pytest.mark.parametrize("built", [replay_dag, backfill_dag], ids=["replay", "backfill"])
def test_the_same_request_under_a_deleted_runs_id_is_told_that_it_reads_nothing(
    built: Callable[[Path, Stream], DAG], made: StreamInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    asked: dict[str, Any] = {"ranges": "orders/0@10-11"}
    if built is backfill_dag:
        asked["mode"] = "reprocess"
    dag = built(made.folder / "orders.yaml", made.opened.stream)
    first = DagRun(dag, "fix", **asked)
    assert first.call("check") == "plan"
    assert first.xcoms["check", "found"]["done_before"] == ""
    lane, run = first.call("plan")[0][3], steps.run_name({"dag": dag, "run_id": "fix"})
    made.process(lane, run)
    lanes.finish(made.opened, lane)
    again = DagRun(dag, "fix", **asked)
    caplog.clear()
    again.call("check")
    said = again.xcoms["check", "found"]["done_before"]
    assert re.match(r"the \w+ of run .*/fix is done, so this run reads nothing; .* under another name", said)
    assert said in caplog.messages
    assert "0 offsets to read" in caplog.messages
    caplog.clear()
    again.call("plan")
    assert said in caplog.messages
    assert len([one for one in made.opened.ledger.committed() if one.record.lane == lane]) == 1


@pytest.mark.covers("N45", "N33")
def test_a_run_of_several_lanes_that_is_cleared_as_a_whole_goes_on_in_them(made: StreamInMemory) -> None:
    """Kafka has deleted what the first lane had not begun, so that this lane is closed. The other two are open."""
    dag, run = replay_dag(made.folder / "orders.yaml", made.opened.stream), "orders__replay/r"
    asked: dict[str, Any] = {"ranges": "orders/0@0-60", "lanes": 3}
    begun = DagRun(dag, "r", **asked)
    begun.call("check")
    jobs = begun.call("plan")
    one, two, three = (job[3] for job in jobs)
    lanes.plan_lane(made.opened, two, run)
    made.process(two, run)
    made.ends((10, 60))
    with pytest.raises(OffsetsOutOfRange):
        lanes.plan_lane(made.opened, one, run)
    cleared = DagRun(dag, "r", **asked)
    cleared.call("check")
    assert cleared.xcoms["check", "found"]["ranges"] == ["orders/0@0-60"]
    assert cleared.call("plan") == jobs
    for lane in (two, three):
        while lanes.plan_lane(made.opened, lane, run) is not None:
            made.process(lane, run)
        lanes.finish(made.opened, lane)
    assert set(made.opened.ledger.register()[1].lanes) == {INGEST}  # type: ignore[index]


@pytest.mark.covers("N45", "N26")
def test_the_repair_of_other_findings_is_another_run(made: StreamInMemory) -> None:
    """The audit's run was deleted, and is triggered again under its id, so that its task is in its first try again."""
    dag = audit.audit_dag(made.folder / "orders.yaml", made.opened.stream)
    names = []
    for at, first in ((1, 5), (1, 5), (2, 7)):
        findings = made.opened.ledger.store_selection(offsets((0, first, first + 1)))
        report = AuditReport(
            stream="orders",
            run="orders__audit/audit",
            at=at,
            code_version="v1",
            level=Level.FULL,
            windows=6,
            ledger_problems=(),
            coverage=(),
            findings=findings,
        )
        auditing.store_report(made.opened, report)
        run = DagRun(dag, "audit", repair="execute")
        run.asked = {"repair": "execute"}
        assert run.call("plan_repair")["conf"]["selection"] == findings.digest
        names.append(run.xcoms["plan_repair", "replay_run"])
    assert names[0] == names[1] != names[2]
