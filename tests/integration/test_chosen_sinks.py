"""A sink that is added to a live stream is filled by a replay into it alone. Readers of the others see no change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import happybase
import pytest

from tests.support.claiming import claim_lane
from tests.support.cuts import Cut, cut_after
from tests.support.damage import place
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, ORDERS
from tidemark.commit.protocol import Step
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind, Record
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs.windows import lanes
from tidemark.sinks.kinds import kind_of
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.compare import compare
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

ADDED = ("later", "files", "newest", "sums")


def with_added(live: LiveStream) -> None:
    """Give the stream one more sink of each of four types, besides HBase and Parquet."""
    old: list[dict[str, Any]] = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    keyed = {"key": ["host", "method"], "regions": 2}
    values = {"rows": "count", "all": {"sum": "size"}}
    new: list[dict[str, Any]] = [
        {"type": "hbase", "name": "later", "table": f"{live.name}_later"},
        {"type": "parquet", "name": "files", "folder": f"{live.name}_files"},
        {
            "type": "hbase_latest",
            "name": "newest",
            "table": f"{live.name}_newest",
            "folder": f"{live.name}_newest",
            **keyed,
        },
        {
            "type": "hbase_aggregates",
            "name": "sums",
            "table": f"{live.name}_sums",
            "folder": f"{live.name}_sums",
            "values": values,
            **keyed,
        },
    ]
    live.rewrite(sinks=[*old, *new])


def stored(live: LiveStream, record: Record) -> dict[str, Any]:
    """Every byte of the first two sinks and of the dead letters, with all versions; and what readers give of them."""
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    found: dict[str, Any] = {}
    for name in (live.name, f"{live.name}_dead"):
        table = connection.table(name)
        found[name] = {
            key: {column: table.cells(key, column, versions=9, include_timestamp=True) for column in cells}
            for key, cells in table.scan()
        }
    connection.close()
    (parquet,) = [one for one in record.places if one.name == "parquet"]
    base = Path(parquet.place["base"].removeprefix("file://"))
    found["files"] = {str(one): one.read_bytes() for one in base.rglob("part-*.parquet")}
    opened = live.opened
    for sink in opened.stream.sinks[:2]:
        rows = kind_of(sink.type).make_admin().rows(opened, sink, 1_000_000)
        found[f"{sink.name} by the reader"] = sorted(map(repr, rows))
    found["generations"] = [live.independent.generations(name) for name in ("hbase", "parquet", None)]
    return found


def assert_clean(live: LiveStream, name: str) -> None:
    report = audit(live.opened, name)
    assert report.clean, report.sentence()
    rows = len(live.expected().rows)
    for sink in ("hbase", "parquet", *ADDED):
        one = place(report, sink)
        assert (one.expected, one.found, one.missing, one.different, one.extra) == (rows, rows, 0, 0, 0), sink


@pytest.mark.full
@pytest.mark.covers("N14")
@pytest.mark.parametrize("longer", [False, pytest.param(True, marks=pytest.mark.full)], ids=["filled", "and replayed"])
def test_sinks_that_are_added_to_a_live_stream_are_filled_alone(make: Make, longer: bool) -> None:
    live = make(CDN)
    live.produce(240)
    (first,) = live.ingest()
    read = RangeSet(one.as_range() for one in first.window.ranges)
    with_added(live)
    live.produce(80)
    live.ingest()
    # The audit names what each of the new sinks does not have, and nothing else.
    report = audit(live.opened, "added")
    lacking = {at for at in live.expected().rows if (TopicPartition(at[0], at[1]), at[2]) in read}
    assert not report.clean
    for name in ADDED:
        one = place(report, name)
        assert (one.missing, one.different, one.extra, one.debris) == (len(lacking), 0, 0, 0)
        assert set(one.missing_at) <= {f"{topic}/{number}@{offset}" for topic, number, offset, _ in lacking}
    assert all(place(report, name).differences == 0 for name in ("hbase", "parquet", "dead letters"))
    before = stored(live, first)
    if longer:
        # A comparison is about these sinks only.
        selection = live.opened.ledger.store_selection(read).digest
        compared = compare(live.opened, "compared", selection, ("later", "files"))
        assert [(one.name, one.before, one.new) for one in compared.places] == [
            (name, 0, len(lacking)) for name in ("later", "files")
        ]
    # The replay dies after it has written one of them: nothing counts yet, and another try goes on.
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, read, run, on_step=cut_after(Step.SINK_STORED), sinks=ADDED)
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    assert [kind_rows(live, name) for name in ADDED[:2]] == [len(live.expected().rows) - len(lacking)] * 2
    window = live.head(lane).pending
    assert window is not None
    (filled,) = process_windows(live.opened, lane, window.window.seq, run)
    assert filled.receipt is not None
    assert [one.name for one in filled.receipt.sinks] == list(ADDED)
    assert filled.receipt.dead_letters is None
    assert sum(tally.dead_letters for tally in filled.tallies) > 0
    assert stored(live, first) == before
    assert_clean(live, "filled")
    wanted = live.expected().rows
    assert live.independent.hbase(f"{live.name}_later", "later").by_place() == wanted
    assert live.independent.parquet(live.fields, "files").by_place() == wanted
    if longer:
        # An ordinary replay of some of it goes over all sinks and the dead letters.
        (again,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9), (20, 41)))
        assert again.receipt is not None
        assert again.receipt.dead_letters is not None
        assert_clean(live, "replayed")
        assert {kind_rows(live, name) for name in ("hbase", "parquet", "later", "files")} == {len(wanted)}
        by_spark = {name: results_of(live, name) for name in ("hbase", "later", "files")}
        assert by_spark["hbase"] == by_spark["later"] == by_spark["files"]
    # A sink that is no longer in the file cannot be written.
    run = live.new_run()
    lane = claim_lane(live.opened, LaneKind.REPLAY, run, live.ranges(0, 0, (3, 9)), "a test", sinks=("later",))
    pending = lanes.plan_lane(live.opened, lane, run)
    assert pending is not None
    live.rewrite()
    with pytest.raises(WrongUse, match=r"writes later alone, and the stream file of .* has no sink later"):
        process_windows(live.opened, lane, pending.window.seq, run)


@pytest.mark.full
@pytest.mark.covers("N14")
def test_a_column_that_is_added_to_a_live_stream_is_filled_in_one_sink_alone(make: Make) -> None:
    """The files have it for the past too. The table has it from then on, and an audit says so."""
    scheme = ORDERS.stream["scheme"]
    fewer = {name: kind for name, kind in scheme["fields"].items() if name != "paid"}
    live = make(ORDERS, scheme={**scheme, "fields": fewer})
    live.produce(120)
    (first,) = live.ingest()
    read = RangeSet(one.as_range() for one in first.window.ranges)
    live.rewrite()
    live.produce(60)
    live.ingest()
    wanted = live.expected().rows
    past = {at for at in wanted if (TopicPartition(at[0], at[1]), at[2]) in read}
    with_column = {at for at in past if "paid" in wanted[at]}
    assert 0 < len(with_column) < len(wanted)
    before = dead_and_table(live)
    live.select(LaneKind.REPLAY, read, sinks=("parquet",))
    assert live.independent.parquet(live.fields, "parquet").by_place() == wanted
    assert dead_and_table(live) == before
    table = live.independent.hbase(sink="hbase").by_place()
    assert {at for at in wanted if table[at] != wanted[at]} == with_column
    assert all(set(wanted[at]) - set(table[at]) == {"paid"} for at in with_column)
    # A row's digest is of all fields, so it differs also where the new one is null.
    report = audit(live.opened, "column")
    assert [(one.name, one.missing, one.different, one.extra) for one in report.places] == [
        ("hbase", 0, len(past), 0),
        ("parquet", 0, 0, 0),
        ("dead letters", 0, 0, 0),
    ]


def dead_and_table(live: LiveStream) -> list[dict[bytes, Any]]:
    """Every cell of the two tables, with its time."""
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    found = [dict(connection.table(name).scan(include_timestamp=True)) for name in (live.name, f"{live.name}_dead")]
    connection.close()
    return found


def kind_rows(live: LiveStream, name: str) -> int:
    opened = live.opened
    (sink,) = [one for one in opened.stream.sinks if one.name == name]
    return len(list(kind_of(sink.type).make_admin().rows(opened, sink, 1_000_000)))


def results_of(live: LiveStream, name: str) -> list[str]:
    from pyspark.sql import SparkSession

    return sorted(str(row.asDict()) for row in results(SparkSession.builder.getOrCreate(), live.opened, name).collect())
