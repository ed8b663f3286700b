"""Digests of blocks before rows: an audit finds the same as a comparison of all rows, and reads less where nothing is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.waiting import until
from tidemark.ledger.ledger import Ledger, LedgerSnapshot
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.spark.audit.deleted_messages import DeletedOffsets, PlaceBlocks
from tidemark.spark.audit.differences import (
    Audit,
    AuditedPlace,
    RowsAt,
    compare_place,
    compare_rows,
    read_beforehand,
    sums_expected,
)
from tidemark.spark.columns import AT, DIGEST, INDEX, OFFSET, row_hash
from tidemark.spark.readers.places import COUNTS, FOUND_DIGEST
from tidemark.spark.rows.selecting import only

PARTITIONS = [TopicPartition("logs", 0), TopicPartition("logs", 1), TopicPartition("sparse", 0, 2)]
PLACE = f"{AT[0]} string, {AT[1]} int, {AT[2]} int, {OFFSET} long, {INDEX} int"
EXPECTED = f"{PLACE}, {DIGEST} long"
FOUND = f"{PLACE}, {COUNTS} boolean, {DIGEST} long, {FOUND_DIGEST} long"
SIZE = 50

Key = tuple[str, int, int, int, int]


@dataclass
class Case:
    """Rows to expect, and rows as they are found, with faults in some of them."""

    expected: dict[Key, int]
    found: list[tuple[Any, ...]]
    in_kafka: RangeSet
    compacted: tuple[str, ...]
    messages: list[tuple[Any, ...]]


def case(seed: int) -> Case:
    given = random.Random(seed)
    expected: dict[Key, int] = {}
    for at in PARTITIONS:
        for offset in range(0, 400, 3 if at.topic == "sparse" else 1):
            for index in range(given.choice([0, 1, 1, 1, 3])):
                expected[at.topic, at.incarnation, at.partition, offset, index] = given.getrandbits(62)
    # Kafka has deleted the first ones, not at the border of a block; and some offsets were not asked for.
    in_kafka = RangeSet(
        OffsetRange(at, start, until)
        for at in PARTITIONS
        for start, until in ((given.randrange(60), 180), (190, given.randrange(300, 400)))
    )
    compacted = ("sparse",) if seed % 2 else ()
    messages = list(dict.fromkeys(key[:4] for key in expected))
    found: list[tuple[Any, ...]] = [(*key, True, digest, digest) for key, digest in expected.items()]
    made = Case(expected, found, in_kafka, compacted, messages)
    for _ in range(given.choice([0, 1, 3, 12])):
        FAULTS[given.choice(sorted(FAULTS))](made, given.randrange(len(found)), given.randrange(len(found)))
    return made


def lose(made: Case, number: int, _: int) -> None:
    del made.found[number]


def change(made: Case, number: int, _: int) -> None:
    *place, said, digest = made.found[number]
    made.found[number] = (*place, said, (digest or 0) + 1)


def change_mark(made: Case, number: int, _: int) -> None:
    *place, said, digest = made.found[number]
    made.found[number] = (*place, (said or 0) + 1, digest)


def double(made: Case, number: int, _: int) -> None:
    made.found.append(made.found[number])


def triple(made: Case, number: int, _: int) -> None:
    made.found += [made.found[number]] * 2


def invent(made: Case, number: int, _: int) -> None:
    made.found.append((*made.found[number][:4], 9, True, 5, 5))


def leave_debris(made: Case, number: int, _: int) -> None:
    made.found.append((*made.found[number][:5], False, None, None))


def swap(made: Case, number: int, other: int) -> None:
    """The marks of two rows: an XOR of what the marks say would not see it."""
    one, two = made.found[number], made.found[other]
    if one[5] and two[5]:
        made.found[number], made.found[other] = (*one[:6], two[6], one[7]), (*two[:6], one[6], two[7])


def compact(made: Case, number: int, _: int) -> None:
    """Compaction removes the row's message from Kafka, and the row stays."""
    at = made.found[number][:4]
    if at[0] in made.compacted:
        made.messages[:] = [one for one in made.messages if one != at]
        for key in [one for one in made.expected if one[:4] == at]:
            del made.expected[key]


Fault = Callable[[Case, int, int], None]
FAULTS: dict[str, Fault] = {
    one.__name__: one for one in (lose, change, change_mark, double, triple, invent, leave_debris, swap, compact)
}


