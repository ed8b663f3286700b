"""The sink `hbase_aggregates`: of each block one contribution to each key, which a replay of it replaces."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import permutations, product
from typing import Any

import happybase
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.command_line import asked
from tests.support.cuts import Cut, crash, cut_after, cuts, read_by
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS, Example, Fields, Place
from tidemark.audit.comparison import NOT_GIVEN_NOW
from tidemark.audit.levels import Level
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
from tidemark.errors import OffsetsOutOfRange, WrongUse
from tidemark.ledger.records import LaneKind, Record
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.reading import Reading
from tidemark.runs.requests import keys
from tidemark.runs.windows import lanes
from tidemark.sinks.hbase.aggregates.rows import block_qualifier, encode, row_key
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.states import Aggregate
from tidemark.sinks.hbase.aggregates.table import AggregateTable, aggregate_table, totals
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.compare import compare
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results
from tidemark.spark.sinks.hbase.aggregates.aggregating import chosen, contributions, with_unit_of_one
from tidemark.spark.sinks.hbase.aggregates.audit import _same_values, same_state

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


def table_of(live: LiveStream) -> str:
    return f"{live.name}_sums"


def with_sink(live: LiveStream, *, block: int = 20, first: bool = False, **changes: Any) -> None:
    """Give the stream the sink, besides its others."""
    mine = {"type": SINK, "table": table_of(live), "regions": 4, "block_offsets": block, **SINKS[live.example.name]}
    others = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    live.rewrite(sinks=[mine, *others] if first else [*others, mine], **changes)


def table(live: LiveStream) -> AggregateTable:
    return aggregate_table(live.opened.connections, "hbase_default", table_of(live))


def by_reader(live: LiveStream) -> Totals:
    opened = live.opened
    (sink,) = [one for one in opened.stream.sinks if isinstance(one, HBaseAggregatesSink)]
    found = totals(opened.book, table(live), sink.aggregates(opened.fields))
    return {
        tuple(part if part is None else part.decode() for part in key): typed(
            {name: state.decode() for name, state in values.items()}
        )
        for key, values in found
    }


def typed(values: dict[str, Any]) -> dict[str, Any]:
    types: dict[str, Any] = {"rows": int, "all": int, "most": float, "least": str}
    return {name: types[name](value) for name, value in values.items() if value is not None}


def sums(live: LiveStream, rows: Iterable[Fields]) -> Totals:
    """What the rows come to, by dictionaries."""
    given = SINKS[live.example.name]
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


def by_oracle(live: LiveStream) -> Totals:
    return sums(live, live.expected().rows.values())


def inside(record: Record, place: Place) -> bool:
    return any(
        (one.topic, one.partition) == place[:2] and one.start <= place[2] < one.until for one in record.window.ranges
    )


class Units:
    """What has one contribution to each key, from the windows that have read messages first, one message at a time."""

    def __init__(self, records: list[Record], block: int) -> None:
        self._of: dict[Place, tuple[Any, ...]] = {}
        for number, record in enumerate(records):
            for one in record.window.ranges:
                for offset in range(one.start, one.until):
                    self._of[one.topic, one.partition, offset, 0] = (number, one.topic, one.partition, offset // block)

    def of(self, place: Place) -> tuple[Any, ...]:
        return self._of[(*place[:3], 0)]

    def column(self, place: Place) -> bytes:
        return block_qualifier(TopicPartition(place[0], place[1]), self._start(self.of(place)))

    def _start(self, unit: tuple[Any, ...]) -> int:
        return min(one[2] for one, its in self._of.items() if its == unit)

    def named(self, place: Place) -> tuple[Any, ...]:
        """The unit as a comparison names it, after what it is ordered by."""
        start = self._start(self.of(place))
        return (*place[:2], start), f"block {place[0]}/{place[1]}@{start}"

    def whole(self, places: Iterable[Place]) -> RangeSet:
        touched = {self.of(place) for place in places}
        return offsets_of(one for one, unit in self._of.items() if unit in touched)


def offsets_of(places: Iterable[Place]) -> RangeSet:
    return RangeSet(OffsetRange(TopicPartition(one[0], one[1]), one[2], one[2] + 1) for one in places)


@pytest.mark.full
def test_totals_of_two_windows(make: Make, example: Example, ledger: str, spark: Any) -> None:
    live = make(example, ledger=LEDGERS[ledger])
    with_sink(live)
    live.produce(300)
    live.ingest()
    assert by_reader(live) == by_oracle(live)
    live.produce(90)
    live.ingest()
    wanted = by_oracle(live)
    assert by_reader(live) == wanted

    # A replay of some of a unit is one of the unit: it replaces what that has contributed.
    (again,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 5)))
    assert live.opened.book.covers(again.window) == live.ranges(0, 0, (0, 20))
    assert by_reader(live) == wanted
    live.assert_exactly_what_was_read()

    # Spark's reader and the command line give the same, and the audit agrees.
    names = list(SINKS[example.name]["values"])
    frame = results(spark, live.opened, SINK)
    keys = len(frame.columns) - len(names)
    text = frame.select(*(column if column != "least" else frame[column].cast("string") for column in frame.columns))
    assert {tuple(row[:keys]): typed(dict(zip(names, row[keys:], strict=True))) for row in text.collect()} == wanted
    assert dict(frame.dtypes)["all"] == "decimal(38,0)"
    shown = asked("results", str(live.file), "--sink", SINK, "--limit", "1000")
    assert {tuple(one["key"].values()): typed(one["values"]) for one in shown} == wanted
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    place = report.places[2]
    assert (place.name, place.debris, place.unproven) == (SINK, 0, 0)
    assert place.found >= len(wanted)
    assert report.not_compared == ()
    # Without the messages nothing can be computed again, and the audit says so.
    report = audit(live.opened, "sinks", level=Level.SINKS)
    assert (report.clean, report.not_compared, report.places[2].unproven) == (True, (SINK,), place.found)
    assert f"not compared: {SINK}" in report.sentence()

    # A table keeps what it was made with.
    mine = {"type": SINK, "table": table_of(live), "block_offsets": 20, **SINKS[example.name]}
    live.produce(10)
    for changed, name in (({"values": {"rows": "count"}}, "values"), ({"block_offsets": 21}, "block_offsets 20")):
        live.rewrite(sinks=[{**mine, **changed}])
        with pytest.raises(WrongUse, match=f"was made with {name}"):
            live.ingest()


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), cuts(3), ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_leaves_contributions_that_do_not_count(make: Make, ledger: str, step: Step, times: int) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    with_sink(live, first=times == 1)
    live.produce(120)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step, times))
    assert by_reader(live) == by_oracle(live)
    live.produce(60)
    live.ingest(run)
    live.ingest()
    assert read_by([window.record for window in live.opened.book.committed()]) == 180
    assert by_reader(live) == by_oracle(live)
    live.assert_exactly_what_was_read()


BLOCKS = [pytest.param(4, marks=pytest.mark.covers("G2", "G6")), pytest.param(1, marks=pytest.mark.full)]


@pytest.mark.parametrize("block", BLOCKS)
def test_ten_records_are_corrected_by_a_replay(make: Make, ledger: str, block: int) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    with_sink(live, block=block)
    live.produce(162)
    (first,) = live.ingest()
    live.produce(81)
    (second,) = live.ingest()
    units = Units([first, second], block)
    # Some blocks are divided: both windows have read a part.
    assert any(one.until % 4 for one in first.window.ranges)
    before = by_reader(live)
    rows = live.expected().rows
    assert before == sums(live, rows.values())
    gone = max(row["host"] for row in rows.values() if "host" in row)
    wrong = sorted(place for place, row in rows.items() if row.get("host") == gone)
    ten = [place for place in wrong if inside(first, place)][::3][:10]
    assert len(ten) == 10
    reads = units.whole(ten)

    # The bug fix: a host that should not have been there. Its keys vanish from what is made anew.
    fix = [{"invalid_when": "code = 0", "reason": "code is 0"}, {"invalid_when": f"host = '{gone}'", "reason": "gone"}]
    with_sink(live, block=block, checks=fix)
    # What will change is said before: in the touched units, only the keys that go.
    digest = live.opened.book.store_selection(reads).digest
    there = {
        (units.named(place), row.get("host"), row.get("method")) for place, row in rows.items() if at(place) in reads
    }
    goes = Counter(unit for unit, host, _ in there if host == gone)
    said = compare(live.opened, "compared", digest).places[2]
    counts = (said.before, said.after, said.same, said.changed, said.new, said.gone)
    assert counts == (len(there), len(there) - goes.total(), len(there) - goes.total(), 0, 0, goes.total())
    assert said.gone_because == {NOT_GIVEN_NOW: goes.total()}
    assert [(one.at, one.keys) for one in said.gone_at] == [(unit[1], goes[unit]) for unit in sorted(goes)]
    with_sink(live, block=7, checks=fix)
    with pytest.raises(WrongUse, match=f"was made with block_offsets {block}, the stream file says 7"):
        compare(live.opened, "with other blocks", digest, (SINK,))
    with_sink(live, block=block, checks=fix)

    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, offsets_of(ten), run, on_step=cut_after(Step.SINK_STORED, 3))
    # Written, and not committed; then given up.
    assert by_reader(live) == before
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    assert protocol.abandon(live.opened.book, lane, "a test", take_over=True) is not None
    assert by_reader(live) == before
    pending = lanes.plan_lane(live.opened, lane, run)
    assert pending is not None
    (again,) = process_windows(live.opened, lane, pending.window.seq, run)
    # All of the touched units and nothing else: with blocks of 1, exactly the ten.
    assert live.opened.book.covers(again.window) == reads
    assert (reads == offsets_of(ten)) == (block == 1)
    assert read_by([again]) == reads.count()
    half = sums(live, (row for place, row in rows.items() if place not in wrong or at(place) not in reads))
    assert by_reader(live) == half != before

    # An attempt that wakes up late, under a newer generation and an older one.
    column = units.column(ten[0])
    late = [(row_key([gone.encode(), b"GET"]), column, encode(5, "ingest", 1, 1, 1, [("rows", b"1000")]))]
    table(live).write(late, 5)
    table(live).write(late, 90_000_000_000_000)
    assert by_reader(live) == half

    # The audit finds the units that were not corrected, a cell that somebody has changed, and one that is gone.
    if block == 1:
        # Nothing is left of what was corrected: the cells are of others.
        changed = tamper(live, first, {units.column(one) for one in ten})
    else:
        changed = tamper(live, again)
    report = audit(live.opened, "audit")
    place = report.places[2]
    left = [one for one in wrong if at(one) not in reads]
    keys = {(units.of(one), rows[one]["method"]) for one in left}
    assert place.extra == len(keys)
    assert all(f" {gone}, " in one for one in place.extra_at)
    assert (place.different, place.missing, place.debris, place.unproven) == (1, 1, 1, 0)
    # A replay of what it names repairs all of that.
    assert report.findings is not None
    found = live.opened.book.selection(report.findings)
    tampered = [one for one in rows if units.column(one) in changed]
    assert found == units.whole([*left, *tampered])
    live.select(LaneKind.REPLAY, found)
    good = {place: row for place, row in rows.items() if row.get("host") != gone}
    wanted = sums(live, good.values())
    assert by_reader(live) == wanted

    # What Kafka no longer has as a whole cannot be made anew, nor be proven.
    topic = live.topics[0]
    live.kafka.delete_records(topic, 0, 5)
    if block != 1:
        with pytest.raises(OffsetsOutOfRange, match=rf"needs whole .*{topic}/0@4-5 are gone"):
            live.select(LaneKind.REPLAY, live.ranges(0, 0, (6, 7)))
    assert by_reader(live) == wanted
    report = audit(live.opened, "audit again")
    assert report.clean, report.sentence()
    unproven = {units.of((topic, 0, offset, 0)) for offset in range(5)}
    parts = {(units.of(one), row.get("host"), row.get("method")) for one, row in good.items()}
    place = report.places[2]
    assert place.unproven == sum(unit in unproven for unit, *_ in parts) > 0
    assert place.found == len(parts) - place.unproven


STATES = (None, "0.0", "-0.0", "1.0", "1.0000000001", "1.00001", "-1.0", "1.0E300", "NaN", "Infinity", "-Infinity")


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6, math.inf])
def test_sums_of_doubles_are_the_same_up_to_the_order_of_adding(spark: SparkSession, scale: float) -> None:
    """Of each pair of states, by the sum of the absolute values. A sum that is no number, or infinite, is like no other."""

    def close(one: str | None, two: str | None) -> bool:
        if one is None or two is None or math.isinf(scale):
            return False
        difference = abs(float(one) - float(two))
        return math.isfinite(difference) and difference <= scale * 1e-9

    def zeros(one: str | None, two: str | None) -> bool:
        return {one, two} <= {"0.0", "-0.0"}

    pairs = list(product(STATES, repeat=2))
    made = [tuple(one and one.encode() for one in pair) for pair in pairs]
    frame = spark.createDataFrame(made, "one binary, two binary")
    summed, most = (Aggregate(function, function, "amount", "double") for function in ("sum", "max"))
    states = (F.col("one"), F.col("two"))
    found = frame.select(same_state(summed, *states, F.lit(scale)), same_state(most, *states)).collect()
    wanted = [(one == two or close(one, two), one == two or zeros(one, two)) for one, two in pairs]
    assert [tuple(row) for row in found] == wanted


@pytest.mark.full
def test_contributions_that_depend_on_the_order_of_rows_are_no_difference(spark: SparkSession) -> None:
    """Of the same rows in each order: a sum that cancels out, and the least and the most of two zeros."""
    aggregates = [Aggregate(one, one, "amount", "double") for one in ("sum", "min", "max")]
    given: dict[str, list[list[float]]] = {
        "cancels": [list(one) for one in permutations((1e9 + 0.1, 0.2, -1e9 - 0.3))],
        "zeros": [[0.0, -0.0], [-0.0, 0.0]],
    }
    for name, orders in given.items():
        made = []
        for amounts in orders:
            columns = "_topic string, _incarnation int, _partition int, _offset long, _index int, _message_hash long"
            rows = [("t", 1, 0, number, 0, number, number, number, one) for number, one in enumerate(amounts)]
            frame = spark.createDataFrame(rows, f"{columns}, _row_hash long, _digest long, amount double").coalesce(1)
            chosen_rows = with_unit_of_one(chosen(frame, [], aggregates), 100)
            made.append(contributions(chosen_rows, 0, aggregates, scales=True))
        if name == "cancels":
            assert len({one.collect()[0]["value_0"] for one in made}) > 1, "the order has to matter"
        for one, two in product(made, repeat=2):
            both = one.alias("left").crossJoin(two.alias("right"))
            assert list(both.select(*_same_values(aggregates)).collect()[0]) == [True] * 3, name


def at(place: Place) -> tuple[TopicPartition, int]:
    return TopicPartition(place[0], place[1]), place[2]


def tamper(live: LiveStream, window: Record, besides: Collection[bytes] = ()) -> set[bytes]:
    """Change one contribution of a window, and remove another, in columns `besides` these. Gives their columns."""
    generation = window.attempt.generation
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    source = connection.table(table_of(live))
    # As many salts in each region as it was made with.
    assert [region["start_key"] for region in source.regions()] == [b"", b"\x04", b"\x08", b"\x0c"]
    found = [
        (row, column, cell)
        for row, cells in source.scan(row_stop=b"\x10", include_timestamp=True)
        for column, (cell, timestamp) in cells.items()
        if timestamp == generation and column[2:] not in besides
    ]
    (one, changed, cell), (other, removed, _) = found[:2]
    source.put(one, {changed: cell.replace(b"4:rows", b"4:Rows")}, timestamp=generation)
    source.delete(other, [removed])
    connection.close()
    return {changed[2:], removed[2:]}


def generations_in(live: LiveStream) -> set[int]:
    """Of all versions of all contributions."""
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    source = connection.table(table_of(live))
    found = {
        timestamp
        for row, cells in source.scan(row_stop=b"\x10")
        for column in cells
        for _, timestamp in source.cells(row, column, versions=99, include_timestamp=True)
    }
    connection.close()
    return found


@pytest.mark.full
@pytest.mark.covers("N27")
def test_what_is_erased_leaves_the_aggregates(make: Make) -> None:
    """And messages are found by their key. The rest of their blocks is read again."""
    live = make(CDN)
    with_sink(live, block=10)
    live.kafka.send(
        (live.topics[0], 0, b"me" if number in (20, 33) else b"you", value)
        for number, (_, value) in enumerate(CDN.generate(50, 0))
    )
    (ingested,) = live.ingest()
    first = ingested.attempt.generation
    erased = {(live.topics[0], 0, 20), (live.topics[0], 0, 33)}

    def left() -> list[Fields]:
        return [row for place, row in live.expected().rows.items() if place[:3] not in erased]

    found = keys.find_key(live.opened, keys.parse_key("me"), Reading())
    assert {(one.partition.topic, one.partition.partition, one.start) for one in found.offsets} == erased
    assert (found.read, found.unseen) == (50, 0)

    done = asked("erase", "--yes", str(live.file), "--key", "hex:6d65", "--reason", "request 4711")
    assert (done["erased"]["offsets"], done["read_again"]["offsets"]) == (2, 18)
    assert by_reader(live) == sums(live, left())
    # Not only hidden: nothing that was made of the erased messages is in the table.
    last = live.head(done["lane"]).last
    assert last is not None
    assert generations_in(live) == {last.attempt.generation, first}
    report = audit(live.opened, "audit")
    assert (report.clean, report.erased) == (True, 2), report.sentence()
    # The first offset of a block is erased, and the block's next replay writes where it was.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (21, 22), (34, 35)))
    assert by_reader(live) == sums(live, left())
    assert audit(live.opened, "audit 2").clean
    assert {one["place"].get("table"): one["remains"] for one in done["places"]}[table_of(live)] == ""
