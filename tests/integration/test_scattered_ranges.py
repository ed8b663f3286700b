"""Selections of short and long ranges: each offset is read once, stored once and counted once, and a double read is refused."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.rows import messages_of, stream_of
from tidemark.audit.levels import Level
from tidemark.errors import VerificationFailed
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import RangeSet
from tidemark.planning import splitting
from tidemark.planning.splitting import Read
from tidemark.planning.splitting import reads as split
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.sink import HBaseAggregatesAdmin
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.pipeline import rows_of
from tidemark.spark.rows.tallying import tallies

STREAM: dict[str, Any] = {
    "source": {"start": "latest"},
    "scheme": {"type": "string"},
    "sinks": [{"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}
EXAMPLE = Example("ranges", STREAM, ("logs",), 3, lambda count, first: iter(()), lambda value: Outcome({}, None))
WORDS = [b"one", b"two", b"three"]


def with_aggregates(live: LiveStream) -> None:
    place = {"table": f"{live.name}_sums", "folder": f"{live.name}_sums"}
    sums = {"type": "hbase_aggregates", **place, "key": "value", "values": {"rows": "count"}}
    live.rewrite(sinks=[{"type": "parquet", "folder": live.name}, sums])


def word(offset: int) -> bytes:
    return WORDS[offset % len(WORDS)]


def places(wanted: RangeSet) -> set[tuple[str, int, int, int]]:
    return {
        (one.partition.topic, one.partition.partition, offset, 0)
        for one in wanted
        for offset in range(one.start, one.until)
    }


def counted(live: LiveStream) -> dict[str, int]:
    opened = live.opened
    (sink,) = [one for one in opened.stream.sinks if isinstance(one, HBaseAggregatesSink)]
    found = HBaseAggregatesAdmin().rows(opened, sink, 1_000)
    return {row["key"]["value"]: int(row["values"]["rows"]) for row in found}


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.covers("G1")
def test_short_and_long_ranges_are_stored_and_counted_once(make: Make) -> None:
    live = make(EXAMPLE)
    with_aggregates(live)
    sizes = {0: 10_070, 1: 20, 2: 40}
    live.kafka.send((live.topics[0], at, None, word(offset)) for at, size in sizes.items() for offset in range(size))
    # A start at the end: nothing is read, and all of it may be backfilled.
    assert live.ingest() == []
    wanted = live.ranges(0, 0, (0, 10), (20, 10_020), (10_050, 10_060))
    others = live.ranges(0, 1, (0, 5), (10, 11)) | live.ranges(0, 2, (1, 2), (5, 9), (30, 40))
    every = wanted | others
    words = Counter(word(offset).decode() for one in every for offset in range(one.start, one.until))

    # The first window has just these ranges, and their replay reads the same again.
    for kind in (LaneKind.BACKFILL, LaneKind.REPLAY):
        (record,) = live.select(kind, every)
        assert {tally.at.partition: tally.read.number for tally in record.tallies} == {0: 10_020, 1: 6, 2: 15}
        files = live.independent.parquet(["value"])
        assert len(files.rows) == every.count()
        assert {place for place, _ in files.rows} == places(every)
        assert counted(live) == words

    # The audit reads with the same code.
    report = audit(live.opened, "an audit", wanted)
    assert report.clean, report.sentence()
    assert (report.expected, report.stored) == (10_020, 10_020)


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.covers("N29")
def test_scattered_records_are_sought_and_nothing_else_is_stored(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    live = make(EXAMPLE)
    live.kafka.send((live.topics[0], at, None, word(offset)) for at in (0, 1) for offset in range(100_000))
    assert live.ingest() == []
    chance = random.Random(3)
    spans = [(start, start + 1) for start in chance.sample(range(0, 100_000, 2), 47)]
    # Two gaps that are read, and a long range between far records.
    wanted = live.ranges(0, 0, *spans, (50, 51), (53, 54), (56, 57)) | live.ranges(0, 1, *spans, (20_000, 33_000))
    reads: list[Read] = []

    def watched(wanted: RangeSet, *given: Any) -> list[Read]:
        reads[:] = split(wanted, *given)
        return reads

    monkeypatch.setattr(splitting, "reads", watched)
    (record,) = live.select(LaneKind.BACKFILL, wanted)
    assert sum(tally.read.number for tally in record.tallies) == wanted.count()
    assert {place for place, _ in live.independent.parquet(["value"]).rows} == places(wanted)
    # Many ranges of a partition share tasks, and what was read besides is a part of what lies between.
    assert any(one.tasks < len(one.ranges) > 20 for one in reads)
    read = RangeSet(one for of_read in reads for one in of_read.ranges)
    assert 50_000 > (read - wanted).count() > 0


@pytest.mark.usefixtures("spark")
@pytest.mark.covers("G1")
def test_a_window_that_is_read_twice_is_refused_and_leaves_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka has fewer messages than offsets here, so that their number alone does not tell."""
    live = make(EXAMPLE, source={"start": "earliest"})
    live.kafka.send((live.topics[0], 0, None, word(offset)) for offset in range(30))

    def first_twice(wanted: RangeSet, *given: Any) -> list[Read]:
        """As when a filtered read goes across one that is exact."""
        return [*split(wanted.first(5)), *split(wanted, *given)]

    monkeypatch.setattr(splitting, "reads", first_twice)
    with pytest.raises(VerificationFailed, match=rf"{live.topics[0]}/0: 5 messages came more than once"):
        live.ingest("a run")
    assert live.head().seq == 0
    assert not live.independent.parquet(["value"]).rows
    assert not live.independent.parquet(["value"]).debris

    monkeypatch.setattr(splitting, "reads", split)
    live.ingest("a run")
    assert len(live.independent.parquet(["value"]).rows) == 30
    monkeypatch.setattr(splitting, "reads", first_twice)
    with pytest.raises(VerificationFailed, match="5 messages came more than once"):
        audit(live.opened, "an audit", level=Level.RECOMPUTE)


@pytest.mark.full
@pytest.mark.covers("G1")
@pytest.mark.parametrize(
    "parts",
    [{}, {"explode": {"lines": "\n"}}, {"transform": {"sql": "SELECT * FROM messages", "fields": {"value": "string"}}}],
    ids=["one row each", "exploded", "transformed"],
)
def test_a_message_that_is_read_an_even_number_of_times_is_seen(spark: SparkSession, parts: dict[str, Any]) -> None:
    messages = messages_of(spark, [b"a\nb", b"c", b"d"] * 30)
    stream = stream_of(**parts)

    def read_of(messages: DataFrame) -> list[int]:
        rows = rows_of(messages, stream)
        found = tallies(rows.frame, rows.read)
        rows.close()
        return [tally.read.number for tally in found]

    assert read_of(messages) == [90]
    twice = messages.unionAll(messages.where("_offset in (63, 64)"))
    with pytest.raises(VerificationFailed, match=r"orders/0: 2 (messages|rows of messages) came more than once"):
        read_of(twice)


def test_a_row_that_comes_twice_is_seen(spark: SparkSession) -> None:
    rows = rows_of(messages_of(spark, [b"a\nb", b"c\nd"]), stream_of(explode={"lines": "\n"}))
    twice = rows.frame.unionAll(rows.frame.where("_index = 1"))
    with pytest.raises(VerificationFailed, match="orders/0: 2 rows of messages came more than once"):
        tallies(twice, rows.read)
    rows.close()
