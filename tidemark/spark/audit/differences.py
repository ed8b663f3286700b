"""One place of an audit: the rows that should be there, against those that are there, by coordinate and index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Protocol

from msgspec import structs
from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tidemark.audit.report import MAX_FINDINGS, SHOWN_COORDINATES, PlaceReport
from tidemark.audit.unchanged_data import CountedRange
from tidemark.ledger.ledger import Ledger, LedgerSnapshot
from tidemark.offsets.blocks import BLOCK_OFFSETS, PartitionBlocks
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import MAX_OFFSET, Interval, RangeSet, TopicPartition
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.reading import RowsByOffset, pieces
from tidemark.spark.audit.deleted_messages import BlockComparison, DeletedOffsets, PlaceBlocks
from tidemark.spark.columns import AT, BLOCK, COORDINATE, DIGEST, INDEX, message_hash, row_hash
from tidemark.spark.readers.places import COUNTS, FOUND_DIGEST, Digested, hbase_places
from tidemark.spark.rows import outcomes
from tidemark.spark.rows.selecting import marked, only
from tidemark.spark.rows.tallying import block_of
from tidemark.spark.runtime.session import setting

# As many rows are read in the time that a scan takes to begin.
_SCAN_ROWS = 500
_KEY = [*COORDINATE, INDEX]
# Why a row is not there, for a place that deletes rows by itself.
WHY, EXPIRED, REPLACED = "_why", "expired", "replaced"
# Takes rows that are not there (coordinate and INDEX); returns those that the place has deleted by itself, with WHY.
Deleted = Callable[[DataFrame], DataFrame]
# Returns the rows of a place at some offsets, or of more of them; or all rows.
RowsAt = Callable[[RangeSet | None], DataFrame]
# A block of offsets: its partition and number.
Block = tuple[TopicPartition, int]
_EXPECTED, _FOUND, _SAID, _ROWS, _INSIDE, _TALLIED = (
    "_expected",
    "_found",
    "_said",
    "_rows",
    "_inside",
    "_tallied",
)
_KINDS = ("missing", "different", "extra", "twice")


@dataclass(frozen=True)
class BlockSums:
    """The rows of a block: their number, the XOR of their hashes, and that of the digests of their contents.

    A digest covers the coordinate, so rows that swap their contents have other digests. `unlike` rows have marks that do
    not say the digest of their contents.
    """

    rows: int
    ack: int
    content: int
    unlike: int = 0

    @classmethod
    def of(cls, rows: int, ack: int | None, content: int | None, unlike: int = 0) -> BlockSums:
        """From Spark's signed XORs, which are null over nothing."""
        return cls(rows, unsigned(ack or 0), unsigned(content or 0), unlike)

    def __add__(self, other: BlockSums) -> BlockSums:
        """The sums of the rows of both."""
        return BlockSums(
            self.rows + other.rows, self.ack ^ other.ack, self.content ^ other.content, self.unlike + other.unlike
        )


def sums_of(blocks: Iterable[PartitionBlocks]) -> dict[Block, BlockSums]:
    """The sums of the rows to expect, from the tallies of the blocks of all messages."""
    return {
        (block.at, tally.block): BlockSums(tally.rows.number, int(tally.rows.ack, 16), int(tally.content, 16))
        for block in blocks
        for tally in block.blocks
    }


@dataclass(frozen=True)
class DeadLetterSums:
    """The sums of the dead letters to expect. `ack` is of the hashes of messages.

    Tallies have no contents of dead letters: `content` leaves out those at the offsets `tallied`.
    """

    sums: Mapping[Block, BlockSums]
    tallied: RangeSet


def dead_letter_sums(known: Sequence[CountedRange], others: DataFrame | None, size: int) -> DeadLetterSums:
    """The sums of the dead letters of `known` stretches, and of other ones, with their digests."""
    sums = {} if others is None else sums_expected(others, size, message_hash())
    for one in known:
        for tally in one.blocks:
            here = BlockSums(tally.dead_letters.number, int(tally.dead_letters.ack, 16), 0)
            block = (one.at, tally.block)
            sums[block] = sums[block] + here if block in sums else here
    return DeadLetterSums(sums, RangeSet(one.offsets for one in known))


