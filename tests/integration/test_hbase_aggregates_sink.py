"""The sink `hbase_aggregates`: of each key the totals of all rows that count, as any `get` of HBase shows them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import happybase
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.command_line import asked
from tests.support.cuts import Cut, crash, cut_after, cuts, read_by
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS, Example, Fields, Place
from tidemark.audit.levels import Level
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.reading import Reading
from tidemark.runs.requests import keys
from tidemark.runs.windows import lanes
from tidemark.sinks.aggregates.folding import Folding
from tidemark.sinks.hbase.aggregates.publishing import OF_HISTORY, as_history
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.sink import HBaseAggregatesAdmin
from tidemark.sinks.hbase.keyed.encoding import encoded
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.compare import compare
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results
from tidemark.spark.sinks.aggregates.reading import key_totals, same_sum
from tidemark.types.fields import spark_type

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


def sink_of(live: LiveStream) -> dict[str, Any]:
    named = table_of(live)
    return {"type": SINK, "table": named, "folder": named, "regions": 4, **SINKS[live.example.name]}


def with_sink(live: LiveStream, *, first: bool = False, **changes: Any) -> None:
    """Give the stream the sink, besides its others."""
    mine = sink_of(live)
    others = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    live.rewrite(sinks=[mine, *others] if first else [*others, mine], **changes)


def key_of(live: LiveStream) -> list[str]:
    named = SINKS[live.example.name]["key"]
    return [named] if isinstance(named, str) else list(named)


def by_reader(live: LiveStream) -> Totals:
    """As `tidemark results` gives them."""
    shown = asked("results", str(live.file), "--sink", SINK, "--limit", "1000")
    return {tuple(one["key"].values()): typed(one["values"]) for one in shown}


def seen(live: LiveStream) -> Totals:
    """What HBase's own clients see: the cells of `d`, where null is an empty cell."""
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    rows = connection.table(table_of(live)).scan(row_stop=b"\x10", columns=[b"d"])
    found = {}
    for _, cells in rows:
        texts = {column[2:].decode(): value.decode() or None for column, value in cells.items()}
        key = tuple(texts.pop(name) for name in key_of(live))
        assert key not in found
        found[key] = typed(texts)
    connection.close()
    return found


def typed(values: dict[str, Any]) -> dict[str, Any]:
    types: dict[str, Any] = {"rows": int, "all": int, "most": float, "least": str}
    return {name: types[name](value) for name, value in values.items() if value is not None}


def sums(live: LiveStream, rows: Iterable[Fields]) -> Totals:
    """What the rows come to, by dictionaries."""
    given = SINKS[live.example.name]
    fields = {name: next(iter(said.values())) for name, said in given["values"].items() if said != "count"}
    found: Totals = {}
    for row in rows:
        total = found.setdefault(tuple(row.get(name) for name in key_of(live)), {"rows": 0})
        total["rows"] += 1
        for name, merge in (("all", lambda a, b: a + b), ("most", max), ("least", min)):
            if fields[name] in row:
                (value,) = typed({name: row[fields[name]]}).values()
                total[name] = merge(total[name], value) if name in total else value
    return found


def by_oracle(live: LiveStream) -> Totals:
    return sums(live, live.expected().rows.values())


def assert_totals(live: LiveStream, wanted: Totals | None = None) -> None:
    wanted = by_oracle(live) if wanted is None else wanted
    assert by_reader(live) == wanted
    assert seen(live) == wanted


