"""Each requested offset gets exactly one answer, before a run and after it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tests.support.range_strategies import PARTITIONS, offsets, range_sets
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.ledger.records import LaneKind
from tidemark.offsets.hashing import coordinate_hash
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.planning.inputs import KafkaState
from tidemark.runs.requests.answers import (
    CUT,
    DEAD_LETTER,
    EXPIRED,
    GONE,
    INVISIBLE,
    MAX_LINES,
    NO_PARTITION,
    NOT_OF_THE_STREAM,
    NOT_READ,
    NOT_YET,
    READ_ALREADY,
    SKIPPED,
    STORED,
    THE_INGESTS,
    TO_READ,
    OffsetAnswer,
    after,
    answer_texts,
    before,
    dead_letter,
    describe_answers,
    exact,
    table,
    totals,
)

A = TopicPartition("a", 0)
numbers = st.integers(0, 45)
bounds = st.tuples(numbers, numbers).map(sorted)


@st.composite
def knowns(draw: st.DrawFn) -> KafkaState:
    """Some of the topics of `PARTITIONS`, with logs that may have been cut, and perhaps not all partitions chosen."""
    topics = draw(st.sets(st.sampled_from(["a", "a-b"])))
    newest = {topic: draw(st.sampled_from([1, 2])) for topic in topics}
    logs = {}
    for topic in sorted(draw(st.sets(st.sampled_from(sorted(topics))))) if topics else ():
        found = {number: draw(bounds) for number in draw(st.sets(st.integers(0, 1)))}
        logs[topic] = TopicLog("id", {number: PartitionLog(start, end, 0) for number, (start, end) in found.items()})
    starts = {at: draw(numbers) for at in PARTITIONS if newest.get(at.topic) == at.incarnation and draw(st.booleans())}
    chosen = draw(st.none() | st.dictionaries(st.sampled_from(["a", "a-b"]), st.sampled_from([(0,), (1,), (0, 1)])))
    return KafkaState(logs, {topic: newest[topic] for topic in logs}, newest=newest, starts=starts, chosen=chosen)


def expected(kind: LaneKind, at: TopicPartition, offset: int, known: KafkaState, read: bool, below: bool) -> str:
    """The answer to one offset, by its definition."""
    log = known.partitions().get(at)
    if at.topic not in known.newest:
        return NOT_OF_THE_STREAM
    if log is None:
        return GONE if read else NO_PARTITION
    if not read and at not in known.to_read():
        return NOT_OF_THE_STREAM
    if offset < known.begins(at, log):
        return EXPIRED if offset < log.start else CUT
    if offset >= log.end and not read:
        return NOT_YET
    why = READ_ALREADY if read else NOT_READ if below else THE_INGESTS
    return TO_READ if why == (READ_ALREADY if kind == LaneKind.REPLAY else NOT_READ) else why


@given(st.sampled_from([LaneKind.REPLAY, LaneKind.BACKFILL]), range_sets, knowns(), range_sets, range_sets)
def test_before_a_run(kind: LaneKind, wanted: RangeSet, known: KafkaState, read: RangeSet, below: RangeSet) -> None:
    ranges, left_out = before(kind, wanted, known, read, below)
    assert all(left_out.values())
    found = {why: offsets(part) for why, part in {TO_READ: ranges, **left_out}.items()}
    # Together they are the request, and none has two answers.
    assert sum(map(len, found.values())) == wanted.count()
    of_each = {place: why for why, places in found.items() for place in places}
    assert of_each == {
        (at, offset): expected(kind, at, offset, known, (at, offset) in read, (at, offset) in below)
        for at, offset in offsets(wanted)
    }


OUTCOMES = ("stored", "skipped", "dead", "dead again", "dead and read again", "absent")


@given(range_sets, st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=7), st.integers(1, 3))
def test_after_a_run(covers: RangeSet, outcomes: list[str], windows: int) -> None:
    became = {place: outcomes[number % len(outcomes)] for number, place in enumerate(sorted(offsets(covers)))}

    def these(at: TopicPartition, index: int, *kinds: str) -> int:
        return sum(
            1
            for number, (place, kind) in enumerate(became.items())
            if place[0] == at and number % windows == index and kind in kinds
        )

    tallies = [
        PartitionTally(
            topic=at.topic,
            incarnation=at.incarnation,
            partition=at.partition,
            read=Count(these(at, index, *OUTCOMES[:-1])),
            stored=Count(these(at, index, "stored")),
            skipped=Count(these(at, index, "skipped")),
            invalid=Count(these(at, index, "dead", "dead and read again")),
            failed=Count(these(at, index, "dead again")),
        )
        for at in covers.partitions
        for index in range(windows)
    ]

    def ranges(kind: str) -> RangeSet:
        return RangeSet(OffsetRange(at, offset, offset + 1) for (at, offset), one in became.items() if one == kind)

    again = dead_letter(2, 3)
    dead = {why: part for why, part in ((DEAD_LETTER, ranges("dead")), (again, ranges("dead again"))) if part}
    found = after(covers, tallies, dead)
    names = {"stored": STORED, "skipped": SKIPPED, "absent": INVISIBLE, "dead again": again}
    for at in covers.partitions:
        counted: dict[str, int] = {}
        for one in found:
            if one.within.partition == at:
                counted[one.answer] = counted.get(one.answer, 0) + one.offsets
        wanted: dict[str, int] = {}
        for place, kind in became.items():
            if place[0] == at:
                why = names.get(kind, DEAD_LETTER)
                wanted[why] = wanted.get(why, 0) + 1
        assert counted == wanted
    # An answer for all of its range is that of each offset in it, and the dead letters are always exact.
    for one in found:
        if one.offsets == len(one.within) and one.answer != DEAD_LETTER:
            kinds = {became.get((one.within.partition, n)) for n in range(one.within.start, one.within.until)}
            assert {names.get(str(kind), DEAD_LETTER) for kind in kinds} == {one.answer}
    told = RangeSet(one.within for one in found if one.answer == again)
    assert told == ranges("dead again")


def test_several_answers_of_one_partition_are_numbers_within_the_same_range() -> None:
    covers = RangeSet([OffsetRange(A, 10, 14), OffsetRange(A, 20, 26)])
    tally = PartitionTally(topic="a", incarnation=1, partition=0, read=Count(8), stored=Count(7), invalid=Count(1))
    dead = {dead_letter(1, 3): RangeSet([OffsetRange(A, 12, 13)])}
    assert after(covers, [tally], dead) == [
        OffsetAnswer(OffsetRange(A, 10, 26), 2, INVISIBLE),
        OffsetAnswer(OffsetRange(A, 10, 26), 7, STORED),
        OffsetAnswer(OffsetRange(A, 12, 13), 1, "found, a dead letter again: redrive 1 of 3"),
    ]


class _Tallies(list[PartitionTally]):
    """Tallies that count how often somebody looks through all of them."""

    looks = 0

    def __iter__(self) -> Iterator[PartitionTally]:
        self.looks += 1
        return super().__iter__()


def test_the_answers_of_many_partitions_look_at_each_tally_once() -> None:
    """A replay of a thousand partitions in a hundred windows has a hundred thousand tallies."""
    partitions = [TopicPartition("a", number) for number in range(20)]
    tallies = _Tallies(
        PartitionTally(topic="a", incarnation=1, partition=at.partition, read=Count(5), stored=Count(5))
        for at in partitions
        for _ in range(3)
    )
    found = after(RangeSet(OffsetRange(at, 0, 15) for at in partitions), tallies, {})
    assert found == [OffsetAnswer(OffsetRange(at, 0, 15), 15, STORED) for at in partitions]
    assert tallies.looks == 1


def test_answers_as_people_and_programs_read_them() -> None:
    part = RangeSet(OffsetRange(A, start, start + 1) for start in range(0, 14, 2))
    assert describe_answers({EXPIRED: part, NOT_YET: RangeSet([OffsetRange(A, 2**60, 2**60 + 5)])}) == (
        f"{EXPIRED}: a/0@0-1, a/0@2-3, a/0@4-5, a/0@6-7, a/0@8-9 and 2 more ranges; {NOT_YET}: a/0@{2**60}-{2**60 + 5}"
    )
    (one,) = exact({NOT_YET: RangeSet([OffsetRange(A, 2**60, 2**60 + 5)])})
    assert one.as_fields({}) == {
        "partition": "a/0",
        "from": str(2**60),
        "until": str(2**60 + 5),
        "offsets": 5,
        "answer": NOT_YET,
    }
    assert table([one, OffsetAnswer(OffsetRange(A, 7, 12), 3, STORED)], {}) == [
        "partition                 from                until  offsets  answer",
        f"a/0        {2**60}  {2**60 + 5}        5  {NOT_YET}",
        f"a/0                          7                   12        3  {STORED}",
    ]
    many = [OffsetAnswer(OffsetRange(A, n, n + 1), 1, STORED) for n in range(MAX_LINES + 2)]
    assert len(table(many[:-2], {})) == MAX_LINES + 1
    assert table(many, {})[-1] == "2 more lines"
    assert totals([one, *many[:3]]) == {NOT_YET: 5, STORED: 3}
    far = OffsetAnswer(OffsetRange(A, 0, 2**60), 2**53 + 1, STORED)
    assert answer_texts([far, one], {}, 1) == {
        "totals": {STORED: str(2**53 + 1), NOT_YET: "5"},
        "answers": [
            {"partition": "a/0", "from": "0", "until": str(2**60), "offsets": str(2**53 + 1), "answer": STORED}
        ],
    }


@given(range_sets, st.lists(st.sampled_from(["stored", "skipped", "absent"]), min_size=1, max_size=7))
def test_few_offsets_each_have_their_own_answer(covers: RangeSet, outcomes: list[str]) -> None:
    covers = RangeSet(one for at in covers.partitions for one in covers.only([at]).first(40))
    became = {place: outcomes[number % len(outcomes)] for number, place in enumerate(sorted(offsets(covers)))}

    def count(at: TopicPartition, *kinds: str) -> Count:
        these = [coordinate_hash(*place) for place, kind in became.items() if place[0] == at and kind in kinds]
        return Count.of(len(these), functools.reduce(operator.xor, these, 0))

    tallies = [
        PartitionTally(
            topic=at.topic,
            incarnation=at.incarnation,
            partition=at.partition,
            read=count(at, "stored", "skipped"),
            stored=count(at, "stored"),
            skipped=count(at, "skipped"),
        )
        for at in covers.partitions
    ]
    found = after(covers, tallies, {})
    assert all(one.offsets == len(one.within) for one in found)
    names = {"stored": STORED, "skipped": SKIPPED, "absent": INVISIBLE}
    assert {
        (one.within.partition, offset): one.answer
        for one in found
        for offset in range(one.within.start, one.within.until)
    } == {place: names[kind] for place, kind in became.items()}