@dataclass(frozen=True)
class AuditedPlace:
    """An audit's report on one place, and the offsets that a replay would repair."""

    report: PlaceReport
    findings: RangeSet
    by_blocks: BlockComparison


class ExpectedRows(Protocol):
    """The expected outcomes of messages."""

    @property
    def tallies(self) -> Sequence[PartitionTally]: ...

    @property
    def frame(self) -> DataFrame:
        """The rows of all messages, as `outcomes` describes them."""
        ...

    @property
    def dead_letters(self) -> DataFrame: ...


@dataclass(frozen=True)
class Audit:
    """The expectation that an audit compares every place with.

    `expected` has the rows that Kafka's messages give, at the offsets `in_kafka`, and computes them if asked. For
    `compacted` topics, only the remaining messages can be compared. At the offsets `uncommitted`, an attempt may have
    written rows without committing them.
    """

    spark: SparkSession
    opened: OpenStream
    expected: ExpectedRows
    in_kafka: RangeSet
    compacted: Collection[str]
    uncommitted: RangeSet
    forgotten: DeletedOffsets
    # The offsets whose rows are compared; None for all of them.
    some: RangeSet | None = None
    # The sums of the blocks of `stored`, as the pass over the messages has given them.
    sums: Mapping[Block, BlockSums] | None = None
    # Offsets in a block whose digests are compared before its rows.
    block_size: int = BLOCK_OFFSETS
    # The ledger as the audit has read it, from which the expectation comes. None: as it is now.
    view: LedgerSnapshot | None = None

    def changed(self) -> RangeSet:
        """The offsets of windows that were committed since the audit has read the ledger.

        A difference there says nothing: the row that counts now is not the one that was expected.
        """
        return RangeSet() if self.view is None else self.opened.ledger.covered_since(self.view)

    @property
    def messages(self) -> DataFrame:
        """The rows of all messages, as `outcomes` describes them. Asking for them may compute them."""
        return self.expected.frame

    @property
    def stored(self) -> DataFrame:
        """The rows that a sink should hold, with their fields."""
        return outcomes.stored(self.messages)

    def rows_of(self, sink: str, rows: DataFrame | RowsAt, place: Mapping[str, str]) -> AuditedPlace:
        """Compare a sink's rows, with the columns of `readers.places`. `place` is the sink's place as receipts name it."""
        blocks = self.forgotten.of_sink(sink, place)
        return compare_place(self, sink, lambda: self.stored, _at(rows), blocks, self.sums)

    def beside(self, audited: AuditedPlace, others: Callable[[], int]) -> AuditedPlace:
        """With the rows of other programs in a table counted as debris, where the whole place was looked at."""
        if self.some is not None:
            return audited
        report = structs.replace(audited.report, debris=audited.report.debris + others())
        return replace(audited, report=report)

    def dead_letters_of(
        self,
        place: Mapping[str, str],
        expected: Callable[[], DataFrame],
        rows: RowsAt,
        known: DeadLetterSums | None,
        beside: Executor,
    ) -> Callable[[], AuditedPlace]:
        """Begin to read the dead letters at a place, `beside` all else. The function that it returns compares them.

        `place` is theirs as receipts name it. `expected` returns the dead letters, with their digests.
        """
        blocks = self.forgotten.of_dead_letters(place)
        sums, tallied = (None, RangeSet()) if known is None else (known.sums, known.tallied)
        # They are one for each message. Tallies have the hashes of messages.
        read = inheritable_thread_target(self.spark)(_read)
        begun = beside.submit(read, self, rows, blocks, message_hash(), tallied)
        return lambda: _compare(self, "dead letters", expected, rows, blocks, begun.result(), sums)

    def compare(
        self,
        name: str,
        expected: DataFrame,
        rows: DataFrame | RowsAt,
        blocks: PlaceBlocks,
        deleted: Deleted | None = None,
        sums: Mapping[Block, BlockSums] | None = None,
    ) -> AuditedPlace:
        """Compare rows with their digests, and rows whose messages Kafka has deleted by blocks.

        Digests of blocks are compared first. Only at the offsets of blocks that differ, rows are read again and compared.
        `sums` are those of the `expected` rows, if they are known. `deleted` says which rows are not there because the
        place itself deletes rows.
        """
        return compare_place(self, name, lambda: expected, _at(rows), blocks, sums, deleted)


