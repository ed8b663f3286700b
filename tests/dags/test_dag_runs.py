"""Whole runs of the example stream's DAGs, by `dag.test()`, with real spark-submit on the real servers."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sqlite3
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from kafka import KafkaProducer

from demo.cdn_lines import messages
from services.site import Site
from tests.support.dag_streams import LINEAGE, STREAM, STREAM_FILE
from tests.support.live_streams import Kafka
from tests.support.run_callbacks import SEEN
from tests.support.servers import free_ports
from tidemark.airflow.lineage import LineageOfWindows
from tidemark.airflow.metrics import send_positions
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs import steering
from tidemark.runs.comparisons import find_comparison
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.windows import lanes
from tidemark.sinks.hbase.rows import PartitionKeys
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.reading import hbase_rows
from tidemark.views.overview import overview
from tidemark.views.summary import SkippedCounts

GAUGES = ("log_start", "position", "end", "lag")
CANARY = "canary-in-a-password"
# Names that Spark knows as those of secrets, and one that nobody does.
FILE_SYSTEM = {f"fs.s3a.{name}": CANARY for name in ("access.key", "secret.key", "odd")}

pytestmark = [
    pytest.mark.usefixtures("airflow_home", "submitting"),
    # Airflow itself, in this process.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def dags() -> dict[str, DAG]:
    """Parsed anew for each test: `dag.test()` puts a run's conf into the DAG's own params."""
    return dict(DagBag(dag_folder=str(STREAM_FILE.parent.parent)).dags)


@pytest.fixture(scope="module")
def topic(kafka: Kafka, site: Site) -> str:
    kafka.create(STREAM, 4)
    producer = KafkaProducer(bootstrap_servers=site.address("kafka"))
    # Of some hours ago, so that their hour is over.
    for one in messages(2_000, datetime.now(UTC) - timedelta(hours=3)):
        producer.send(STREAM, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms)
    producer.close()
    return STREAM


@pytest.fixture
def opened(topic: str) -> OpenStream:
    return open_stream(STREAM_FILE)


def states(run: Any) -> dict[str, str]:
    return {task.task_id: str(task.state) for task in run.get_task_instances()}


def asset_events(airflow_home: Path, asset: str) -> list[Any]:
    """The extras of an asset's events, oldest first."""
    with sqlite3.connect(airflow_home / "airflow.db") as database:
        found = database.execute(
            "select asset_event.extra from asset_event join asset on asset.id = asset_id where name = ? "
            "order by asset_event.id",
            (asset,),
        )
        return [json.loads(extra) for (extra,) in found]


@dataclass
class Watched:
    """Where the canary was seen while a job ran, and what Spark's page and its event log say."""

    seen: list[str]
    page: str
    events: Path