def place_of(spark: SparkSession, made: Case) -> tuple[Audit, DataFrame, RowsAt, list[RangeSet | None]]:
    expected = spark.createDataFrame([(*key, digest) for key, digest in made.expected.items()], EXPECTED)
    messages = spark.createDataFrame(made.messages, PLACE.rpartition(",")[0])
    rows = spark.createDataFrame(made.found, FOUND)
    asked: list[RangeSet | None] = []

    def at(some: RangeSet | None) -> DataFrame:
        asked.append(some)
        return rows

    opened = cast(OpenStream, None)
    none = DeletedOffsets(cast(Ledger, None), LedgerSnapshot([], Authority([]), {}, 0), (), RangeSet(), (), "")
    audit = Audit(
        spark,
        opened,
        SimpleNamespace(frame=messages, dead_letters=None),
        made.in_kafka,
        made.compacted,
        RangeSet(),
        none,
        None,
        None,
        block_size=SIZE,
    )
    return audit, only(expected, made.in_kafka), at, asked


def by_blocks(audit: Audit, expected: DataFrame, rows: RowsAt) -> AuditedPlace:
    blocks = PlaceBlocks(audit.forgotten.ledger, audit.forgotten.view, (), lambda *_: pytest.fail("no blocks"))
    return compare_place(audit, "sink", lambda: expected, rows, blocks, None)


# The short ones have each fault that the others have, and one has none.
SHORT, LONG = pytest.mark.covers("N28"), pytest.mark.full


@pytest.mark.parametrize("seed", [pytest.param(one, marks=SHORT if one in (0, 1, 4, 7) else LONG) for one in range(8)])
def test_blocks_first_finds_what_a_comparison_of_all_rows_finds(spark: SparkSession, seed: int) -> None:
    made = case(seed)
    audit, expected, rows, asked = place_of(spark, made)
    found = by_blocks(audit, expected, rows)
    every = compare_rows(audit, expected, rows, made.in_kafka, None)
    report = found.report
    assert report.differences == sum(every.numbers.values())
    for kind, number in every.numbers.items():
        assert getattr(report, kind) == number
        assert getattr(report, f"{kind}_at") == every.at[kind]
    assert sorted(map(str, found.findings)) == sorted(map(str, every.findings))
    assert (report.expected, report.found, report.compacted) == (every.expected, every.found, every.compacted)
    assert report.debris == sum(not row[5] for row in made.found)
    # Rows are read again at the blocks that differ, and not at all if none does.
    narrowed = asked[1:-1]
    touched = {(at, offset // SIZE) for one in found.findings for at, offset in [(one.partition, one.start)]}
    assert len(narrowed) <= 1
    if not report.differences and not report.compacted:
        assert not narrowed
    for some in narrowed:
        assert some is not None
        blocks = {(one.partition, block) for one in some for block in range(one.start // SIZE, -(-one.until // SIZE))}
        assert touched <= blocks
        assert len(blocks) <= 12


def test_rows_that_were_read_beforehand_are_read_again_for_whoever_asks_again(spark: SparkSession) -> None:
    """A second look is for what has changed since the first one."""
    some, others = RangeSet([OffsetRange(PARTITIONS[0], 0, 9)]), RangeSet([OffsetRange(PARTITIONS[0], 3, 5)])
    asked: list[RangeSet | None] = []

    def rows_at(offsets: RangeSet | None) -> DataFrame:
        asked.append(offsets)
        return spark.range(len(asked))

    with ThreadPoolExecutor(1) as beside:
        rows = read_beforehand(spark, rows_at, some, beside)
        until(lambda: asked, "reading has not begun")
        assert [rows(others).count(), rows(some).count(), rows(some).count()] == [2, 1, 3]
    assert asked == [some, others, some]


@pytest.mark.full
def test_a_row_with_other_contents_and_a_mark_that_agrees_is_found(spark: SparkSession) -> None:
    """As today's code, or other code, has written it: number, identity and marks are right."""
    made = next(
        one
        for one in map(case, range(50))
        if len(one.found) == len(one.expected)
        and all(one.expected.get(row[:5]) == row[6] == row[7] for row in one.found)
    )
    number, row = next(
        (number, row)
        for number, row in enumerate(made.found)
        if (TopicPartition(row[0], row[2], row[1]), row[3]) in made.in_kafka
    )
    made.found[number] = (*row[:6], row[6] + 1, row[7] + 1)
    audit, expected, rows, _ = place_of(spark, made)
    report = by_blocks(audit, expected, rows).report
    assert (report.different, report.differences) == (1, 1)


@pytest.mark.full
def test_the_sums_of_no_rows(spark: SparkSession) -> None:
    assert sums_expected(spark.createDataFrame([], EXPECTED), SIZE, row_hash()) == {}
