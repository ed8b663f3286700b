"""The DAGs as Airflow sees them: they parse, they stay the same, and they say what they should."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import traceback
from copy import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.serialization.serialized_objects import DagSerialization

from services.site import REPOSITORY
from tests.support.overviews import partition, shown_overview
from tests.support.stream_text import MINIMAL
from tidemark.airflow import build_dags
from tidemark.airflow.callbacks import Callback
from tidemark.airflow.metrics import send_positions
from tidemark.airflow.spark_job import SparkJob
from tidemark.runs.requests.forms import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest
from tidemark.views.overview import Status

DAGS = REPOSITORY / "dags"
NAMES = {f"cdn_logs__{kind}" for kind in ("ingest", "backfill", "replay", "audit", "erase")}


def parsed() -> dict[str, DAG]:
    bag = DagBag(dag_folder=str(DAGS))
    assert bag.import_errors == {}
    return dict(bag.dags)


@pytest.fixture(scope="module")
def dags() -> dict[str, DAG]:
    return parsed()


def test_every_stream_file_has_its_dags(dags: dict[str, DAG]) -> None:
    assert set(dags) == NAMES


def test_parsing_twice_gives_the_same(dags: dict[str, DAG]) -> None:
    def serialized(found: dict[str, DAG]) -> str:
        return json.dumps(
            {name: DagSerialization.to_dict(dag) for name, dag in found.items()}, sort_keys=True, default=str
        )

    assert serialized(dags) == serialized(parsed())


def test_the_ingest_runs_one_at_a_time_on_its_schedule(dags: dict[str, DAG]) -> None:
    dag = dags["cdn_logs__ingest"]
    assert dag.catchup is False
    assert dag.max_active_runs == 1
    assert type(dag.timetable).__name__ == "CronTriggerTimetable"
    assert dag.timetable.expression == "0 * * * *"
    assert {one.value for one in dag.allowed_run_types} == {"scheduled", "manual", "operator_triggered"}
    assert list(dag.task_dict) == ["plan", "process", "publish", "announce"]
    process = dag.task_dict["process"]
    assert (process.retries, process.retry_delay) == (3, timedelta(seconds=5))
    assert process.execution_timeout == timedelta(minutes=50)


@pytest.mark.parametrize("name", sorted(NAMES - {"cdn_logs__ingest"}))
def test_the_others_run_on_request(dags: dict[str, DAG], name: str) -> None:
    dag = dags[name]
    assert dag.schedule is None
    assert {one.value for one in dag.allowed_run_types} == {"manual", "operator_triggered"}


FORMS = {
    "replay": {
        "": ["dry_run", "records", "ranges", "reason", "compare", "strict"],
        "What": ["window", "dead_letters", "dead_letters_window", "records_file", "selection", "ignore_stored"],
        "Where": ["sinks"],
        "When": ["since", "until_time", "if_none"],
        "How": ["rate", "lanes", "plan"],
    },
    "backfill": {
        "": ["dry_run", "ranges", "reason", "strict"],
        "What": ["records", "records_file", "everything_before", "holes", "mode"],
        "Where": ["sinks"],
        "When": ["since", "until_time", "if_none"],
        "How": ["rate", "lanes", "plan"],
    },
    "erase": {"": ["dry_run", "records", "key", "records_file", "reason"], "How": ["plan"]},
    "audit": {
        "": ["level", "ranges", "records", "repair", "reason"],
        "What": ["window", "records_file", "selection"],
        "When": ["since", "until_time", "if_none"],
        "How": ["share", "seed"],
    },
}
REQUESTS: dict[str, Any] = {
    "replay": ReplayRequest,
    "backfill": BackfillRequest,
    "erase": EraseRequest,
    "audit": AuditRequest,
}


@pytest.mark.covers("N16")
@pytest.mark.parametrize("kind", sorted(FORMS))
def test_a_form_has_its_fields_in_sections_and_asks_for_a_reason_only(dags: dict[str, DAG], kind: str) -> None:
    """Fields without a section are seen at first. Airflow's form cannot be sent while a field without null is empty."""
    params = dags[f"cdn_logs__{kind}"].params
    assert set(params) == set(REQUESTS[kind].model_fields)
    sections: dict[str, list[str]] = {}
    for name in params:
        # A copy: a Param keeps what it was asked to resolve.
        one = copy(params.get_param(name))
        sections.setdefault(one.schema.get("section", "").partition(":")[0], []).append(name)
        # A message names the field as the form does.
        assert one.schema["title"] == name.replace("_", " ").capitalize()
        # An audit without a repair needs no reason.
        if name == "reason" and kind != "audit":
            assert not one.has_value
            assert one.schema["type"] == "string"
            assert (one.schema["minLength"], one.schema["maxLength"]) == (3, 500)
        elif name in ("rate", "lanes", "seed"):
            assert one.schema["type"] == ["null", "integer"]
            assert (one.resolve(), one.resolve(8)) == (None, 8)
        elif name == "sinks":
            # The form offers the sinks of the stream file, and sends null for none.
            assert one.schema["type"] == ["null", "array"]
            assert one.schema["examples"] == ["hbase", "parquet", "hbase_aggregates", "kafka"]
            assert (one.resolve(), one.resolve(["parquet"])) == (None, ["parquet"])
        elif one.value is None:
            assert one.schema["type"] == ["null", "string"]
            assert one.resolve("") == ""
        else:
            assert one.value in (False, "fail", "full", "none", "oldest", "only_missing") or (
                kind in ("replay", "backfill", "erase") and name == "dry_run"
            )
            assert one.resolve() is one.value
    assert sections == FORMS[kind]