@pytest.fixture
def secrets_watched(monkeypatch: pytest.MonkeyPatch, site: Site, tmp_path: Path) -> Iterator[Watched]:
    """Connections with secrets, and Spark with its page and its event log."""
    connection = json.loads(os.environ["AIRFLOW_CONN_LAKE_DEFAULT"])
    connection["extra"]["hadoop"] = FILE_SYSTEM
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps(connection))
    port = free_ports()
    watched = Watched([], "", tmp_path / "events")
    watched.events.mkdir()
    conf = tmp_path / "conf"
    shutil.copytree(os.environ["SPARK_CONF_DIR"], conf)
    with (conf / "spark-defaults.conf").open("a") as defaults:
        defaults.write(f"spark.ui.enabled true\nspark.ui.port {port}\nspark.eventLog.enabled true\n")
        defaults.write(f"spark.eventLog.dir file://{watched.events}\nspark.eventLog.compress false\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for process in psutil.process_iter():
                try:
                    words = " ".join(process.cmdline())
                except psutil.Error:
                    continue
                if CANARY in words:
                    watched.seen.append(words)
            with suppress(OSError):
                for page in ("environment/", "SQL/", "api/v1/applications/"):
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
                        watched.page += answer.read().decode()

    thread = threading.Thread(target=watch)
    thread.start()
    yield watched
    over.set()
    thread.join()


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, int]]]:
    """What Airflow has sent to its StatsD server, by name; of gauges the last value, of counters the sum."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.setblocking(False)
        port = server.getsockname()[1]
        for name, value in {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(port)}.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
        stats.initialize(factory=get_stats_factory(), export_legacy_names=True)

        def received() -> dict[str, int]:
            found: dict[str, int] = {}
            with suppress(BlockingIOError):
                while True:
                    name, _, said = server.recv(65536).decode().removeprefix("airflow.").partition(":")
                    value, kind = said.split("|")[:2]
                    if name.startswith("tidemark."):
                        found[name] = int(value) + (found.get(name, 0) if kind == "c" else 0)
            return found

        yield received
        stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


@pytest.mark.covers("S17", "Q5", "N11")
def test_ingest(
    dags: dict[str, DAG],
    opened: OpenStream,
    metrics: Callable[[], dict[str, int]],
    airflow_home: Path,
    secrets_watched: Watched,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = dags[f"{STREAM}__ingest"].test()
    assert states(run) == dict.fromkeys(("plan", "process", "publish", "announce"), "success")
    found = opened.ledger.head(INGEST)
    assert found is not None
    last = found.head.last
    assert last is not None
    assert last.attempt.run == f"{STREAM}__ingest/{run.run_id}"
    assert sum(tally.read.number for tally in last.tallies) == 2_000
    # The event for other DAGs names ranges and counts.
    (extra,) = asset_events(airflow_home, f"{STREAM}_results")
    (window,) = extra["windows"]
    assert (window["seq"], window["read"]) == (1, 2_000)
    assert window["stored"] + window["dead_letters"] == 2_000
    assert f"{STREAM}/0@0-{found.head.offsets()[TopicPartition(STREAM, 0)]}" in window["ranges"]
    # Everything is read, so the hour of the messages is over: another event names it.
    oldest = min(tally.first_timestamp for tally in last.tallies if tally.first_timestamp is not None)
    newest = max(tally.last_timestamp for tally in last.tallies if tally.last_timestamp is not None)
    assert extra["passed_over"] == []
    assert datetime.fromisoformat(extra["watermark"]) > datetime.fromtimestamp(newest / 1000, UTC)
    (announced,) = asset_events(airflow_home, f"{STREAM}_complete")
    assert announced["hours"][0]["hour"] == f"{datetime.fromtimestamp(oldest / 1000, UTC):%Y-%m-%dT%HZ}"
    assert announced["hours"][0]["late"] == {"least": 0, "most": 0}
    # The same numbers as on the page.
    sent = metrics()
    assert sent[f"tidemark.watermark_age_ms.{STREAM}"] == 300_000
    shown = overview(opened)
    for one in shown.partitions:
        numbers = [sent[f"tidemark.{name}.{STREAM}.{STREAM}.{one.partition}"] for name in GAUGES]
        assert numbers == [getattr(one, name) for name in GAUGES]
    assert sent[f"tidemark.lag.{STREAM}"] == 0
    assert [sent[f"tidemark.status.{STREAM}{place}"] for place in ("", *(f".{STREAM}.{at}" for at in range(4)))] == [
        0
    ] * 5
    assert sent[f"tidemark.latency_ms.{STREAM}"] == shown.latency.last_ms
    counted = [sent[f"tidemark.{name}.{STREAM}"] for name in ("read", "stored", "dead_letters")]
    assert counted == [getattr(shown.windows[0], name) for name in ("read", "stored", "dead_letters")]
    passed_over = {kind: sent[f"tidemark.offsets_{kind}.{STREAM}"] for kind in ("lost", "skipped")}
    assert passed_over == {"lost": 0, "skipped": 0}
    assert shown.windows[0].passed_over == SkippedCounts(lost=0, skipped=0)
    # A secret is on no command line, on no page of Spark's, in no log, and in nothing that Airflow has stored.
    assert secrets_watched.seen == []
    assert "Hadoop Properties" in secrets_watched.page
    assert CANARY not in secrets_watched.page
    events = "".join(path.read_text() for path in secrets_watched.events.rglob("*") if path.is_file())
    assert "SparkListenerEnvironmentUpdate" in events
    assert "SparkListenerApplicationEnd" in events
    assert CANARY not in events
    places = [path for path in airflow_home.rglob("*") if path.is_file()]
    logged = "".join(capfd.readouterr())
    assert f"{STREAM}/ingest window 1: committed" in logged
    assert CANARY not in logged
    assert [path for path in places if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.covers("N32")
def test_events_of_lineage_have_ranges_and_counts(opened: OpenStream) -> None:
    """As Airflow's own provider has sent them for the ingest before."""
    events = [json.loads(line) for line in LINEAGE.read_text().splitlines()]
    (event,) = [
        one for one in events if one["job"]["name"] == f"{STREAM}__ingest.process" and one["eventType"] == "COMPLETE"
    ]
    facet, head = event["run"]["facets"]["tidemark_windows"], opened.ledger.head(INGEST)
    assert head is not None
    assert head.head.last is not None
    (window,) = facet["windows"]
    assert (facet["stream"], facet["lanes"], facet["run"]) == (STREAM, [INGEST], head.head.last.attempt.run)
    assert (facet["committed"], facet["read"], facet["stored"] + facet["dead_letters"]) == (1, 2_000, 2_000)
    assert f"{STREAM}/0@0-{head.head.offsets()[TopicPartition(STREAM, 0)]}" in window["ranges"]
    (source,) = event["inputs"]
    assert source["namespace"].startswith("kafka://127.0.0.1:")
    assert (source["name"], source["inputFacets"]["inputStatistics"]["rowCount"]) == (STREAM, 2_000)
    rows = {one["name"]: one["outputFacets"].get("outputStatistics", {}).get("rowCount") for one in event["outputs"]}
    assert rows[STREAM] == facet["stored"]
    assert rows[opened.stream.dead_letters.place(opened.connections)["table"]] == facet["dead_letters"]


