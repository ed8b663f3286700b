"""The sink `parquet`: folders by field inside a window's folder, compression, and every reader gives back what was read."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.browsed import browsed
from tests.support.command_line import asked
from tests.support.cuts import Cut, crash, cut_after
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, ORDERS
from tests.support.parquet_readers import assert_read_alike, places_by_reader, with_files
from tidemark.commit.protocol import Step
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.kinds import sink_to_compact
from tidemark.sinks.reading import delta_tables, parquet_tables
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results
from tidemark.spark.sinks.parquet.compacting import compact

pytestmark = pytest.mark.usefixtures("spark")

# What a folder's name could choke on, or give back as something else.
ODD = [
    "a/b",
    "a=b",
    "../..",
    "100%",
    "%2F",
    "日本",
    "Zoë",
    "",
    " ",
    ".",
    "+",
    "a b",
    'q"uo:te*?',
    "tab\there",
    "new\nline",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    "0012",
    "x" * 400,
    "ä" * 300,
]


@pytest.mark.full
def test_a_lake_whose_name_has_a_space_and_other_letters(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "Zoë's läke #1"
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_ODD", json.dumps({"conn_type": "fs", "extra": {"path": str(lake)}}))
    live = make(CDN)
    files = [{"type": kind, "folder": kind, "files": "lake_odd"} for kind in ("parquet", "delta")]
    live.rewrite(sinks=[{"type": "hbase", "table": live.name}, *files])
    for _ in range(2):
        live.produce(40)
        live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (2, 5)))

    def assert_read_by_all() -> None:
        wanted = sorted((place[0], place[1], place[2]) for place in live.expected().rows)
        ledger = live.opened.ledger
        for tables in (parquet_tables(ledger, "parquet"), delta_tables(ledger, "delta")):
            found = [row for table in tables for row in table.to_pylist()]
            assert sorted((row["_topic"], row["_partition"], row["_offset"]) for row in found) == wanted
        for name in ("parquet", "delta"):
            rows = results(spark, live.opened, name).collect()
            assert sorted((row["_topic"], row["_partition"], row["_offset"]) for row in rows) == wanted

    assert_read_by_all()
    assert {path.name for path in lake.iterdir()} == {"parquet", "delta"}
    (made,) = compact(
        live.opened, sink_to_compact(live.opened.stream.sinks, live.name, None), "compaction", CompactionRequest()
    )
    assert len(list((lake / "parquet").glob("lane=*/seq=*/generation=*"))) == 1
    assert made.rows == len(live.expected().rows)
    assert_read_by_all()
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()


def folder_of(live: LiveStream, lane: str = "ingest") -> Path:
    last = live.head(lane).last
    assert last is not None
    return Path(next(one for one in last.places if one.type == "parquet").place["folder"].removeprefix("file://"))


@pytest.mark.full
def test_odd_values_name_folders_and_come_back_unchanged(make: Make, spark: SparkSession) -> None:
    live = make(ORDERS)
    with_files(live, partition_by=["paid", "customer"], compression="zstd")
    orders = [{"id": number, "customer": value, "paid": number % 2 == 0} for number, value in enumerate(ODD)]
    # And null: in a message without a customer, and in one without a value.
    values = [json.dumps(one).encode() for one in (*orders, {"id": len(ODD)})]
    live.kafka.send((live.topics[0], number % 2, b"key", value) for number, value in enumerate([*values, None]))
    live.ingest()
    written = sorted(folder_of(live).rglob("part-*.parquet"))
    assert {one.parent.parent.parent for one in written} == {folder_of(live)}
    assert len({one.parent for one in written}) > len(ODD) - 2
    assert all(one.isascii() for one in map(str, written))
    assert {pq.read_metadata(one).row_group(0).column(0).compression for one in written} == {"ZSTD"}
    assert_read_alike(live, spark)
    customers = [*ODD, None, None]
    frame = results(spark, live.opened, "parquet")
    assert sorted(map(repr, customers)) == sorted(repr(row["customer"]) for row in frame.collect())
    tables = parquet_tables(live.opened.ledger, "parquet")
    assert sorted(map(repr, customers)) == sorted(
        repr(one) for table in tables for one in table["customer"].to_pylist()
    )
    shown = asked("results", str(live.file), "--sink", "parquet", "--limit", "100")
    assert sorted(map(repr, customers)) == sorted(repr(one["fields"].get("customer")) for one in shown)
    wanted = {f"{topic}/{partition}@{at}": row for (topic, partition, at, _), row in live.expected().rows.items()}
    assert {one["coordinate"]: one["fields"] for one in shown} == wanted
    looked_through = browsed(live.opened, "parquet", count=7)
    assert {
        str(one.at): {name: value.decode() for name, value in one.fields.items()} for one in looked_through
    } == wanted
    assert len(asked("results", str(live.file), "--sink", "parquet", "--limit", "5")) == 5


@pytest.mark.full
def test_windows_with_other_folders_are_read_together(make: Make, spark: SparkSession) -> None:
    live = make(CDN)
    live.produce(60)
    live.ingest()
    with_files(live, partition_by=["date(time)", "hour(time)"], compression="gzip")
    live.produce(60)
    run = live.new_run()
    crash(live, run, on_step=cut_after(Step.SINK_STORED, 2))
    left = list((Path(folder_of(live)).parent.parent / "seq=000000002").iterdir())
    assert len(left) == 1
    # The second try owes a sweep of the first one's folder, with all that is in it.
    live.ingest(run)
    assert [one.name for one in left[0].parent.iterdir()] == [folder_of(live).name]
    for name in ("by_date_time=2026-11-20", "by_hour_time=2026-11-20-00"):
        assert list(folder_of(live).rglob(name)), name
    # A pending replay changes nothing; a committed one counts in place of the older rows.
    with_files(live, partition_by=["method"])
    replay = live.ranges(0, 0, (3, 14)) | live.ranges(0, 2, (5, 6))
    again = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, replay, again, on_step=cut_after(Step.SINK_STORED, 2))
    wanted = sorted(live.expected().rows)
    assert places_by_reader(live, spark) == [wanted, wanted]
    from tidemark.runs.windows import lanes
    from tidemark.spark.jobs.window import process_windows

    process_windows(live.opened, lanes.lane_name(LaneKind.REPLAY, again), 1, again)
    assert_read_alike(live, spark)


@pytest.mark.full
def test_times_as_any_reader_takes_them_beside_older_files(make: Make, spark: SparkSession) -> None:
    """Earlier versions wrote times as INT96, which readers take for nanoseconds: 9999 became 1816."""
    live = make(CDN)
    scheme = {"type": "json", "fields": {"id": "integer", "at": "timestamp"}}
    with_files(live)
    live.rewrite(scheme=scheme, checks=[])
    texts = ["2026-11-21T07:10:00.123456Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
    for number, some in enumerate((texts[:1], texts)):
        values = (json.dumps({"id": number, "at": text}).encode() for text in some)
        live.kafka.send((live.topics[0], 0, None, value) for value in values)
        live.ingest()
        if number == 0:
            (older,) = folder_of(live).rglob("*.parquet")
            pq.write_table(pq.read_table(older, partitioning=None), older, use_deprecated_int96_timestamps=True)
            older.with_name(f".{older.name}.crc").unlink()
    wanted = [datetime.fromisoformat(text) for text in texts]

    # The newer file, by readers that know nothing of Tidemark.
    (newer,) = folder_of(live).rglob("*.parquet")
    assert pq.read_metadata(newer).schema.column(8).physical_type == "INT64"
    assert sorted(pq.read_table(newer, partitioning=None)["at"].to_pylist()) == sorted(wanted)
    assert sorted(pl.read_parquet(newer)["at"].to_list()) == sorted(wanted)

    def assert_read_by_all() -> None:
        both = sorted([*wanted, wanted[0]])
        with_spark = results(spark, live.opened, "parquet").select(F.col("at").cast("string"))
        shown = [one["fields"]["at"] for one in asked("results", str(live.file), "--sink", "parquet")]
        assert sorted(shown) == sorted(row["at"] for row in with_spark.collect())
        tables = parquet_tables(live.opened.ledger, "parquet")
        assert sorted(one for table in tables for one in table["at"].to_pylist()) == both
        report = audit(live.opened, live.new_run())
        assert report.clean, report.sentence()

    assert_read_by_all()
    compact(live.opened, sink_to_compact(live.opened.stream.sinks, live.name, None), "compaction", CompactionRequest())
    assert_read_by_all()


@pytest.mark.full
def test_a_field_whose_type_changes_is_refused_by_runs_and_audits(make: Make, spark: SparkSession) -> None:
    """Spark failed at the older files, with code 6: nobody could audit them any more, and the next window was written."""
    live = make(CDN)
    files = [{"type": kind, "folder": f"{live.name}_{kind}"} for kind in ("parquet", "delta")]

    def given(kind: str, *sinks: dict[str, str]) -> None:
        scheme = {"type": "json", "fields": {"s": kind}}
        live.rewrite(scheme=scheme, checks=[], sinks=[{"type": "hbase", "table": live.name}, *sinks])

    given("string", *files)
    live.kafka.send((live.topics[0], 0, None, value) for value in (b'{"s": "a"}', b'{"s": "b"}'))
    live.ingest()
    for sink in files:
        live.kafka.send([(live.topics[0], 0, None, b'{"s": "c"}')])
        given("integer", sink)
        run = live.new_run()
        for _ in range(2):
            with pytest.raises(WrongUse, match=r"has the (field|column) s as .*: name another folder"):
                live.ingest(run)
            with pytest.raises(WrongUse, match=r"has the (field|column) s as .*: name another folder"):
                audit(live.opened, live.new_run())
            with pytest.raises(WrongUse, match=r"has the (field|column) s as .*: name another folder"):
                results(spark, live.opened, sink["type"])
        # With the type that the files have, the same window is processed.
        given("string", *files)
        live.ingest(run)
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
    assert report.stored == 4


@pytest.mark.full
def test_times_that_python_cannot_hold(make: Make) -> None:
    """A producer gives its messages any time that it likes; files give the text of it that HBase has."""
    live = make(CDN)
    topic = f"{live.name}-late"
    live.kafka.create(topic, 1, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    sinks = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    sinks.append({"type": "delta", "folder": f"{live.name}_delta"})
    live.rewrite(
        source={"topics": [topic]}, scheme={"type": "string", "keep": {"at": "timestamp"}}, checks=[], sinks=sinks
    )
    times = {
        1_795_245_000_500: "2026-11-21 07:10:00.5",
        253_402_300_799_999: "9999-12-31 23:59:59.999",
        253_402_300_800_000: "+10000-01-01 00:00:00",
        9_000_000_000_000_000: "+287168-08-24 16:00:00",
    }
    with closing(KafkaProducer(bootstrap_servers=live.kafka.servers)) as producer:
        for at in times:
            producer.send(topic, b"a value", timestamp_ms=at)
        producer.flush()
    live.ingest()
    for sink in ("hbase", "parquet", "delta"):
        shown = asked("results", str(live.file), "--sink", sink)
        assert [row["fields"]["at"] for row in shown] == list(times.values()), sink