def test_the_fields_of_a_form_are_typed(dags: dict[str, DAG]) -> None:
    replay = dags["cdn_logs__replay"].params
    assert replay["dry_run"] is True
    assert replay.get_param("selection").schema["pattern"] == "^([0-9a-f]{64})?$"
    assert replay.get_param("if_none").schema["enum"] == ["fail", "end"]
    assert replay.get_param("records").schema["format"] == "multiline"
    assert dags["cdn_logs__backfill"].params["dry_run"] is True
    assert dags["cdn_logs__backfill"].params.get_param("mode").schema["enum"] == ["only_missing", "reprocess"]
    audit = dags["cdn_logs__audit"].params
    assert audit.get_param("level").schema["enum"] == ["ledger", "source", "sinks", "full", "recompute"]
    assert audit.get_param("repair").schema["enum"] == ["none", "plan", "execute"]


@pytest.mark.covers("N21")
def test_an_audit_runs_by_itself_as_the_stream_file_says(tmp_path: Path) -> None:
    given = {
        "on_request": "{}",
        "after": "{after_commit: ledger}",
        "clock": "{cron: 30 3 * * *}",
        "both": "{after_commit: source, cron: 30 3 * * *, level: full, hours: 24}",
    }
    for name, audit in given.items():
        text = MINIMAL.replace("stream: orders", f"stream: {name}")
        (tmp_path / f"{name}.yaml").write_text(f"{text}audit: {audit}\nschedule: {{timezone: Europe/Berlin}}\n")
    dags = {dag.dag_id: dag for dag in build_dags(tmp_path)}
    found = {}
    for name in given:
        serialized = DagSerialization.to_dict(dags[f"{name}__audit"])["dag"]
        said = json.dumps(serialized["timetable"])
        kinds = sorted(str(one) for one in serialized["allowed_run_types"])
        # An event for each run that commits: the asset that the other three DAGs update.
        found[name] = (f"tidemark://{name}/results" in said, "30 3 * * *" in said and "Europe/Berlin" in said, kinds)
    asked = ["manual", "operator_triggered"]
    assert found == {
        "on_request": (False, False, asked),
        "after": (True, False, ["asset_triggered", *asked]),
        "clock": (False, True, [*asked, "scheduled"]),
        "both": (True, True, ["asset_triggered", *asked, "scheduled"]),
    }