@pytest.mark.covers("A19")
def test_nothing_new_skips_the_rest(opened: OpenStream, airflow_home: Path) -> None:
    said = STREAM_FILE.read_text()
    STREAM_FILE.write_text(f"{said}on_success: tests.support.run_callbacks:succeeded\n")
    try:
        run = DagBag(dag_folder=str(STREAM_FILE.parent.parent)).dags[f"{STREAM}__ingest"].test()
    finally:
        STREAM_FILE.write_text(said)
    found = states(run)
    # By the clock, another hour may have become complete. None is announced twice.
    assert found.pop("announce") in ("skipped", "success")
    assert found == {"plan": "skipped", "process": "skipped", "publish": "skipped"}
    assert run.state == "success"
    hours = [one["hour"] for event in asset_events(airflow_home, f"{STREAM}_complete") for one in event["hours"]]
    assert len(set(hours)) == len(hours) > 0
    # The stream's callback was called, and its failure changed nothing.
    assert SEEN[-1] == ("success", f"{STREAM}__ingest", run.run_id)


@pytest.mark.covers("N5")
def test_a_dry_run_changes_nothing(dags: dict[str, DAG], opened: OpenStream, caplog: pytest.LogCaptureFixture) -> None:
    before = dict(opened.ledger.store.scan(("head",)))
    conf = {"records": f"{STREAM}/0@5\n{STREAM}/1@7\n{STREAM}/9@1", "reason": "a test"}
    with caplog.at_level(logging.INFO):
        run = dags[f"{STREAM}__replay"].test(run_conf=conf)
    assert set(states(run).values()) == {"skipped"}
    assert dict(opened.ledger.store.scan(("head",))) == before
    (found,) = [one.xcom_pull("check", key="found") for one in run.get_task_instances() if one.task_id == "check"]
    assert found["offsets"] == 2
    assert found["ranges"] == [f"{STREAM}/0@5-6", f"{STREAM}/1@7-8"]
    assert [list(one.values()) for one in found["answers"]] == [
        [f"{STREAM}/0", "5", "6", "1", "to be read"],
        [f"{STREAM}/1", "7", "8", "1", "to be read"],
        [f"{STREAM}/9", "1", "2", "1", "never in the topic: it has no such partition"],
    ]
    assert found["totals"] == {"to be read": "2", "never in the topic: it has no such partition": "1"}
    assert found["estimate"]["records"] == 2
    said = " ".join(caplog.text.split())
    assert f"{STREAM}/9 1 2 1 never in the topic: it has no such partition" in said
    assert "estimate: 2 records, " in said