def rows_of_table(
    spark: SparkSession,
    ledger: Ledger,
    uncommitted: RangeSet,
    table: RowsByOffset,
    sink: str | None,
    digested: Digested,
    rows: int | None = None,
) -> RowsAt:
    """The rows of a table of results, or of the dead letters (None), even where an attempt may have left debris.

    `rows`: about how many there are in all, if that is known.
    """

    def found(some: RangeSet | None) -> DataFrame:
        within = None if some is None else _cheapest(some)
        return hbase_places(spark, ledger, table, sink, (), uncommitted, within=within, digested=digested, rows=rows)

    return found


def read_beforehand(spark: SparkSession, rows_at: RowsAt, some: RangeSet | None, beside: Executor) -> RowsAt:
    """Begin to read the rows at `some` offsets, `beside` all else. Whoever asks again has them read again."""
    begun = [beside.submit(inheritable_thread_target(spark)(rows_at), some)]
    return lambda asked: begun.pop().result() if begun and asked == some else rows_at(asked)


def _at(rows: DataFrame | RowsAt) -> RowsAt:
    if not isinstance(rows, DataFrame):
        return rows
    return lambda some: rows if some is None else only(rows, some)


def _cheapest(some: RangeSet) -> RangeSet:
    """These offsets or their hull, whichever is read faster: a scan costs as much as reading some hundred rows."""
    return min((some, some.hull()), key=lambda one: one.count() + _SCAN_ROWS * sum(1 for _ in pieces(one)))


def compare_place(
    audit: Audit,
    name: str,
    expected: Callable[[], DataFrame],
    rows_at: RowsAt,
    by_tallies: PlaceBlocks,
    sums: Mapping[Block, BlockSums] | None,
    deleted: Deleted | None = None,
) -> AuditedPlace:
    """Compare one place: first sums of blocks, then the rows of the blocks that differ."""
    read = _read(audit, rows_at, by_tallies, row_hash(), RangeSet())
    return _compare(audit, name, expected, rows_at, by_tallies, read, sums, deleted)


@dataclass(frozen=True)
class _Read:
    """The rows of a place that is to be compared, and their sums by block, with `hashed` for the hash of a row."""

    there: DataFrame
    hashed: Column
    sums: dict[Block, BlockSums]
    debris: int


def _read(audit: Audit, rows_at: RowsAt, by_tallies: PlaceBlocks, hashed: Column, tallied: RangeSet) -> _Read:
    """Read a place. The sums of contents are of rows that are not at the offsets `tallied`."""
    there = rows_at(audit.some)
    if audit.some is not None:
        # Debris elsewhere is not counted: the audit has not looked at all of it.
        there = only(there, audit.some | audit.uncommitted)
    there = there.select(*_KEY, COUNTS, DIGEST, FOUND_DIGEST)
    # Read twice where Kafka has deleted messages, or was not read.
    there = there.persist() if by_tallies.blocks else there
    return _Read(there, hashed, *sums_found(there, audit.in_kafka, audit.block_size, hashed, tallied))


def _compare(
    audit: Audit,
    name: str,
    expected: Callable[[], DataFrame],
    rows_at: RowsAt,
    by_tallies: PlaceBlocks,
    read: _Read,
    sums: Mapping[Block, BlockSums] | None,
    deleted: Deleted | None = None,
) -> AuditedPlace:
    size = audit.block_size
    compared = by_tallies.compare(read.there.where(COUNTS))
    if by_tallies.blocks:
        read.there.unpersist()
    wanted = sums_expected(expected(), size, read.hashed) if sums is None else sums
    same, differing = _narrowed(wanted, read.sums, audit.in_kafka, size)
    rows = _compare_steadily(audit, expected, rows_at, differing, deleted)
    report = PlaceReport(
        name=name,
        expected=same + rows.expected,
        found=same + rows.found,
        missing=rows.numbers["missing"],
        different=rows.numbers["different"],
        extra=rows.numbers["extra"],
        twice=rows.numbers["twice"],
        debris=read.debris,
        compacted=rows.compacted,
        expired=rows.why.get(EXPIRED, 0),
        replaced=rows.why.get(REPLACED, 0),
        missing_at=rows.at.get("missing", ()),
        different_at=rows.at.get("different", ()),
        extra_at=rows.at.get("extra", ()),
        twice_at=rows.at.get("twice", ()),
        blocks=len(compared.wrong),
        blocks_at=compared.wrong[:SHOWN_COORDINATES],
    )
    return AuditedPlace(report, rows.findings, compared)