def test_a_stream_with_an_approval_has_one_task_more(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(MINIMAL.replace("stream: orders", "stream: plain"))
    text = MINIMAL.replace("stream: orders", "stream: approved")
    (tmp_path / "approved.yaml").write_text(f"{text}limits:\n  approve_above: 1000\n")
    dags = {dag.dag_id: dag for dag in build_dags(tmp_path)}
    for kind in ("replay", "backfill"):
        plain, approved = dags[f"plain__{kind}"], dags[f"approved__{kind}"]
        compares = ["compare", "show_changes"] if kind == "replay" else []
        assert [task.task_id for task in plain.topological_sort()] == [
            *("check", *compares, "plan", "process", "publish")
        ]
        assert [task.task_id for task in approved.topological_sort()] == [
            *("check", *compares, "approve", "plan", "process", "publish")
        ]
        said = "Above 1000 offsets, another person reads it and approves."
        assert said in str(approved.params.get_param("reason").description)
        assert "another person" not in str(plain.params.get_param("reason").description)
        # A replay that waits for a person needs no worker and no place in a pool meanwhile.
        assert approved.task_dict["approve"].retries == 0


@pytest.mark.covers("N43")
def test_what_people_trigger_is_not_paused_when_it_is_made(tmp_path: Path) -> None:
    """Airflow would take the runs of a paused DAG, and never begin them. What runs by a clock waits for a person."""
    audits = {"asked": "{}", "after": "{after_commit: ledger}", "clock": "{cron: 30 3 * * *}"}
    for name, audit in audits.items():
        text = MINIMAL.replace("stream: orders", f"stream: {name}")
        (tmp_path / f"{name}.yaml").write_text(f"{text}audit: {audit}\n")
    found = {
        dag.dag_id: DagSerialization.to_dict(dag)["dag"].get("is_paused_upon_creation") for dag in build_dags(tmp_path)
    }
    by_clock = {"clock__audit", *(f"{name}__ingest" for name in audits)}
    assert found == {dag: None if dag in by_clock else False for dag in found}
    assert len(found) == 15


def is_spark_job(task: Any) -> bool:
    return issubclass(task.operator_class if isinstance(task, MappedOperator) else type(task), SparkJob)


@pytest.mark.covers("F21")
def test_what_is_triggered_has_the_pool_that_the_stream_file_gives_it(tmp_path: Path) -> None:
    given = {"one": "pool: spark", "two": "pool: spark\n  replay_pool: replays", "neither": "retries: 3"}
    for name, engine in given.items():
        text = MINIMAL.replace("stream: orders", f"stream: {name}")
        (tmp_path / f"{name}.yaml").write_text(f"{text}engine:\n  {engine}\n")
    pools = {(dag.dag_id, task.pool) for dag in build_dags(tmp_path) for task in dag.tasks if is_spark_job(task)}
    # An erasure reads no messages, so it has no job.
    kinds = ("ingest", "backfill", "replay", "audit")
    expected = {"one": ["spark"] * 4, "two": ["spark", *["replays"] * 3], "neither": ["default_pool"] * 4}
    assert pools == {
        (f"{name}__{kind}", pool) for name, found in expected.items() for kind, pool in zip(kinds, found, strict=True)
    }


def test_what_is_triggered_has_a_longer_time_out_than_the_ingest(tmp_path: Path) -> None:
    given = {"one": "timeout_minutes: 20", "two": "replay_timeout_minutes: 300"}
    for name, engine in given.items():
        text = MINIMAL.replace("stream: orders", f"stream: {name}")
        (tmp_path / f"{name}.yaml").write_text(f"{text}engine:\n  {engine}\n")
    found = {
        (dag.dag_id, task.task_id): task.execution_timeout
        for dag in build_dags(tmp_path)
        for task in dag.tasks
        if is_spark_job(task)
    }
    ingest, others = {"one": 20, "two": 50}, {"one": 24 * 60, "two": 300}
    tasks = [("audit", "compare"), ("audit", "compare_again"), ("backfill", "process"), ("replay", "process")]
    tasks += [("replay", "compare")]
    assert found == {
        **{(f"{name}__ingest", "process"): timedelta(minutes=minutes) for name, minutes in ingest.items()},
        **{(f"{name}__{kind}", task): timedelta(minutes=others[name]) for kind, task in tasks for name in given},
    }


OF_THE_TEAM = """\
owner: payments
tags: [payments, pii]
access_control:
  payments_team: {DAGs: [can_read, can_edit], DAG Runs: [can_create]}
on_failure: tests.support.run_callbacks:failed
engine: {queue: large, retries: 1}
"""


# Airflow warns of `access_control`, which its version 4 will not have.
@pytest.mark.filterwarnings("ignore:The airflow.security.permissions module is deprecated")
def test_owner_tags_queue_access_and_callbacks_are_those_of_the_stream_file(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(MINIMAL + OF_THE_TEAM)
    (tmp_path / "two.yaml").write_text(MINIMAL.replace("stream: orders", "stream: others"))
    found = {dag.dag_id: dag for dag in build_dags(tmp_path)}
    for kind in ("ingest", "backfill", "replay", "audit", "erase"):
        dag, other = found[f"orders__{kind}"], found[f"others__{kind}"]
        assert dag.owner == "payments"
        assert dag.tags == {"tidemark", "orders", "payments", "pii"}
        # Also those that only look: a server may not answer once. What no retry mends is not retried.
        assert {(task.queue, task.retries) for task in dag.tasks} == {("large", 1)}
        assert dag.access_control == {"payments_team": {"DAGs": {"can_read", "can_edit"}, "DAG Runs": {"can_create"}}}
        assert (dag.on_failure_callback, dag.on_success_callback) == (
            Callback("on_failure", "tests.support.run_callbacks:failed"),
            None,
        )
        # Airflow's own defaults.
        assert (other.owner, {task.queue for task in other.tasks}) == ("airflow", {"default"})
        assert (other.tags, other.access_control, other.on_failure_callback) == ({"tidemark", "others"}, None, None)
        DagSerialization.to_dict(dag)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tests.support.run_callbacks:succeeded", "CallbackBug"),
        ("tests.support.run_callbacks:failed", "SystemExit: 3"),
        ("tests.support.run_callbacks:missing", "has no function missing"),
        ("no.such.module:f", "has to be on the Python path of Airflow's DAG processor"),
    ],
)
def test_a_callback_that_fails_is_logged_and_goes_no_further(
    dags: dict[str, DAG], caplog: pytest.LogCaptureFixture, name: str, said: str
) -> None:
    Callback("on_success", name)(cast("Any", {"dag": dags["cdn_logs__ingest"], "run_id": "run 1"}))
    (record,) = caplog.records
    assert record.getMessage() == f"on_success: {name} has failed; the run's result stays as it is"
    # What pytest keeps of a traceback depends on whose logging is set up.
    assert record.exc_info
    assert said in "".join(traceback.format_exception(record.exc_info[1]))