@pytest.mark.covers("A03")
@pytest.mark.parametrize(
    ("dag", "conf"),
    [
        # By their words alone: tests/dags/test_requests.py has more of them. By the ledger: tests/dags/test_routes.py has.
        pytest.param("replay", {"reason": "a test"}, marks=pytest.mark.full),
        ("replay", {"records": f"{STREAM}/0@five", "reason": "a test", "dry_run": False}),
        pytest.param(
            "replay", {"ranges": f"{STREAM}/0@-99-5", "reason": "a test", "dry_run": False}, marks=pytest.mark.full
        ),
        ("replay", {"ranges": f"{STREAM}/0@0-99999", "reason": "a test", "dry_run": False, "strict": True}),
        pytest.param(
            "replay",
            {"ranges": f"{STREAM}/0@0-5", "reason": "a test", "dry_run": False, "plan": "0" * 64},
            marks=pytest.mark.full,
        ),
        pytest.param(
            "replay", {"records": f"{STREAM}/0@1", "reason": "a test", "dryrun": False}, marks=pytest.mark.full
        ),
        ("backfill", {"ranges": f"{STREAM}/0@0-5", "reason": "a test", "dry_run": False}),
        pytest.param(
            "backfill", {"everything_before": True, "reason": "a test", "dry_run": False}, marks=pytest.mark.full
        ),
    ],
    ids=[
        *("nothing", "no record", "below 0", "beyond the position", "stale plan"),
        *("typing error", "covered already", "nothing before"),
    ],
)
def test_a_request_that_cannot_be_carried_out_fails_before_spark(
    dags: dict[str, DAG], opened: OpenStream, dag: str, conf: dict[str, Any]
) -> None:
    before = dict(opened.ledger.store.scan(("head",)))
    run = dags[f"{STREAM}__{dag}"].test(run_conf=conf)
    assert run.state == "failed"
    # Spark was not started: its task has neither succeeded nor failed.
    assert states(run).get("process") not in ("success", "failed")
    assert dict(opened.ledger.store.scan(("head",))) == before


# A DAG object that has run keeps the values it was given: in Airflow, every task has one of its own.
DEFAULTS = {"level": "full", "repair": "none"}


