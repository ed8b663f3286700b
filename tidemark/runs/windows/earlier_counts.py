"""The counts of earlier windows, where offsets are read again that nobody has named: Kafka must have the same now.

A sink that keeps contributions of blocks needs them whole. A message that Kafka no longer has would lose its results in
every sink, although nobody asked: compaction removes messages from the middle of a log, and another isolation level
hides those of aborted transactions, or shows them. So nothing is read again that would come out as less than it was, or
as more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.clients.kafka.topics import READ_COMMITTED, READ_UNCOMMITTED
from tidemark.errors import SourceChanged
from tidemark.ledger.book import Committed, View
from tidemark.ledger.records import BlockTallies, Window
from tidemark.offsets.blocks import WHOLE, BlockTally
from tidemark.offsets.counting import number_of
from tidemark.offsets.lost_messages import CountedMessages, vanished
from tidemark.offsets.ranges import Interval, OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import NOTHING, Count, PartitionTally
from tidemark.runs.live.kafka_now import held_in, known_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import check_same
from tidemark.runs.windows.chosen_sinks import Sinks

# A request compares this many offsets itself, in a few seconds. The attempt compares all of them.
MOST_COMPARED = 200_000
# Ranges that are nearer than this are read at once.
_NEAR = 500


def gone_by_now(opened: OpenStream, view: View, widened: RangeSet, sinks: Sinks) -> RangeSet:
    """The offsets that nobody has named and whose message was counted and is gone, or was not counted and is there now.

    Reads Kafka there if it may have lost some: compacted topics, and those read at another isolation level. Leaves more
    than MOST_COMPARED offsets to the attempt.
    """
    isolation = opened.stream.source.isolation
    topics = {at.topic for at in widened.partitions}
    if not topics:
        return widened
    other = {
        at.topic
        for window in view.windows
        if window.record.window.isolation != isolation
        for at in window.covers.partitions
        if at.topic in topics
    }
    suspect = opened.log.compacted(topics) | other
    asked = widened.only(at for at in widened.partitions if at.topic in suspect)
    return _gone(opened, view, asked, sinks, isolation) if asked.count() <= MOST_COMPARED else RangeSet()


@dataclass(frozen=True)
class Attempted:
    """The messages that an attempt has read at its offsets: by partition, and by blocks where it has counted these."""

    covers: RangeSet
    tallies: tuple[PartitionTally, ...]
    blocks: BlockTallies | None = None


def check_widened(opened: OpenStream, lane: str, window: Window, attempted: Attempted) -> bool:
    """Check whether Kafka has to be asked again (step 5).

    Raises SourceChanged when an attempt has read other messages than were counted, at offsets that nobody has named.
    Nothing can be lost where each offset has a message, or where number and ack value are those of the count.
    Elsewhere, Kafka is asked again: its messages now were among those of the attempt. With aborted transactions,
    readers of all messages may have read more.
    """
    widened = opened.book.widened(window)
    read = {tally.at: tally.read.number for tally in attempted.tallies}
    view = opened.book.view() if widened and window.isolation == READ_UNCOMMITTED else None
    every = view is not None and _some_left_out(view)
    asked = widened.only(at for at in widened.partitions if every or read.get(at, 0) < attempted.covers.count(at))
    if not asked:
        return False
    name, view = f"{opened.book.stream}/{lane}", view or opened.book.view()
    # The marks of transactions have no message: without this, all of such a topic would be read once more.
    asked -= _as_counted(opened, view, window, attempted, asked)
    if asked and (gone := _gone(opened, view, asked, window.sinks, window.isolation)):
        raise SourceChanged(
            f"window {window.seq} of {name} reads whole blocks again since a sink needs them, and Kafka no "
            f"longer has all messages that were counted there, or gives others too, since the isolation level is another, at "
            f"offsets that nobody has named: {_some(gone)}. Their results would be lost, or come up from aborted "
            "transactions. So nothing was committed, and no retry can commit it. Give it up, and ask again without "
            f"those blocks, or name these offsets too: tidemark cancel {opened.book.stream} {lane} --reason ..."
        )
    return bool(asked)


def _gone(opened: OpenStream, view: View, wanted: RangeSet, sinks: Sinks, isolation: str) -> RangeSet:
    there = _there(opened, wanted, isolation)
    holes = wanted - there
    offsets = _come_up(opened, view, there, sinks) if isolation == READ_UNCOMMITTED else RangeSet()
    if not holes:
        return offsets
    for window, here in _deciding(opened, view, holes, sinks):
        if not window.record.has_counts:
            # The ledger was rebuilt from the sinks, or an attempt has died under at_most_once: nobody knows.
            offsets |= here
            continue
        counted = list(_counted(opened, window, here))
        # Messages of aborted transactions count only where both have read them.
        both = {isolation, window.record.window.isolation}
        level = READ_COMMITTED if READ_COMMITTED in both else READ_UNCOMMITTED
        there = _there(opened, RangeSet(part for counts in counted for part in counts.offsets), level)
        offsets |= vanished(here, counted, there)
    return offsets


def _as_counted(opened: OpenStream, view: View, window: Window, attempted: Attempted, asked: RangeSet) -> RangeSet:
    """The offsets around which an attempt has read the counted messages: equal counts and acks.

    Compares the offsets that both have read, block by block, or by partition if one side has not counted blocks.
    """
    read = {tally.at: tally.read for tally in attempted.tallies}
    deciding = [before for before, _ in _deciding(opened, view, asked, window.sinks)]
    if not all(window.record.has_counts for window in deciding):
        return RangeSet()
    # Window by window: each has its blocks in one value of the ledger, for all partitions.
    earlier: dict[TopicPartition, list[_CountsByBlock]] = {at: [] for at in asked.partitions}
    for before in deciding:
        tallies = {tally.at: tally.read for tally in before.record.tallies}
        blocks = _by_partition(opened.book.blocks(before.record))
        covers = before.covers - before.erased
        for at in earlier:
            if own := covers.only([at]):
                earlier[at].append(_CountsByBlock.of(own, tallies.get(at, NOTHING), blocks.get(at)))
    now = _by_partition(attempted.blocks)
    unchanged = RangeSet()
    for at, theirs in earlier.items():
        mine = _CountsByBlock.of(attempted.covers.only([at]), read.get(at, NOTHING), now.get(at))
        size = max(part.size for part in (mine, *theirs))
        mine, theirs = mine.coarser(size), [part.coarser(size) for part in theirs]
        same = [part for block, part in _blocks_of(at, asked.only([at]), size) if mine.is_sum_of(theirs, part, block)]
        unchanged |= asked & RangeSet(range_ for part in same for range_ in part)
    return unchanged


class _Blocks(NamedTuple):
    """The tallies of one partition by blocks of a size."""

    size: int
    tallies: Sequence[BlockTally]


def _by_partition(blocks: BlockTallies | None) -> dict[TopicPartition, _Blocks]:
    return {one.at: _Blocks(blocks.size, one.blocks) for one in blocks.partitions} if blocks is not None else {}


@dataclass(frozen=True)
class _CountsByBlock:
    """The messages that somebody has counted at some offsets of a partition, by blocks of a size; WHOLE is one block."""

    covers: RangeSet
    size: int
    counts: Mapping[int, Count]

    @classmethod
    def of(cls, covers: RangeSet, read: Count, blocks: _Blocks | None) -> _CountsByBlock:
        """`read`: all that was counted in the partition."""
        if blocks is not None:
            counts = {tally.block: _messages(tally) for tally in blocks.tallies}
            # Older versions have not counted all outcomes by blocks.
            if sum(counts.values(), NOTHING) == read:
                return cls(covers, blocks.size, counts)
        return cls(covers, WHOLE, {0: read})

    def coarser(self, size: int) -> _CountsByBlock:
        """The same by blocks of a multiple of this size."""
        counts: dict[int, Count] = {}
        for block, count in self.counts.items():
            larger = block * self.size // size
            counts[larger] = counts.get(larger, NOTHING) + count
        return _CountsByBlock(self.covers, size, counts)

    def is_sum_of(self, others: Sequence[_CountsByBlock], part: RangeSet, block: int) -> bool:
        """Whether others have counted the same messages in a block, which is `part`, and each offset there by one of them."""
        mine = self.covers & part
        here = [(other.counts.get(block, NOTHING), own) for other in others if (own := other.covers & part)]
        if sum(own.count() for _, own in here) != mine.count():
            return False
        if RangeSet(range_ for _, own in here for range_ in own) != mine:
            return False
        return sum((count for count, _ in here), NOTHING) == self.counts.get(block, NOTHING)


def _come_up(opened: OpenStream, view: View, there: RangeSet, sinks: Sinks) -> RangeSet:
    """The offsets of messages that are read now, and were not where aborted transactions were left out."""
    if not _some_left_out(view):
        return RangeSet()
    left_out = RangeSet(
        part
        for window, here in _deciding(opened, view, there, sinks)
        if window.record.window.isolation == READ_COMMITTED
        for part in here
    )
    return left_out - _there(opened, left_out, READ_COMMITTED) if left_out else left_out


def _some_left_out(view: View) -> bool:
    return any(window.record.window.isolation == READ_COMMITTED for window in view.windows)


def _there(opened: OpenStream, offsets: RangeSet, isolation: str) -> RangeSet:
    """The offsets among some at which readers get a message now."""
    topics = tuple(sorted({at.topic for at in offsets.partitions}))
    logs = known_now(opened, topics, learn=False, isolation=isolation).logs
    held = held_in(opened, logs)
    # Blocks lie around what was named: one read of both sides is faster than two.
    wanted = (
        RangeSet(OffsetRange(range_.partition, range_.start, range_.until + _NEAR) for range_ in offsets)
        & offsets.hull()
        & held
    )
    kept: dict[TopicPartition, list[Interval]] = {}
    for partition, messages in opened.log.messages(wanted, isolation):
        runs = kept.setdefault(partition.partition, [])
        for offset, _ in messages:
            if runs and runs[-1][1] == offset:
                runs[-1] = (runs[-1][0], offset + 1)
            else:
                runs.append((offset, offset + 1))
    check_same(opened, logs)
    return offsets & RangeSet.of_intervals(kept.items())


def _deciding(opened: OpenStream, view: View, offsets: RangeSet, sinks: Sinks) -> Iterator[tuple[Committed, RangeSet]]:
    """The windows whose results count at some offsets, and where, in any of the sinks that are written.

    With all sinks, in the dead letters too.
    """
    ranges: dict[int, list[OffsetRange]] = {}
    for name in (None, *(sink.name for sink in opened.stream.sinks)) if sinks is None else sinks:
        authority = view.of(name).authority
        for range_ in offsets:
            for part in authority.within(range_):
                ranges.setdefault(part.generation, []).append(OffsetRange(range_.partition, part.start, part.until))
    for window in view.windows:
        if window.generation in ranges:
            yield window, RangeSet(ranges[window.generation])


def _counted(opened: OpenStream, window: Committed, offsets: RangeSet) -> Iterator[CountedMessages]:
    """The counts of a window around some offsets: by blocks where its tallies of blocks have all messages."""
    record = window.record
    tallies = {tally.at: tally for tally in record.tallies}
    blocks = _by_partition(opened.book.blocks(record))
    # It has counted nothing of what it has erased, and Kafka may still have that.
    covers = window.covers - window.erased
    for at in offsets.partitions:
        here, counted = covers.only([at]), blocks.get(at)
        tally = tallies.get(at)
        if tally is None:
            # It has read nothing there.
            continue
        known = {block.block: _messages(block) for block in counted.tallies} if counted is not None else {}
        if counted is not None and sum(known.values(), NOTHING) == tally.read:
            for block, part in _blocks_of(at, offsets, counted.size):
                yield CountedMessages(here & part, known.get(block, NOTHING))
        else:
            yield CountedMessages(here, tally.read)


def _messages(tally: BlockTally) -> Count:
    return tally.stored + tally.skipped + tally.dead_letters


def _blocks_of(at: TopicPartition, offsets: RangeSet, size: int) -> Iterator[tuple[int, RangeSet]]:
    numbers = {block for start, until in offsets.of(at) for block in range(start // size, (until - 1) // size + 1)}
    for block in sorted(numbers):
        yield block, RangeSet([OffsetRange(at, block * size, (block + 1) * size)])


def _some(ranges: RangeSet) -> str:
    shown = [str(range_) for range_ in ranges]
    return ", ".join(shown[:5]) + (f" and {number_of(len(shown) - 5, 'more range')}" if len(shown) > 5 else "")