@pytest.mark.full
def test_totals_of_two_windows(make: Make, example: Example, ledger: str, spark: Any) -> None:
    live = make(example, ledger=LEDGERS[ledger])
    with_sink(live)
    live.produce(300)
    live.ingest()
    assert_totals(live)
    live.produce(90)
    live.ingest()
    wanted = by_oracle(live)
    assert_totals(live, wanted)

    # A replay reads what was asked for, and counts nothing twice.
    (again,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 5)))
    assert live.opened.ledger.covers(again.window) == live.ranges(0, 0, (3, 5))
    assert_totals(live, wanted)
    live.assert_exactly_what_was_read()

    # Spark's reader gives the same, and the audit agrees, without the messages too.
    names = list(SINKS[example.name]["values"])
    frame = results(spark, live.opened, SINK)
    number = len(frame.columns) - len(names)
    text = frame.select(*(column if column != "least" else frame[column].cast("string") for column in frame.columns))
    found = {tuple(row[:number]): typed(dict(zip(names, row[number:], strict=True))) for row in text.collect()}
    assert found == wanted
    assert dict(frame.dtypes)["all"] == "decimal(38,0)"
    for run, level in (("audit", Level.FULL), ("sinks", Level.SINKS)):
        report = audit(live.opened, run, level=level)
        assert report.clean, report.sentence()
        place = report.places[2]
        assert (place.name, place.debris, place.missing, place.different) == (SINK, 0, 0, 0)
        assert report.not_compared == ()

    # A table keeps what it was made with.
    live.produce(10)
    live.rewrite(sinks=[{**sink_of(live), "values": {"rows": "count"}}])
    with pytest.raises(WrongUse, match="was made with the values"):
        live.ingest()


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), cuts(3), ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_shows_nothing_that_was_not_committed(make: Make, ledger: str, step: Step, times: int) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    with_sink(live, first=times == 1)
    live.produce(60)
    live.ingest()
    before = seen(live)
    live.produce(120)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step, times))
    assert by_reader(live) == by_oracle(live)
    if step not in (Step.COMMITTED, Step.PUBLISHED, Step.SWEPT, Step.SETTLED):
        assert seen(live) == before
    live.produce(60)
    live.ingest(run)
    live.ingest()
    assert read_by([window.record for window in live.opened.ledger.committed()]) == 240
    assert_totals(live)
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("G2", "G6")
def test_ten_records_are_corrected_by_a_replay(make: Make, ledger: str) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    with_sink(live)
    live.produce(162)
    live.ingest()
    live.produce(81)
    live.ingest()
    before = seen(live)
    rows = live.expected().rows
    assert before == sums(live, rows.values())
    gone = max(row["host"] for row in rows.values() if "host" in row)
    wrong = sorted(place for place, row in rows.items() if row.get("host") == gone)
    ten = wrong[::3][:10]
    assert len(ten) == 10

    # The bug fix: a host that should not have been there. Some of its keys vanish, of others a part goes.
    fix = [{"invalid_when": "code = 0", "reason": "code is 0"}, {"invalid_when": f"host = '{gone}'", "reason": "gone"}]
    with_sink(live, checks=fix)
    # What will change is said before.
    digest = live.opened.ledger.store_selection(offsets_of(ten)).digest
    said = compare(live.opened, "compared", digest).places[2]
    assert (said.name, said.before, said.after, said.gone, said.new) == (SINK, 10, 0, 10, 0)

    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, offsets_of(ten), run, on_step=cut_after(Step.SINK_STORED, 3))
    # Written, and not committed; then given up.
    assert by_reader(live) == seen(live) == before
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    assert protocol.abandon(live.opened.ledger, lane, "a test", take_over=True) is not None
    assert by_reader(live) == seen(live) == before
    pending = lanes.plan_lane(live.opened, lane, run)
    assert pending is not None
    (again,) = process_windows(live.opened, lane, pending.window.seq, run)
    # The ten, and nothing else.
    assert live.opened.ledger.covers(again.window) == offsets_of(ten)
    assert read_by([again]) == 10
    half = sums(live, (row for place, row in rows.items() if place not in ten))
    assert_totals(live, half)
    assert half != before

    # Somebody changes a total by hand, and removes another row. The audit names both, and what is left to be corrected.
    right = [place for place, row in rows.items() if row.get("host") not in (gone, None)]
    changed, removed = tamper(live, (rows[place]["host"] for place in right))
    report = audit(live.opened, "audit")
    place = report.places[2]
    left = [one for one in wrong if one not in ten]
    assert (place.different, place.missing, place.extra) == (1, 1, len(left))
    assert report.findings is not None
    found = live.opened.ledger.selection(report.findings)
    ends = [max(one for one in right if key_in(live, rows[one]) == key) for key in (changed, removed)]
    assert found == offsets_of([*left, *ends])
    # A replay of what it names repairs all of that.
    live.select(LaneKind.REPLAY, found)
    assert_totals(live, sums(live, (row for row in rows.values() if row.get("host") != gone)))
    report = audit(live.opened, "audit again")
    assert report.clean, report.sentence()


