"""The sink `hbase_aggregates`: of each window one contribution to each key, which a replay of that window replaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import happybase
import pytest

from tests.support.command_line import asked
from tests.support.cuts import Cut, crash, cut_after, read_by
from tests.support.oracle import CDN, LEDGERS, Example, Fields, Place
from tests.support.playground import Make, Playground
from tidemark.audit.levels import Level
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
from tidemark.errors import OffsetsOutOfRange, WrongUse
from tidemark.ledger.records import LaneKind, Record
from tidemark.runs import lanes
from tidemark.sinks.aggregates.rows import encode, qualifier, row_key
from tidemark.sinks.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.aggregates.table import AggregateTable, aggregate_table, totals
from tidemark_spark.jobs.audit import audit
from tidemark_spark.jobs.window import process_windows
from tidemark_spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

SINK = "hbase_aggregates"
SINKS: dict[str, dict[str, Any]] = {
    "cdn": {
        "key": ["host", "method"],
        "values": {"rows": "count", "all": {"sum": "size"}, "most": {"max": "dltime"}, "least": {"min": "time"}},
    },
    "orders": {
        "key": "customer",
        "values": {"rows": "count", "all": {"sum": "id"}, "most": {"max": "amount"}, "least": {"min": "customer"}},
    },
}
Totals = dict[tuple[str | None, ...], dict[str, Any]]


def table_of(play: Playground) -> str:
    return f"{play.name}_sums"


def with_sink(play: Playground, *, first: bool = False, **changes: Any) -> None:
    """Give the stream the sink, besides its others."""
    mine = {"type": SINK, "table": table_of(play), "regions": 4, **SINKS[play.example.name]}
    others = [{"type": "hbase", "table": play.name}, {"type": "parquet", "folder": play.name}]
    play.rewrite(sinks=[mine, *others] if first else [*others, mine], **changes)


def table(play: Playground) -> AggregateTable:
    return aggregate_table(play.opened.connections, "hbase_default", table_of(play))


def by_reader(play: Playground) -> Totals:
    opened = play.opened
    (sink,) = [one for one in opened.stream.sinks if isinstance(one, HBaseAggregatesSink)]
    found = totals(opened.book, table(play), sink.aggregates(opened.fields))
    return {
        tuple(part if part is None else part.decode() for part in key): typed(
            {name: state.decode() for name, state in values.items()}
        )
        for key, values in found
    }


def typed(values: dict[str, Any]) -> dict[str, Any]:
    types: dict[str, Any] = {"rows": int, "all": int, "most": float, "least": str}
    return {name: types[name](value) for name, value in values.items() if value is not None}


def sums(play: Playground, rows: Iterable[Fields]) -> Totals:
    """What the rows come to, by dictionaries."""
    given = SINKS[play.example.name]
    key = [given["key"]] if isinstance(given["key"], str) else given["key"]
    fields = {name: next(iter(said.values())) for name, said in given["values"].items() if said != "count"}
    found: Totals = {}
    for row in rows:
        total = found.setdefault(tuple(row.get(name) for name in key), {"rows": 0})
        total["rows"] += 1
        for name, merge in (("all", lambda a, b: a + b), ("most", max), ("least", min)):
            if fields[name] in row:
                (value,) = typed({name: row[fields[name]]}).values()
                total[name] = merge(total[name], value) if name in total else value
    return found


def by_oracle(play: Playground) -> Totals:
    return sums(play, play.expected().rows.values())


def inside(record: Record, place: Place) -> bool:
    return any(
        (one.topic, one.partition) == place[:2] and one.start <= place[2] < one.until for one in record.window.ranges
    )


@pytest.mark.full
def test_totals_of_two_windows(make: Make, example: Example, ledger: str, spark: Any) -> None:
    play = make(example, ledger=LEDGERS[ledger])
    with_sink(play)
    play.produce(300)
    (first,) = play.ingest()
    assert by_reader(play) == by_oracle(play)
    play.produce(90)
    play.ingest()
    wanted = by_oracle(play)
    assert by_reader(play) == wanted

    # A replay of some of a window is one of the window: it replaces what that has contributed.
    (again,) = play.select(LaneKind.REPLAY, play.ranges(0, 0, (3, 5)))
    assert {(one.at, one.start, one.until) for one in again.window.ranges} == {
        (one.at, one.start, one.until) for one in first.window.ranges
    }
    assert by_reader(play) == wanted
    play.assert_exactly_what_was_read()

    # Spark's reader and the command line give the same, and the audit agrees.
    names = list(SINKS[example.name]["values"])
    frame = results(spark, play.opened, SINK)
    keys = len(frame.columns) - len(names)
    text = frame.select(*(column if column != "least" else frame[column].cast("string") for column in frame.columns))
    assert {tuple(row[:keys]): typed(dict(zip(names, row[keys:], strict=True))) for row in text.collect()} == wanted
    assert dict(frame.dtypes)["all"] == "decimal(38,0)"
    shown = asked("results", str(play.file), "--sink", SINK, "--limit", "1000")
    assert {tuple(one["key"].values()): typed(one["values"]) for one in shown} == wanted
    report = audit(play.opened, "audit")
    assert report.clean, report.sentence()
    place = report.places[2]
    assert (place.name, place.debris, place.unproven) == (SINK, 0, 0)
    assert place.found >= len(wanted)
    assert report.not_compared == ()
    # Without the messages nothing can be computed again, and the audit says so.
    report = audit(play.opened, "sinks", level=Level.SINKS)
    assert (report.clean, report.not_compared, report.places[2].unproven) == (True, (SINK,), place.found)
    assert f"not compared: {SINK}" in report.sentence()

    # A table keeps what it was made with.
    play.rewrite(sinks=[{"type": SINK, "table": table_of(play), **SINKS[example.name], "values": {"rows": "count"}}])
    play.produce(10)
    with pytest.raises(WrongUse, match="was made with values"):
        play.ingest()


CUTS = [
    (Step.SINK_STORED, 1),
    pytest.param(Step.SINK_STORED, 3, marks=pytest.mark.full),
    pytest.param(Step.VERIFIED, 1, marks=pytest.mark.full),
    pytest.param(Step.COMMITTED, 1, marks=pytest.mark.full),
]


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), CUTS, ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_leaves_contributions_that_do_not_count(make: Make, ledger: str, step: Step, times: int) -> None:
    play = make(CDN, ledger=LEDGERS[ledger])
    with_sink(play, first=times == 1)
    play.produce(120)
    run = play.new_run()
    crash(play, run, on_step=cut_after(step, times))
    assert by_reader(play) == by_oracle(play)
    play.produce(60)
    play.ingest(run)
    play.ingest()
    assert read_by([window.record for window in play.opened.book.committed()]) == 180
    assert by_reader(play) == by_oracle(play)
    play.assert_exactly_what_was_read()


@pytest.mark.covers("G2")
def test_a_window_is_corrected_by_a_replay(make: Make, ledger: str) -> None:
    play = make(CDN, ledger=LEDGERS[ledger])
    with_sink(play)
    play.produce(160)
    (first,) = play.ingest()
    play.produce(80)
    (second,) = play.ingest()
    before = by_reader(play)
    rows = play.expected().rows
    gone = max(row["host"] for row in rows.values() if "host" in row)

    # The bug fix: a host that should not have been there. Its keys vanish from what is made anew.
    fix = [{"invalid_when": "code = 0", "reason": "code is 0"}, {"invalid_when": f"host = '{gone}'", "reason": "gone"}]
    with_sink(play, checks=fix)
    run, some = play.new_run(), play.ranges(0, 0, (0, 1))
    with pytest.raises(Cut):
        play.select(LaneKind.REPLAY, some, run, on_step=cut_after(Step.SINK_STORED, 3))
    # Written, and not committed; then given up.
    assert by_reader(play) == before
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    assert protocol.abandon(play.opened.book, lane, "a test", take_over=True) is not None
    assert by_reader(play) == before
    pending = lanes.plan_lane(play.opened, lane, run)
    assert pending is not None
    (again,) = process_windows(play.opened, lane, pending.window.seq, run)
    kept = [row for place, row in rows.items() if not (row.get("host") == gone and inside(first, place))]
    half = sums(play, kept)
    assert by_reader(play) == half != before

    # An attempt that wakes up late, under a newer generation and an older one.
    key = row_key([gone.encode(), b"GET"])
    late = [(key, qualifier("ingest", 1), encode(5, "ingest", 1, 1, 1, [("rows", b"1000")]))]
    table(play).write(late, 5)
    table(play).write(late, 90_000_000_000_000)
    assert by_reader(play) == half

    # The audit finds the window that was not corrected, a cell that somebody has changed, and one that is gone.
    tamper(play, again.attempt.generation)
    report = audit(play.opened, "audit")
    place = report.places[2]
    assert place.extra > 0
    assert all(one.startswith(f"ingest/2 {gone}, ") for one in place.extra_at)
    assert (place.different, place.missing, place.debris, place.unproven) == (1, 1, 1, 0)
    assert place.different_at[0].startswith("ingest/1 ")
    # A replay of what it names repairs all of that.
    assert report.findings is not None
    found = play.opened.book.selection(report.findings)
    assert found == first.window.hull() | second.window.hull()
    play.select(LaneKind.REPLAY, found)
    good = {place: row for place, row in rows.items() if row.get("host") != gone}
    wanted = sums(play, good.values())
    assert by_reader(play) == wanted

    # What Kafka no longer has as a whole cannot be made anew, nor be proven.
    topic = play.topics[0]
    play.kafka.delete_records(topic, 0, 5)
    with pytest.raises(OffsetsOutOfRange, match=rf"needs whole windows.*{topic}/0 \[0, 5\) are gone"):
        play.select(LaneKind.REPLAY, play.ranges(0, 1, (0, 1)))
    assert by_reader(play) == wanted
    report = audit(play.opened, "audit again")
    assert report.clean, report.sentence()
    place = report.places[2]
    parts = [len(sums(play, [row for at, row in good.items() if inside(one, at)])) for one in (first, second)]
    assert [place.unproven, place.found] == parts


def tamper(play: Playground, generation: int) -> None:
    """Change one contribution that counts, and remove another."""
    connection = happybase.Connection("127.0.0.1", play.site.port("thrift"))
    source = connection.table(table_of(play))
    # As many salts in each region as it was made with.
    assert [region["start_key"] for region in source.regions()] == [b"", b"\x04", b"\x08", b"\x0c"]
    column = b"d:" + qualifier("ingest", 1)
    rows = [
        (row, cells[column][0])
        for row, cells in source.scan(row_stop=b"\x10", include_timestamp=True)
        if column in cells and cells[column][1] == generation
    ]
    (one, cell), (other, _) = rows[:2]
    source.put(one, {column: cell.replace(b"4:rows", b"4:Rows")}, timestamp=generation)
    source.delete(other, [column])
    connection.close()
