"""How large a ledger value may become, and how large a window can make the head when it commits."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from tidemark.errors import TooLarge
from tidemark.ledger.codec import encode
from tidemark.ledger.records import MAX_UNKNOWN_BYTES, BlockTallies, Head, Pending, WindowRange, positions
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.offsets.blocks import BlockTally, PartitionBlocks
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally

# Attempt, receipt and record without the tallies, with the longest names and places that a stream file allows, and with the
# names that messages bring.
_RECORD_BYTES = 8_000 + MAX_UNKNOWN_BYTES
_LARGEST = 2**63 - 1
_MAX = Count(_LARGEST, "f" * 16)


def check_size(store: LedgerStore, value: bytes, what: str, advice: str) -> None:
    if len(value) > store.max_value_bytes:
        raise TooLarge(f"{what} takes {len(value)} bytes; this ledger holds up to {store.max_value_bytes}: {advice}")


def check_pending(store: LedgerStore, head: Head, pending: Pending) -> None:
    """Raise TooLarge at pin when the head could become too large at commit, after all the work.

    The largest head holds this window as `last`, with its tallies and positions, and a pending window of the same size.
    """
    offsets = head.offsets() | {range_.at: range_.until for range_ in pending.window.ranges}
    moved = structs.replace(head, positions=positions(offsets), pending=None, last=None, abandoned=None)
    tallies = sum(len(encode(_largest_tally(range_))) + 1 for range_ in pending.window.ranges)
    # The positions count three times: in the head, in its last record, and in `abandoned` after an abandon.
    largest = 3 * len(encode(moved)) + 2 * len(encode(pending)) + tallies + _RECORD_BYTES
    largest = max(largest, len(encode(structs.replace(head, pending=pending))) + _RECORD_BYTES)
    if largest > store.max_value_bytes:
        partitions = len(pending.window.ranges)
        room = number_of(partitions * store.max_value_bytes // largest, "such partition")
        raise TooLarge(
            f"a window over {number_of(partitions, 'partition')} could make the head of {head.stream}/{head.lane} {largest} "
            f"bytes large; this ledger holds up to {store.max_value_bytes}, which is enough for some {room}. Nothing was read. "
            "Divide the topics, or the partitions of one topic (`source.partitions`), among several streams; or keep the "
            "ledger where a value may be larger (docs/ledger.md#limits)"
        )


def most_blocks(store: LedgerStore, partitions: Iterable[TopicPartition]) -> int:
    """How many blocks of these partitions always fit into one value, whatever their tallies are."""
    empty = BlockTallies(
        size=_LARGEST,
        partitions=tuple(PartitionBlocks(at.topic, at.incarnation, at.partition, ()) for at in partitions),
    )
    largest = len(encode(BlockTally(_LARGEST, _MAX, _MAX, "f" * 16, _MAX, _MAX))) + 1
    return (store.max_value_bytes - len(encode(empty))) // largest


def _largest_tally(range_: WindowRange) -> PartitionTally:
    # No more messages than offsets. Rows may be more.
    messages = Count(range_.until - range_.start, "f" * 16)
    return PartitionTally(
        topic=range_.topic,
        incarnation=range_.incarnation,
        partition=range_.partition,
        read=messages,
        stored=messages,
        skipped=messages,
        invalid=messages,
        failed=messages,
        rows=_MAX,
        content="f" * 16,
        source="f" * 16,
        first=range_.until,
        last=range_.until,
        bytes=_LARGEST,
        first_timestamp=_LARGEST,
        last_timestamp=_LARGEST,
    )
