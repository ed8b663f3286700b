"""What an audit says of blocks that Kafka has forgotten: never a false alarm, and what was taken away is found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.protocol_world import LANE, RUN, NoWork, World
from tidemark.audit.deleted_messages import (
    MAX_TAKEN,
    BlockContents,
    BlockReport,
    WindowBlock,
    compare_rows,
    explained,
    window_blocks,
)
from tidemark.audit.report import AuditReport
from tidemark.commit.protocol import commit, take
from tidemark.ledger.codec import decode
from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import BlockTallies, Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.blocks import WHOLE, BlockTally, PartitionBlocks
from tidemark.offsets.hashing import coordinate_hash, row_hash
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally

AT = TopicPartition("logs", 0)
FIELDS = "digest of the fields"
SIZE = 100


def a_record() -> Record:
    world = World()
    world.open()
    return commit(world.ledger, take(world.ledger, LANE, world.pin(), RUN), NoWork().verify())


RECORD = a_record()

Row = tuple[int, int, int]  # (offset, index, what is in it)


def count(hashes: Iterable[int]) -> Count:
    known = list(hashes)
    return Count.of(len(known), reduce(int.__xor__, known, 0))


def digest(row: Row) -> int:
    return hash(row) & (1 << 64) - 1


def found(rows: Iterable[Row], said: Iterable[Row] | None = None) -> BlockContents:
    """What is there; `said` is what was stored, where somebody has changed it since."""
    there = list(rows)
    return BlockContents(
        rows=count(row_hash(coordinate_hash(AT, offset), index) for offset, index, _ in there),
        messages=count(coordinate_hash(AT, offset) for offset, index, _ in there if index == 0),
        said=count(digest(row) for row in (there if said is None else said)).ack,
        content=count(digest(row) for row in there).ack,
    )


@dataclass
class Sink:
    """Windows over one partition, and the rows that count."""

    windows: list[Committed] = field(default_factory=list)
    blocks: list[BlockTallies | None] = field(default_factory=list)
    rows: dict[int, list[Row]] = field(default_factory=dict)
    unproven: int = 0

    def process(self, covers: RangeSet, outcomes: dict[int, int], size: int = SIZE, fields: str = FIELDS) -> None:
        """A window that gives so many rows for each message; none are skipped messages."""
        generation = len(self.windows) + 1
        mine = {
            offset: [(offset, index, generation) for index in range(number)]
            for offset, number in outcomes.items()
            if (AT, offset) in covers
        }
        tallies = [
            BlockTally(block, rows.messages, rows.rows, rows.content)
            for block, rows in (
                (block, found(row for offset in mine if offset // size == block for row in mine[offset]))
                for block in sorted({offset // size for offset in mine})
            )
        ]
        whole = found(row for rows in mine.values() for row in rows)
        tally = PartitionTally(
            topic="logs",
            incarnation=1,
            partition=0,
            read=whole.messages,
            stored=whole.messages,
            rows=whole.rows,
            content=whole.content,
        )
        receipt = structs.replace(NoWork().verify(), tallies=(tally,), fields=fields)
        record = structs.replace(
            RECORD, receipt=receipt, attempt=structs.replace(RECORD.attempt, generation=generation)
        )
        self.windows.append(Committed(record, covers))
        self.blocks.append(
            None
            if size == WHOLE
            else BlockTallies(size=size, partitions=(PartitionBlocks("logs", 1, 0, tuple(tallies)),))
        )
        for offset in list(self.rows):
            if (AT, offset) in covers:
                del self.rows[offset]
        self.rows |= {offset: rows for offset, rows in mine.items() if rows}

    def window_blocks(self, forgotten: int) -> list[WindowBlock]:
        authority = Authority((one.record.attempt.generation, one.covers) for one in self.windows)
        gone = RangeSet([OffsetRange(AT, 0, forgotten)])
        return [
            block
            for window, blocks in zip(self.windows, self.blocks, strict=True)
            for block in window_blocks(window, blocks, authority, gone)
        ]

    def audit(
        self, forgotten: int, fields: str = FIELDS, stored: dict[int, list[Row]] | None = None
    ) -> list[BlockReport]:
        """`stored` is what was stored, where somebody has changed rows since."""
        reports = []
        for block in self.window_blocks(forgotten):
            here = [row for offset, rows in self.rows.items() if (AT, offset) in block.offsets for row in rows]
            said = None
            if stored is not None:
                said = [row for offset, rows in stored.items() if (AT, offset) in block.offsets for row in rows]
            taken = [row for offset, rows in self.rows.items() if (AT, offset) in block.taken for row in rows]
            there = replace(found(here, said), taken=found(taken).messages)
            verdict = compare_rows(block, there, fields)
            self.unproven += 0 if verdict.compared else block.offsets.count()
            reports.append(verdict.wrong)
        return [one for one in reports if one is not None]


def offsets(*intervals: tuple[int, int]) -> RangeSet:
    return RangeSet(OffsetRange(AT, start, until) for start, until in intervals)


def each(*intervals: tuple[int, int], rows: int = 1) -> dict[int, int]:
    return {offset: rows for start, until in intervals for offset in range(start, until)}


@pytest.fixture
def sink() -> Sink:
    """Offsets 0 to 449 in two windows."""
    made = Sink()
    made.process(offsets((0, 250)), each((0, 250)))
    made.process(offsets((250, 450)), each((250, 450)))
    return made


histories = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 290), st.integers(1, 150)), min_size=1, max_size=3),
        st.sampled_from([SIZE, 2 * SIZE, WHOLE]),
        st.dictionaries(st.integers(0, 300), st.integers(0, 3), max_size=20),
    ),
    max_size=4,
)


@pytest.mark.slow
@given(histories, st.integers(1, 300))
def test_replays_of_any_part_with_any_outcome_raise_no_false_alarm(
    history: list[tuple[list[tuple[int, int]], int, dict[int, int]]], forgotten: int
) -> None:
    made = Sink()
    made.process(offsets((0, 300)), each((0, 300)) | {7: 0, 8: 2, 150: 3})
    for lengths, size, other in history:
        covers = offsets(*((start, min(300, start + length)) for start, length in lengths))
        made.process(covers, each((0, 300)) | other, size)
    assert made.audit(forgotten) == []
    blocks = made.window_blocks(forgotten)
    # No offset is looked at for two windows.
    assert sum(block.offsets.count() for block in blocks) == RangeSet(one for b in blocks for one in b.offsets).count()


@given(st.integers(0, 449), st.integers(1, 450))
def test_a_row_that_was_taken_away_is_found_in_its_block(gone: int, forgotten: int) -> None:
    made = Sink()
    made.process(offsets((0, 250)), each((0, 250)))
    made.process(offsets((250, 450)), each((250, 450)))
    del made.rows[gone]
    block, window = (
        OffsetRange(AT, gone // SIZE * SIZE, gone // SIZE * SIZE + SIZE),
        (0, 250) if gone < 250 else (250, 450),
    )
    start, until = max(block.start, window[0]), min(block.until, window[1])
    # The block in which the log begins now is looked at as a whole.
    expected = [f"logs/0@{start}-{until} of window ingest/1: expected {until - start} rows, found {until - start - 1}"]
    assert [str(one) for one in made.audit(forgotten)] == (expected if start < forgotten else [])


def test_other_rows_in_equal_number_and_rows_too_many_are_found(sink: Sink) -> None:
    del sink.rows[120]
    sink.rows[121].append((121, 5, 1))
    sink.rows[340].append((340, 1, 2))
    assert [str(one) for one in sink.audit(450)] == [
        "logs/0@100-200 of window ingest/1: expected 100 rows, found 100, but not the same ones",
        "logs/0@300-400 of window ingest/1: expected 100 rows, found 101",
    ]


def test_a_window_of_an_older_version_is_one_block(sink: Sink) -> None:
    sink.blocks[0] = None
    del sink.rows[120]
    assert [one.at for one in sink.audit(10)] == ["logs/0@0-250"]


def test_changed_contents_are_found_while_the_fields_are_those_that_were_stored(sink: Sink) -> None:
    stored = dict(sink.rows)
    sink.rows[120] = [(120, 0, 99)]
    said = "logs/0@100-200 of window ingest/1: 100 rows, and the contents of some are not what was stored"
    assert [str(one) for one in sink.audit(450, stored=stored)] == [said]
    # What was stored with other fields cannot be digested anew; what the rows say of themselves still can be compared.
    assert sink.audit(450, "other fields", stored) == []
    assert [one.at for one in sink.audit(450, "other fields")] == ["logs/0@100-200"]


def test_of_a_block_with_a_replay_the_messages_are_compared(sink: Sink) -> None:
    sink.process(offsets((110, 112), (130, 131)), {110: 2, 111: 0, 130: 1})
    assert sink.audit(450) == []
    del sink.rows[199]
    assert [str(one) for one in sink.audit(450)] == [
        "logs/0@100-200 of window ingest/1: expected 100 messages, found 96"
    ]


def test_dead_letters_that_were_stored_at_last_raise_no_alarm() -> None:
    """They were not among the rows, and so none is missing for them."""
    made = Sink()
    made.process(offsets((0, 250)), each((0, 250)) | {50: 0, 60: 0})
    made.process(offsets((50, 51), (60, 61)), {50: 1, 60: 1})
    assert made.audit(450) == []
    assert {one.offsets.count() for one in made.window_blocks(450)} == {98, 100, 50, 2}


def test_a_replay_of_a_large_part_with_the_same_outcomes_leaves_the_rest_proven(sink: Sink) -> None:
    sink.process(offsets((100, 190)), each((100, 190)))
    assert (sink.audit(450), sink.unproven) == ([], 0)
    # Nobody can tell whether the replay has stored one message less, or somebody has deleted a row of the rest.
    del sink.rows[199]
    assert (sink.audit(450), sink.unproven) == ([], 10)
    del sink.rows[101]
    assert [one.at for one in sink.audit(450)] == ["logs/0@100-190"]


def test_a_window_that_has_not_finished_is_left_out(sink: Sink) -> None:
    first = sink.windows[0]
    sink.windows[0] = replace(first, record=structs.replace(first.record, receipt=None))
    assert [str(*one.offsets) for one in sink.window_blocks(450)] == [
        f"logs/0@{start}-{until}" for start, until in [(250, 300), (300, 400), (400, 450)]
    ]


@given(st.sets(st.integers(0, 60), max_size=MAX_TAKEN), st.data())
def test_a_difference_is_explained_by_some_of_the_offsets_that_were_taken_and_by_nothing_else(
    taken: set[int], data: st.DataObject
) -> None:
    known = RangeSet(OffsetRange(AT, one, one + 1) for one in taken)
    gone = data.draw(st.sets(st.sampled_from(sorted(taken)))) if taken else set()
    there = set(range(100, 130))

    def counted(chosen: set[int]) -> Count:
        return count(coordinate_hash(AT, one) for one in chosen)

    assert explained(counted(there | gone), counted(there), known)
    other = data.draw(st.integers(100, 140))
    assert not explained(counted(there | gone), counted(there ^ {other}), known)
    # The right XOR with a wrong number, as of a row that is there twice.
    assert not explained(counted(there | gone) + Count.of(2, 0), counted(there), known)


def test_a_report_of_an_older_version_is_read() -> None:
    """As it was stored before there were blocks."""
    place = dict.fromkeys(("expected", "found", "missing", "different", "extra", "twice", "debris"), 1)
    older = {
        "format": 1,
        "stream": "s",
        "run": "r",
        "at": 1,
        "code_version": "v",
        "expected": 1,
        "stored": 1,
        "dead_letters": 0,
        "skipped": 0,
        "unproven": 15,
        "coverage": [],
        "ledger_problems": [],
        "places": [{"name": "hbase", **place}],
    }
    report = decode(json.dumps(older).encode(), AuditReport, "a report")
    assert (report.unproven, report.by_tallies, report.places[0].blocks_at) == (15, 0, ())
    assert report.sentence().endswith("; 15 offsets are no longer in Kafka")