def test_the_tasks_log_says_what_a_person_should_know(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    status = Status("OK", "no lag", "a", 0, "a/0: the lag is 0")
    headroom = "a/0: offset 10, the next unread one, may be deleted in 31 h"
    shown = [shown_overview(partition(lag=0), status=status, retention_headroom=headroom)]
    monkeypatch.setattr("tidemark.views.overview.overview", lambda opened, unread: shown[0])
    monkeypatch.setattr("tidemark.ledger.covered.unread_now", lambda ledger: None)
    opened = cast("Any", SimpleNamespace(ledger=SimpleNamespace(stream="orders")))
    caplog.set_level("INFO", logger="tidemark.airflow.metrics")
    send_positions(opened)
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", "status OK (no lag): a/0: the lag is 0"),
        ("INFO", f"retention: {headroom}"),
    ]
    caplog.clear()
    shown[0] = replace(
        shown[0], status=replace(status, word="STOPPED"), late="late", expiring=["soon"], retention_alarms=["soon"]
    )
    send_positions(opened)
    said = [(one.levelname, one.getMessage().partition(". ")[0]) for one in caplog.records]
    assert said == [
        ("WARNING", "state STOPPED: a/0: the lag is 0"),
        ("WARNING", "state EXPIRING: soon"),
        ("WARNING", "state LATE: late"),
    ]


@pytest.mark.covers("N98")
@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_task_leads_to_the_page_of_its_run_and_says_what_it_does(
    dags: dict[str, DAG], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Wherever Airflow is served, and whatever the run is called."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://air.flow/below/")
    key = cast("Any", SimpleNamespace(dag_id=name, run_id="manual__2026-11-21T07:00:00+00:00 & more"))
    address = (
        f"https://air.flow/below/tidemark/run?dag_id={name}&run_id=manual__2026-11-21T07%3A00%3A00%2B00%3A00+%26+more"
    )
    dag = dags[name]
    for task in dag.tasks:
        links = {one.name: one for one in task.operator_extra_links}
        assert links["Offsets"].get_link(cast("Any", task), ti_key=key) == address
        # A sentence for each, in the words of people.
        (said,) = re.findall(rf"^- `{task.task_id}`: (.*)$", dag.doc_md or "", re.MULTILINE)
        assert re.fullmatch(r"[A-Z].*[.]", said), said
    assert "(/tidemark/streams/cdn_logs)" in (dag.doc_md or "")
    # What Airflow shows of them is stored with the DAG.
    DagSerialization.to_dict(dag)
    if "process" in dag.task_dict:
        job = cast("Any", SimpleNamespace(application_args=["--lane", "ingest", "--seq", "7"]))
        window = {one.name: one for one in dag.get_task("process").operator_extra_links}["Window"]
        assert window.get_link(job, ti_key=key) == "https://air.flow/below/tidemark/streams/cdn_logs/windows/ingest/7"
        # Of several lanes, each job pins its own.
        assert window.get_link(cast("Any", SimpleNamespace()), ti_key=key) == address