def offsets_of(places: Iterable[Place]) -> RangeSet:
    return RangeSet(OffsetRange(TopicPartition(place[0], place[1]), place[2], place[2] + 1) for place in places)


def key_in(live: LiveStream, row: Fields) -> tuple[str | None, ...]:
    return tuple(row.get(name) for name in key_of(live))


def tamper(live: LiveStream, hosts: Iterable[str]) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    """Change the total of one key of these hosts, and remove the row of another. Returns both keys."""
    wanted = {*hosts}
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    table = connection.table(table_of(live))
    rows = [*table.scan(row_stop=b"\x10", columns=[b"d"])]
    first, second = [row for row in rows if row[1][b"d:host"].decode() in wanted][:2]
    number = max(at for _, at in table.row(first[0], include_timestamp=True).values())
    table.put(first[0], {b"d:rows": b"1000"}, timestamp=number)
    table.delete(second[0])
    connection.close()
    names = [b"d:" + name.encode() for name in key_of(live)]
    changed, removed = (tuple(cells[name].decode() or None for name in names) for _, cells in (first, second))
    return changed, removed


@pytest.mark.full
@pytest.mark.covers("G2")
def test_a_key_that_is_published_late_is_counted_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process falls asleep between the commit and the publication; others publish its window, and it wakes up."""
    live = make(CDN)
    with_sink(live)
    live.produce(90)
    live.ingest()
    live.produce(60)
    run = live.new_run()
    crash(live, run, on_step=cut_after(Step.COMMITTED))
    late = live.head("ingest").last
    assert late is not None
    assert by_reader(live) == by_oracle(live) != seen(live)
    # A replay settles its own window, and takes in that of the ingest.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9)))
    assert_totals(live)
    live.produce(30)
    live.ingest()
    assert_totals(live)
    place = next(one for one in late.places if one.name == SINK)
    HBaseAggregatesAdmin().publish(live.opened.ledger, live.opened.connections, place.place, late)
    assert_totals(live)
    assert place.place["table"] == table_of(live)


STATES = (None, "0.0", "-0.0", "1.0", "1.0000000001", "1.00001", "-1.0", "1.0E300", "NaN", "Infinity", "-Infinity")


@pytest.mark.full
def test_sums_of_doubles_are_the_same_up_to_the_order_of_adding(spark: SparkSession) -> None:
    """Of each pair of texts, by the sum of the absolute values. A sum that is no number, or infinite, is like no other."""

    def close(one: str | None, two: str | None, scale: float) -> bool:
        if one is None or two is None or math.isinf(scale):
            return False
        difference = abs(float(one) - float(two))
        return math.isfinite(difference) and difference <= scale * 1e-9

    given = list(product(STATES, STATES, (0.0, 1.0, 1e6, math.inf)))
    made = [(one and one.encode(), two and two.encode(), scale) for one, two, scale in given]
    frame = spark.createDataFrame(made, "one binary, two binary, scale double")
    found = frame.select(same_sum(F.col("one"), F.col("two"), F.col("scale"))).collect()
    assert [row[0] for row in found] == [one == two or close(one, two, scale) for one, two, scale in given]


_ODD: dict[str, list[Any]] = {
    "integer": [None, 0, -1, 2**63 - 1, -(2**63), 2**53 + 1],
    "double": [None, 0.0, -0.0, 1.5, -1e300, math.nan, -math.nan, math.inf, -math.inf, 5e-324],
    "string": [None, "", "a", "B", "\u00e9", "\U0001f600", "\uffff"],
    "timestamp": [None, *(datetime(*at, tzinfo=UTC) for at in ((1, 1, 1), (1969, 12, 31, 23), (9999, 12, 31)))],
}


@pytest.mark.full
@pytest.mark.covers("G2")
def test_what_is_published_of_any_values_is_what_spark_makes_of_them(spark: SparkSession) -> None:
    """Each type as a key and as a value: totals of rows that are folded in pieces, against those of Spark's functions."""
    of = random.Random(7)
    fields: dict[str, str] = {"k": "double", **{f"f_{kind}": kind for kind in _ODD}}
    named = [("rows", "count")] + [(f"sum_{kind}", {"sum": f"f_{kind}"}) for kind in ("integer", "double")]
    named += [(f"{what}_{kind}", {what: f"f_{kind}"}) for what in ("min", "max") for kind in _ODD]
    for key in (["k"], ["f_string", "f_timestamp"], ["f_integer"]):
        settings = HBaseAggregatesSink(type=SINK, table="t", folder="t", key=key, values=dict(named))  # type: ignore[arg-type]
        rows = [
            {"k": of.choice(_ODD["double"]), **{f"f_{kind}": of.choice(odd) for kind, odd in _ODD.items()}}
            for _ in range(300)
        ]
        folding = Folding(fields, settings.key, settings.aggregates(fields), OF_HISTORY)
        more = {"_generation": 1, "_key_hash": 0, "_bucket": 0}
        numbered = [
            {**row, "_topic": "t", "_incarnation": 1, "_partition": 0, "_offset": number, "_index": 0, **more}
            for number, row in enumerate(rows)
        ]
        history = pa.Table.from_pylist(numbered, schema=folding.columns)
        pieces = [history.slice(start, 7) for start in range(0, 300, 7)]
        whole = folding.folded(pieces)
        made = encoded(as_history(whole), folding.shown, settings.key, SINK, by_topic=False)
        # A table of a lake has the totals alone, to which some rows come after others.
        totals_alone, there = replace(folding, kept=()), None
        for start in range(0, len(pieces), 9):
            there = totals_alone.folded(pieces[start : start + 9], there)
        assert there is not None
        exact = [name for name in totals_alone.result.names if name != "sum_double"]
        assert sorted(map(repr, there.select(exact).to_pylist())) == sorted(map(repr, whole.select(exact).to_pylist()))
        found = [{name: row.fields.get(name) for name in (*key, *settings.values)} for row in made.rows()]
        schema = ", ".join(f"`{name}` {spark_type(kind)}" for name, kind in fields.items())
        totals = key_totals(spark.createDataFrame(rows, schema), settings, fields)
        texts = totals.select(*(F.col(name).cast("string").alias(name) for name in totals.columns)).collect()
        wanted = [{name: None if one is None else one.encode() for name, one in row.asDict().items()} for row in texts]
        near = {"sum_double"}
        assert sorted(map(repr, _without(found, near))) == sorted(map(repr, _without(wanted, near)))
        for one in found:
            (other,) = (row for row in wanted if all(row[name] == one[name] for name in key))
            mine, theirs = (None if row["sum_double"] is None else float(row["sum_double"]) for row in (one, other))
            assert (
                mine == theirs
                or (mine is not None and theirs is not None and repr(mine) == repr(theirs))
                or (mine == pytest.approx(theirs))
            )