@pytest.mark.full
@pytest.mark.covers("N10", "N6", "N14", "N22")
def test_audit_finds_and_replay_repairs(dags: dict[str, DAG], opened: OpenStream) -> None:
    table = stream_table(opened, "hbase_default", STREAM)
    at = TopicPartition(STREAM, 1)
    keys = PartitionKeys(at)
    rows = [row.place.offset for row in hbase_rows(opened.ledger, table, "hbase") if row.place.partition == at]
    gone = (rows[10], rows[11], rows[-1])
    for offset in gone:
        key = keys.key(offset, 0)
        table._gateway.once(lambda client, key=key: client.deleteAllRow(STREAM.encode(), key, {}))
    run = dags[f"{STREAM}__audit"].test(run_conf={"level": "full", "repair": "plan"})
    assert states(run) == {
        **dict.fromkeys(("check", "compare", "report"), "success"),
        **dict.fromkeys(("read_ledger", "plan_repair", "repair", "compare_again", "report_again"), "skipped"),
        "judge": "failed",
    }
    tasks = {one.task_id: one for one in run.get_task_instances()}
    report, planned = tasks["report"].xcom_pull("report"), tasks["plan_repair"].xcom_pull("plan_repair", key="repair")
    assert (planned["selection"], planned["findings"]) == (report["findings"]["digest"], len(gone))
    assert report["clean"] is False
    assert "missing 3, different 0, extra 0" in report["sentence"]
    (hbase,) = [place for place in report["places"] if place["name"] == "hbase"]
    assert hbase["missing_at"] == [f"{STREAM}/1@{offset}" for offset in gone]
    # Only one sink lacks anything, so only that one is written.
    chosen = {"selection": report["findings"]["digest"], "sinks": ["hbase"]}
    conf = {**chosen, "reason": "repair", "dry_run": False, "compare": True}
    position = opened.ledger.head(INGEST)
    replay = dags[f"{STREAM}__replay"].test(run_conf=conf)
    assert states(replay) == dict.fromkeys(
        ("check", "compare", "show_changes", "plan", "process", "publish"), "success"
    )
    tasks = {one.task_id: one for one in replay.get_task_instances()}
    assert tasks["publish"].xcom_pull("publish")["totals"] == {"found and stored": "3"}
    # Before that, the comparison has said which rows the repair would bring back.
    diff = tasks["show_changes"].xcom_pull("show_changes", key="changes")
    counts = {one["name"]: [one[name] for name in ("same", "changed", "new", "gone")] for one in diff["places"]}
    assert counts == {"hbase": [0, 0, 3, 0]}
    (written,) = [one.record.window.sinks for one in opened.ledger.committed() if one.record.kind == LaneKind.REPLAY]
    assert written == ("hbase",)
    (hbase,) = [place for place in diff["places"] if place["name"] == "hbase"]
    assert [one["at"] for one in hbase["new_at"]] == [f"{STREAM}/1@{offset}" for offset in gone]
    kept = find_comparison(opened, f"{STREAM}__replay/{replay.run_id}")
    assert kept is not None
    assert kept.sentence() == diff["sentence"]
    assert opened.ledger.head(INGEST) == position
    again = dags[f"{STREAM}__audit"].test(run_conf=DEFAULTS)
    assert states(again)["judge"] == "success"
    assert states(again)["repair"] == "skipped"


def result(run: Any, task: str, key: str = "return_value") -> Any:
    (one,) = [one for one in run.get_task_instances() if one.task_id == task]
    return one.xcom_pull(task, key=key)


@pytest.mark.full
def test_a_replay_in_lanes_has_a_task_for_each(dags: dict[str, DAG], opened: OpenStream) -> None:
    whole = opened.ledger.committed()[0].covers
    at = whole.partitions[0]
    start, until = whole.of(at)[0]
    conf = {"ranges": f"{STREAM}/{at.partition}@{start}-{until}", "lanes": 3, "reason": "bug 17", "dry_run": False}
    replay = dags[f"{STREAM}__replay"].test(run_conf=conf)
    tasks = [one for one in replay.get_task_instances() if one.task_id == "process"]
    mine = lanes.lanes_of(opened, LaneKind.REPLAY, f"{STREAM}__replay/{replay.run_id}")
    assert [(one.map_index, one.state) for one in sorted(tasks, key=lambda one: one.map_index)] == [
        (number, "success") for number in range(3)
    ]
    assert sorted(one.rendered_map_index for one in tasks) == sorted(mine)
    published = result(replay, "publish")
    assert [published["lane"], *(one["lane"] for one in published["then"])] == mine
    # Some messages of the example are dead letters again.
    assert sum(int(number) for number in published["totals"].values()) == until - start
    read = [one.covers for one in opened.ledger.committed() if one.record.lane in mine]
    assert sorted(one.count() for one in read)[-1] - sorted(one.count() for one in read)[0] <= 1
    assert sum(one.count() for one in read) == until - start