def test_in_one_pool_the_ingest_comes_first(dags: dict[str, DAG]) -> None:
    """A task weighs as much as all that its DAG still has to run."""
    most = {name: sum(task.priority_weight for task in dag.tasks) for name, dag in dags.items()}
    least = min(task.priority_weight for task in dags["cdn_logs__ingest"].tasks)
    assert all(least > weight for name, weight in most.items() if name != "cdn_logs__ingest")


@pytest.mark.covers("Q7")
def test_no_shell_and_no_user_text_in_a_template(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        for task in dag.tasks:
            assert "Bash" not in type(task).__name__
            words = json.dumps([getattr(task, field, None) for field in task.template_fields], default=str)
            assert "params" not in words
            assert "conf[" not in words


def test_dag_files_import_nothing_heavy() -> None:
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]);"
        "print(sorted({'pyspark', 'happybase', 'kafka', 'pyarrow', 'numpy', 'thriftpy2', 'kazoo'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(DAGS / "tidemark_streams.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_a_folder_that_is_not_there_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.yaml").write_text(MINIMAL)
    missing = tmp_path / "missing"
    monkeypatch.setenv("TIDEMARK_STREAMS", f"{missing}:{tmp_path}")
    found = {dag.dag_id: dag for dag in build_dags(missing, tmp_path)}
    assert {"orders__ingest", "missing__invalid"} < set(found)
    assert f"TIDEMARK_STREAMS names the folder {missing}, which is not there" in found["missing__invalid"].doc_md


def test_an_invalid_stream_file_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(MINIMAL)
    (tmp_path / "bad one.yaml").write_text(MINIMAL.replace("id: integer", "id: number"))
    (tmp_path / "twin.yaml").write_text(MINIMAL)
    (tmp_path / "notes.txt").write_text("not a stream file")
    found = {dag.dag_id: dag for dag in build_dags(tmp_path)}
    assert set(found) == {
        *(f"orders__{kind}" for kind in ("ingest", "backfill", "replay", "audit", "erase")),
        "bad_one__invalid",
        "twin__invalid",
    }
    assert "bad one.yaml:7: scheme.fields.id" in found["bad_one__invalid"].doc_md
    assert "stream orders is described by" in found["twin__invalid"].doc_md
    (task,) = found["bad_one__invalid"].tasks
    with pytest.raises(Exception, match=r"bad one\.yaml:7"):
        task.python_callable()


@pytest.mark.parametrize("written", ["{{ params.table }}", "&a [*a]", "[" * 3000 + "]" * 3000])
def test_what_only_yaml_takes_does_not_take_the_others_with_it(tmp_path: Path, written: str) -> None:
    (tmp_path / "good.yaml").write_text(MINIMAL)
    (tmp_path / "bad.yaml").write_text(MINIMAL.replace("table: orders_dead", f"table: {written}"))
    found = {dag.dag_id for dag in build_dags(tmp_path)}
    assert found == {
        *(f"orders__{kind}" for kind in ("ingest", "backfill", "replay", "audit", "erase")),
        "bad__invalid",
    }


def test_two_streams_do_not_share_a_task(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(MINIMAL)
    (tmp_path / "b.yaml").write_text(MINIMAL.replace("stream: orders", "stream: others"))
    found: dict[str, Any] = {dag.dag_id: dag for dag in build_dags(tmp_path)}
    arguments = [found[f"{name}__ingest"].task_dict["process"].application_args for name in ("orders", "others")]
    assert arguments[0][1] == str(tmp_path / "a.yaml")
    assert arguments[1][1] == str(tmp_path / "b.yaml")
