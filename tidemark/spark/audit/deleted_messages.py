"""The comparison that remains for offsets that Kafka has deleted: rows summed up by the blocks of windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from tidemark.audit.deleted_messages import (
    BlockContents,
    BlockReport,
    BlockVerdict,
    WindowBlock,
    compare_dead_letters,
    compare_identity,
    compare_rows,
    window_blocks,
    wrote_to,
)
from tidemark.errors import LedgerContradiction, LedgerUnreadable
from tidemark.ledger.ledger import Committed, Ledger, LedgerSnapshot
from tidemark.ledger.records import BlockTallies, Record, SinkReceipt
from tidemark.offsets.blocks import block_size, fields_digest, in_blocks
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import NOTHING
from tidemark.runs.live.open_stream import OpenStream
from tidemark.spark.columns import AT, BLOCK, DIGEST, INDEX, OFFSET, message_hash, row_hash
from tidemark.spark.readers import places as readers
from tidemark.spark.rows.tallying import block_of, count_of, digest_of

# The most pieces of blocks to join rows with: they take some ten megabytes in the driver and in every task.
_MAX_PIECES = 100_000

_FROM, _UNTIL, _NUMBER, _TAKEN = "_from", "_until", "_number", "_taken"
_PLACE = f"{AT[0]} string, {AT[1]} int, {AT[2]} int, {BLOCK} long"
_PIECES = f"{_PLACE}, {_FROM} long, {_UNTIL} long, {_NUMBER} int, {_TAKEN} boolean"

Judge = Callable[[WindowBlock, BlockContents], BlockVerdict]
# Whether a place may have deleted rows of a window by itself.
Lossy = Callable[[Committed], bool]


@dataclass(frozen=True)
class BlockComparison:
    """The offsets of one place that were compared by blocks, and the blocks that differ, with their offsets."""

    offsets: RangeSet
    wrong: tuple[BlockReport, ...]
    differing: RangeSet


@dataclass(frozen=True)
class PlaceBlocks:
    """The blocks of one place, and the function that compares them."""

    ledger: Ledger
    view: LedgerSnapshot
    blocks: Sequence[WindowBlock]
    judge: Judge

    def compare(self, rows: DataFrame) -> BlockComparison:
        """Compare the rows that count, with their digests: as the marks say, and as they are found."""
        contents = _found_in_blocks(rows, self.blocks)
        blocks = list(zip(self.blocks, contents, strict=True))
        if blocks and self.ledger.changed_since(self.view):
            # A window may have been committed after the ledger was read. Offsets that it took are compared no more.
            now = self.ledger.view(self.view.sink).authority
            blocks = [(block, held) for block, held in blocks if block.still_held(now)]
        judged = [(block, self.judge(block, held)) for block, held in blocks]
        offsets = RangeSet(range_ for block, verdict in judged if verdict.compared for range_ in block.offsets)
        differing = RangeSet(
            range_ for block, verdict in judged if verdict.wrong is not None for range_ in block.offsets
        )
        return BlockComparison(
            offsets, tuple(verdict.wrong for _, verdict in judged if verdict.wrong is not None), differing
        )


@dataclass(frozen=True)
class DeletedOffsets:
    """The windows with `offsets` that Kafka has deleted, and their tallies by blocks.

    `problems`: tallies that the ledger lacks.
    """

    ledger: Ledger
    view: LedgerSnapshot
    windows: tuple[tuple[Committed, BlockTallies | None], ...]
    offsets: RangeSet
    problems: tuple[str, ...]
    fields: str

    @property
    def compared(self) -> RangeSet:
        """All offsets whose rows are compared by blocks in any place, with those that later windows have taken."""
        names = {None, *(place.name for window, _ in self.windows for place in window.record.places)}
        blocks = (block for name in names for block in self._blocks(self.view.of(name), lambda record: True))
        return RangeSet(range_ for block in blocks for range_ in block.offsets | block.taken)

    def of_sink(self, sink: str, place: Mapping[str, str]) -> PlaceBlocks:
        return self._of(sink, sink, place, lambda block, contents: compare_rows(block, contents, self.fields))

    def of_sink_by_identity(self, sink: str, wrote: Callable[[SinkReceipt], bool], lossy: Lossy) -> PlaceBlocks:
        """For rows without a digest of their contents. `wrote`: whether the sink still reads where a receipt points."""

        def judge(block: WindowBlock, contents: BlockContents) -> BlockVerdict:
            return compare_identity(block, contents, may_lack=lossy(block.committed))

        def wrote_there(record: Record) -> bool:
            return any(place.name == sink and wrote(place) for place in record.places)

        view = self.view.of(sink)
        return PlaceBlocks(self.ledger, view, self._blocks(view, wrote_there), judge)

    def of_dead_letters(self, place: Mapping[str, str]) -> PlaceBlocks:
        return self._of(None, "dead_letters", place, compare_dead_letters)

    def _of(self, sink: str | None, name: str, place: Mapping[str, str], judge: Judge) -> PlaceBlocks:
        view = self.view.of(sink)
        # Nothing can be missing at a place where a window has never written.
        return PlaceBlocks(self.ledger, view, self._blocks(view, lambda record: wrote_to(record, name, place)), judge)

    def _blocks(self, view: LedgerSnapshot, wrote: Callable[[Record], bool]) -> list[WindowBlock]:
        return [
            block
            for window, tallies in self.windows
            if wrote(window.record)
            for block in window_blocks(window, tallies, view.authority, self.offsets)
        ]


def forgotten_blocks(opened: OpenStream, view: LedgerSnapshot, forgotten: RangeSet) -> DeletedOffsets:
    """The counts of the windows with some of these offsets, by blocks."""
    windows: list[tuple[Committed, BlockTallies | None]] = []
    problems: list[str] = []
    for window in view.windows:
        if not window.covers & forgotten:
            continue
        try:
            windows.append((window, opened.ledger.blocks(window.record)))
        except (LedgerContradiction, LedgerUnreadable) as problem:
            problems.append(str(problem))
    return DeletedOffsets(
        opened.ledger, view, tuple(windows), forgotten, tuple(problems), fields_digest(opened.stream.fields)
    )


def _found_in_blocks(rows: DataFrame, blocks: Sequence[WindowBlock]) -> list[BlockContents]:
    """The rows in each of the blocks, in their order."""
    if not blocks:
        return []
    # A join over equal keys, so that Spark does not compare every row with every piece.
    size = block_size(RangeSet(range_ for block in blocks for range_ in block.offsets | block.taken), _MAX_PIECES)
    pieces = [
        (at.topic, at.incarnation, at.partition, number_of_piece, start, until, number, taken)
        for number, block in enumerate(blocks)
        for taken, offsets in ((False, block.offsets), (True, block.taken))
        for at, number_of_piece, start, until in in_blocks(offsets, size)
    ]
    listed = rows.sparkSession.createDataFrame(pieces, _PIECES)
    message = F.col(INDEX) == 0
    summed = (
        rows.select("*", block_of(size))
        .join(F.broadcast(listed), [*AT, BLOCK])
        .where((F.col(OFFSET) >= F.col(_FROM)) & (F.col(OFFSET) < F.col(_UNTIL)))
        .groupBy(_NUMBER, _TAKEN)
        .agg(
            F.count("*").alias("rows"),
            F.bit_xor(row_hash()).alias("rows_ack"),
            F.count_if(message).alias("messages"),
            F.bit_xor(F.when(message, message_hash())).alias("messages_ack"),
            F.bit_xor(DIGEST).alias("said"),
            F.bit_xor(readers.FOUND_DIGEST).alias("content"),
        )
    )
    sums = {(row[_NUMBER], row[_TAKEN]): row for row in summed.collect()}
    return [_found(sums.get((number, False)), sums.get((number, True))) for number in range(len(blocks))]


def _found(held: Row | None, taken: Row | None) -> BlockContents:
    others = NOTHING if taken is None else count_of(taken["messages"], taken["messages_ack"])
    if held is None:
        return BlockContents(taken=others)
    return BlockContents(
        rows=count_of(held["rows"], held["rows_ack"]),
        messages=count_of(held["messages"], held["messages_ack"]),
        taken=others,
        said=digest_of(held["said"]),
        content=digest_of(held["content"]),
    )