def sums_found(
    rows: DataFrame, in_kafka: RangeSet, size: int, hashed: Column, tallied: RangeSet
) -> tuple[dict[Block, BlockSums], int]:
    """The sums of the rows that count, at the offsets `in_kafka`, by blocks; and how much debris there is anywhere.

    Their contents are of rows that are not at the offsets `tallied`.
    """
    counts = F.col(COUNTS)
    by_block = (
        marked(marked(rows, in_kafka, _INSIDE), tallied, _TALLIED)
        .select("*", block_of(size))
        .groupBy(*AT, BLOCK, _INSIDE)
        .agg(
            F.count_if(counts).alias(_ROWS),
            F.bit_xor(F.when(counts, hashed)).alias("ack"),
            F.count_if(counts & ~F.col(DIGEST).eqNullSafe(F.col(FOUND_DIGEST))).alias(_SAID),
            F.bit_xor(F.when(counts & ~F.col(_TALLIED), F.col(FOUND_DIGEST))).alias(_FOUND),
            F.count_if(~counts).alias("debris"),
        )
        .collect()
    )
    sums = {
        _block(row): BlockSums.of(row[_ROWS], row["ack"], row[_FOUND], row[_SAID]) for row in by_block if row[_INSIDE]
    }
    return sums, sum(row["debris"] for row in by_block)


def sums_expected(rows: DataFrame, size: int, hashed: Column) -> dict[Block, BlockSums]:
    """The sums of the rows that should be there, by blocks."""
    ack, content = F.bit_xor(hashed).alias("ack"), F.bit_xor(DIGEST).alias(_EXPECTED)
    by_block = (
        rows.select(*_KEY, DIGEST, block_of(size)).groupBy(*AT, BLOCK).agg(F.count("*").alias(_ROWS), ack, content)
    )
    return {_block(row): BlockSums.of(row[_ROWS], row["ack"], row[_EXPECTED]) for row in by_block.collect()}


def _narrowed(
    expected: Mapping[Block, BlockSums], found: Mapping[Block, BlockSums], in_kafka: RangeSet, size: int
) -> tuple[int, RangeSet]:
    """How many rows the blocks have that are the same, and the offsets of the others."""
    nothing = BlockSums.of(0, 0, 0)
    differing: dict[TopicPartition, list[tuple[int, int]]] = {}
    same = 0
    for at, block in sorted({*expected, *found}):
        sums = expected.get((at, block), nothing)
        if sums == found.get((at, block), nothing):
            same += sums.rows
        else:
            differing.setdefault(at, []).append((block * size, min((block + 1) * size, MAX_OFFSET)))
    return same, in_kafka & RangeSet.of_intervals(differing.items())


def _block(row: Row) -> Block:
    return TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]), row[BLOCK]


@dataclass(frozen=True)
class RowsCompared:
    """The differences between rows expected and rows found, by coordinate and index."""

    expected: int = 0
    found: int = 0
    numbers: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(_KINDS, 0))
    at: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    why: Mapping[str, int] = field(default_factory=dict)
    compacted: int = 0
    findings: RangeSet = field(default_factory=RangeSet)


def _compare_steadily(
    audit: Audit, expected: Callable[[], DataFrame], rows_at: RowsAt, offsets: RangeSet, deleted: Deleted | None
) -> RowsCompared:
    """As `compare_rows`. Where a window was committed meanwhile, differences are left out."""
    while offsets:
        rows = compare_rows(audit, expected(), rows_at, offsets, deleted)
        if not any(rows.numbers.values()) or not (changed := audit.changed() & offsets):
            return rows
        offsets -= changed
    return RowsCompared()