@pytest.mark.full
def test_a_lane_that_fails_stops_no_other(
    dags: dict[str, DAG], opened: OpenStream, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second lane is cancelled when its task begins."""
    begin = LineageOfWindows.execute

    def cancelled(self: LineageOfWindows, context: Any) -> int:
        if context["ti"].map_index == 1:
            steering.cancel(open_stream(STREAM_FILE), self.lane, "not this one")
        return begin(self, context)

    monkeypatch.setattr(LineageOfWindows, "execute", cancelled)
    whole = opened.ledger.committed()[0].covers
    at = whole.partitions[0]
    start, _ = whole.of(at)[0]
    conf = {"ranges": f"{STREAM}/{at.partition}@{start}-{start + 9}", "lanes": 3, "reason": "bug 17", "dry_run": False}
    replay = dags[f"{STREAM}__replay"].test(run_conf=conf)
    tasks = sorted(
        (one for one in replay.get_task_instances() if one.task_id == "process"), key=lambda one: one.map_index
    )
    assert [one.state for one in tasks] == ["success", "failed", "success"]
    assert (replay.state, states(replay)["publish"]) == ("failed", "upstream_failed")
    mine = lanes.lanes_of(opened, LaneKind.REPLAY, f"{STREAM}__replay/{replay.run_id}")
    assert f"the job of the lane {mine[1]} ended with code 3" in "".join(capfd.readouterr())
    windows = [one for one in opened.ledger.committed() if one.record.lane in mine]
    assert sorted(one.record.lane for one in windows) == sorted([mine[0], mine[2]])
    assert sum(one.covers.count() for one in windows) == 6


@pytest.mark.covers("N27")
def test_an_erasure(dags: dict[str, DAG], opened: OpenStream, airflow_home: Path) -> None:
    table = stream_table(opened, "hbase_default", STREAM)
    rows = [row for row in hbase_rows(opened.ledger, table, "hbase") if row.place.partition.partition == 2]
    gone = {rows[3].place, rows[4].place}
    named = [f"{STREAM}/2@{place.offset}" for place in sorted(gone, key=lambda place: place.offset)]
    before = dict(opened.ledger.store.scan(("head",)))
    conf = {"records": "\n".join(named), "reason": "request 4711"}
    plan = dags[f"{STREAM}__erase"].test(run_conf=conf)
    assert set(states(plan).values()) == {"skipped"}
    assert dict(opened.ledger.store.scan(("head",))) == before
    found = result(plan, "check", "found")
    assert (found["offsets"], found["totals"]) == (2, {"to be erased": "2"})
    assert {one["name"] for one in found["remains"]} >= {"hbase", "dead_letters", "the source"}

    events = len(asset_events(airflow_home, f"{STREAM}_results"))
    # As any DAG of one's own would trigger it, and by the same run name as on the command line.
    run = dags[f"{STREAM}__erase"].test(run_conf={**conf, "dry_run": False})
    assert states(run) == dict.fromkeys(("check", "erase", "publish"), "success")
    done = result(run, "publish")
    (stone,) = done["tombstones"]
    assert (done["erased"], stone["reason"]) == (2, "request 4711")
    assert {why.partition(",")[0]: number for why, number in done["totals"].items()} == {
        f"erased by {done['lane']}": "2"
    }
    left = {row.place for row in hbase_rows(opened.ledger, table, "hbase")}
    assert left & {row.place for row in rows} == {row.place for row in rows} - gone
    # Readers of the results are told.
    (event,) = asset_events(airflow_home, f"{STREAM}_results")[events:]
    assert (event["lane"], len(event["windows"])) == (done["lane"], 1)

    # A replay of them says so. So does an erasure of the same records, which has nothing to do.
    replay = dags[f"{STREAM}__replay"].test(run_conf=conf)
    assert {why.partition(",")[0] for why in result(replay, "check", "found")["totals"]} == {
        f"erased by {done['lane']}"
    }
    again = dags[f"{STREAM}__erase"].test(run_conf={**conf, "dry_run": False})
    assert set(states(again).values()) == {"skipped"}


@pytest.mark.full
@pytest.mark.covers("N20")
@pytest.mark.parametrize("level", ["ledger", "source"])
def test_an_audit_of_the_ledger_starts_no_spark(dags: dict[str, DAG], opened: OpenStream, level: str) -> None:
    run = dags[f"{STREAM}__audit"].test(run_conf={**DEFAULTS, "level": level})
    done = ("check", "read_ledger", "report", "judge")
    assert states(run) == {
        **dict.fromkeys(done, "success"),
        **dict.fromkeys(("compare", "plan_repair", "repair", "compare_again", "report_again"), "skipped"),
    }
    (report,) = [one.xcom_pull("report") for one in run.get_task_instances() if one.task_id == "report"]
    assert (report["level"], report["clean"], report["places"]) == (level, True, [])
    assert (report["source"] == []) == (level == "ledger")
    assert report["windows"] == len(opened.ledger.committed())
    assert report["page"].endswith(
        f"/tidemark/streams/{STREAM}/audit?run={quote(f'{STREAM}__audit/{run.run_id}', safe='')}"
    )


@pytest.mark.full
def test_a_run_that_an_open_transaction_holds_back_says_so(
    dags: dict[str, DAG], opened: OpenStream, kafka: Kafka, capfd: pytest.CaptureFixture[str]
) -> None:
    ingest = dags[f"{STREAM}__ingest"]
    assert ingest.test().state == "success"
    producer = KafkaProducer(bootstrap_servers=kafka.servers, transactional_id=f"{STREAM}-held")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(STREAM, b"held back", partition=2)
    producer.flush()
    run = ingest.test()
    producer.abort_transaction()
    producer.close()
    found = states(run)
    assert found.pop("announce") in ("skipped", "success")
    assert found == {"plan": "skipped", "process": "skipped", "publish": "skipped"}
    said = "".join(capfd.readouterr())
    assert f"nothing new in Kafka; {STREAM}/2: an open transaction holds the end back at offset" in said
    assert f"transactional id {STREAM}-held" in said


@pytest.fixture
def passing_over() -> Iterator[None]:
    """The stream goes on where offsets are gone, and reads the newest 40 of a partition at most."""
    before = STREAM_FILE.read_text()
    stream = yaml.safe_load(before)
    stream["source"]["on_out_of_range"] = "earliest"
    stream["limits"] = {**stream.get("limits", {}), "max_behind": 40}
    STREAM_FILE.write_text(yaml.safe_dump(stream))
    yield
    STREAM_FILE.write_text(before)


@pytest.mark.full
@pytest.mark.covers("S17")
@pytest.mark.usefixtures("passing_over")
def test_what_was_lost_what_was_skipped_and_the_lag_are_published(
    dags: dict[str, DAG], opened: OpenStream, kafka: Kafka, metrics: Callable[[], dict[str, int]]
) -> None:
    ingest = dags[f"{STREAM}__ingest"]
    found = opened.ledger.head(INGEST)
    assert found is not None
    position = {at.partition: offset for at, offset in found.head.offsets().items()}
    kafka.send((STREAM, partition, None, b"new") for partition in range(2) for _ in range(50))
    kafka.delete_records(STREAM, 0, position[0] + 30)
    assert ingest.test().state == "success"
    sent = metrics()
    # Of partition 0 the first 30 are gone, and 20 are left; of partition 1 the first 10 are too far behind.
    assert {kind: sent[f"tidemark.offsets_{kind}.{STREAM}"] for kind in ("lost", "skipped")} == {
        "lost": 30,
        "skipped": 10,
    }
    assert overview(opened).windows[0].passed_over == SkippedCounts(30, 10)
    assert sent[f"tidemark.read.{STREAM}"] == 60

    kafka.send((STREAM, partition, None, b"newer") for partition in range(3) for _ in range(1 + partition))
    send_positions(opened)
    sent = metrics()
    shown = overview(opened).partitions
    assert [sent[f"tidemark.lag.{STREAM}.{STREAM}.{number}"] for number in range(4)] == [1, 2, 3, 0]
    assert [one.lag for one in shown] == [1, 2, 3, 0]
    assert sent[f"tidemark.lag.{STREAM}"] == 6
    assert sent[f"tidemark.log_start.{STREAM}.{STREAM}.0"] == shown[0].log_start == position[0] + 30