def _without(rows: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


@pytest.mark.full
@pytest.mark.covers("N27")
def test_what_is_erased_leaves_the_totals(make: Make) -> None:
    """And messages are found by their key. Nothing else is read again."""
    live = make(CDN)
    with_sink(live)
    live.kafka.send(
        (live.topics[0], 0, b"me" if number in (20, 33) else b"you", value)
        for number, (_, value) in enumerate(CDN.generate(50, 0))
    )
    live.ingest()
    erased = {(live.topics[0], 0, 20), (live.topics[0], 0, 33)}

    def left() -> list[Fields]:
        return [row for place, row in live.expected().rows.items() if place[:3] not in erased]

    found = keys.find_key(live.opened, keys.parse_key("me"), Reading())
    assert {(one.partition.topic, one.partition.partition, one.start) for one in found.offsets} == erased
    assert (found.read, found.unseen) == (50, 0)

    done = asked("erase", "--yes", str(live.file), "--key", "hex:6d65", "--reason", "request 4711")
    assert done["erased"]["offsets"] == 2
    assert_totals(live, sums(live, left()))
    report = audit(live.opened, "audit")
    assert (report.clean, report.erased) == (True, 2), report.sentence()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (21, 22), (34, 35)))
    assert_totals(live, sums(live, left()))
    assert audit(live.opened, "audit 2").clean
    (said,) = {one["remains"] for one in done["places"] if one["name"] == SINK}
    assert "until: tidemark compact" in said