def compare_rows(
    audit: Audit, expected: DataFrame, rows_at: RowsAt, offsets: RangeSet, deleted: Deleted | None
) -> RowsCompared:
    """Compare the rows at some offsets, joined by coordinate and index.

    Rows of compacted topics count only if their message is among those that are left.
    """
    digests = only(expected.select(*_KEY, F.col(DIGEST).alias(_EXPECTED)), offsets)
    counting = only(rows_at(offsets).where(COUNTS), offsets).select(*_KEY, DIGEST, FOUND_DIGEST)
    compacted = [one for one in audit.compacted if any(at.topic == one for at in offsets.partitions)]
    gone = 0
    if compacted:
        counting = counting.persist()
        left = audit.messages.where(F.col(AT[0]).isin(compacted)).select(*COORDINATE)
        removed = counting.where(F.col(AT[0]).isin(compacted)).join(left, list(COORDINATE), "left_anti")
        gone = removed.count()
        counting = (
            counting.join(removed.select(*COORDINATE).distinct(), list(COORDINATE), "left_anti") if gone else counting
        )
    held = counting.groupBy(*_KEY).agg(
        F.count("*").alias(_ROWS),
        F.any_value(FOUND_DIGEST).alias(_FOUND),
        F.any_value(DIGEST).alias(_SAID),
    )
    both = digests.join(held, _KEY, "full_outer").persist()
    missing = F.col(_ROWS).isNull()
    extra = F.col(_EXPECTED).isNull()
    different = ~missing & ~extra & ((F.col(_EXPECTED) != F.col(_FOUND)) | (F.col(_SAID) != F.col(_FOUND)))
    twice = ~missing & (F.col(_ROWS) > 1)
    kinds = dict(zip(_KINDS, (missing, different, extra, twice), strict=True))
    counts = both.agg(
        F.count_if(~extra).alias("expected"),
        F.count_if(~missing).alias("found"),
        *(F.count_if(is_so).alias(kind) for kind, is_so in kinds.items()),
    ).collect()[0]
    numbers = {kind: counts[kind] for kind in kinds}
    wrong = both
    why: dict[str, int] = {}
    if deleted is not None and numbers["missing"]:
        by_itself = deleted(both.where(missing).select(*_KEY)).persist()
        why = {row[WHY]: row["count"] for row in by_itself.groupBy(WHY).count().collect()}
        numbers["missing"] -= sum(why.values())
        wrong = both.join(by_itself.select(*_KEY), _KEY, "left_anti")
    at = {kind: _named(wrong.where(is_so)) if numbers[kind] else () for kind, is_so in kinds.items()}
    differing = wrong.where(missing | extra | different | twice)
    findings = _offsets(differing, MAX_FINDINGS) if any(at.values()) else RangeSet()
    both.unpersist()
    if compacted:
        counting.unpersist()
    return RowsCompared(counts["expected"], counts["found"], numbers, at, why, gone, findings)


def _named(rows: DataFrame) -> tuple[str, ...]:
    return tuple(str(coordinate) for coordinate in _coordinates(rows, SHOWN_COORDINATES))


def _coordinates(rows: DataFrame, limit: int) -> list[Coordinate]:
    return [
        Coordinate(TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]), row[COORDINATE[3]])
        for row in _first(rows, limit).collect()
    ]


# Up to how many first rows each task keeps in memory; Spark sorts all rows, also on disk, where more are asked for.
_MAX_AT_HAND = "spark.sql.execution.topKSortFallbackThreshold"


def _offsets(rows: DataFrame, limit: int) -> RangeSet:
    """The first offsets of some rows. As Arrow's columns, since there may be a million."""
    intervals: dict[TopicPartition, list[Interval]] = {}
    with setting(rows.sparkSession, _MAX_AT_HAND, str(SHOWN_COORDINATES)):
        columns = _first(rows, limit).toArrow().to_pydict()
    for topic, incarnation, partition, offset in zip(*(columns[name] for name in COORDINATE), strict=True):
        intervals.setdefault(TopicPartition(topic, partition, incarnation), []).append((offset, offset + 1))
    return RangeSet.of_intervals(intervals.items())


def _first(rows: DataFrame, limit: int) -> DataFrame:
    return rows.select(*COORDINATE).distinct().orderBy(*COORDINATE).limit(limit)
