"""Erasures by other streams of the same ledger: an erasure holds for all of Tidemark's readers, whatever stream they read.

A message is known by the id of its topic, its partition and its offset. Incarnations are numbers of one stream's own, so two
streams may give the same message different ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from tidemark.errors import LedgerContradiction, LedgerUnreadable, WrongUse
from tidemark.ledger.closed_lanes import closed_lanes
from tidemark.ledger.erasures import Tombstone, tombstones
from tidemark.ledger.incarnations import Topics
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record, Register, erases
from tidemark.ledger.stores.kind import SupportsStreamList
from tidemark.offsets.ranges import RangeSet, TopicPartition

log = logging.getLogger(__name__)
One = TypeVar("One")
# Heads or windows that are read in one request.
_AT_ONCE = 200


@dataclass(frozen=True)
class ForeignErasure:
    """An erasure by a window of another stream, in the incarnations of the stream that asks."""

    stream: str
    tombstone: Tombstone
    offsets: RangeSet

    def said(self) -> str:
        record = self.tombstone.record
        asked = f", asked by {self.tombstone.asked_by}" if self.tombstone.asked_by else ""
        return f"{self.tombstone.said()} of the stream {self.stream}, reason {record.window.reason or ''!r}{asked}"


def erased_elsewhere(ledger: Ledger, topics: Topics) -> Iterator[ForeignErasure]:
    """The offsets of some topics, as in this stream's register, that other streams of this ledger have erased.

    An erased offset of a topic whose log was cut is returned in each incarnation: the numbers of two streams may
    differ. Streams whose nodes belong to another login are not asked, and a stream with a damaged ledger is passed over
    with a warning. Raises Unreachable.
    """
    ours: dict[tuple[str, str], list[int]] = {}
    for topic, incarnations in topics.items():
        for incarnation in incarnations:
            ours.setdefault((topic, incarnation.topic_id), []).append(incarnation.incarnation)
    if not ours or not isinstance(ledger.store, SupportsStreamList):
        return
    for other, register in _others(ledger, ledger.store):
        shared = {
            (topic, incarnation.incarnation): ours[topic, incarnation.topic_id]
            for topic, incarnations in register.topics.items()
            for incarnation in incarnations
            if (topic, incarnation.topic_id) in ours
        }
        if not shared:
            continue
        try:
            found_there = erased_here(other, register)
        except (LedgerUnreadable, LedgerContradiction) as problem:
            _pass_over(other, problem)
            continue
        for tombstone in found_there:
            if offsets := _as_ours(tombstone.offsets, shared):
                yield ForeignErasure(other.stream, tombstone, offsets)


def _others(ledger: Ledger, store: SupportsStreamList) -> Iterator[tuple[Ledger, Register]]:
    """The ledgers of the other streams, with their registers."""
    for name in store.streams():
        if name == ledger.stream:
            continue
        other = Ledger(store.of_stream(name), name, ledger.clock)
        try:
            register = other.register()
        except WrongUse:
            # Another login's: it shares the server, and not the ledger.
            continue
        except LedgerUnreadable as problem:
            _pass_over(other, problem)
            continue
        if register is not None:
            yield other, register[1]


def _pass_over(other: Ledger, problem: Exception) -> None:
    """Go on without a stream whose ledger is damaged: it would stop the readers of all others."""
    log.warning("what the stream %s has erased is not known: %s", other.stream, problem)


def for_readers(ledger: Ledger) -> Ledger:
    """The ledger as readers of results see it: without the offsets that other streams have erased.

    Only for reading: for planning and audits, the offsets that this stream has read stay covered. Idempotent.
    """
    if ledger.hidden:
        return ledger
    register = ledger.register()
    if register is None:
        return ledger
    return ledger.hiding(
        RangeSet(part for range_ in erased_elsewhere(ledger, register[1].topics) for part in range_.offsets)
    )


def erased_here(ledger: Ledger, register: Register) -> list[Tombstone]:
    """The offsets that a stream has erased. Reads only lanes of erasures, and many of these at once."""
    closed = [lane for part in closed_lanes(ledger, register) for lane in part]
    lanes = dict.fromkeys(lane for lane in (*register.lanes, *closed) if erases(lane))
    return tombstones(
        ledger.covering([record for some in _batched(lanes, _AT_ONCE) for record in _records(ledger, some)])
    )


def _records(ledger: Ledger, lanes: Sequence[str]) -> Iterator[Record]:
    """All windows of some lanes. An erasure mostly has one, and its lane's head says it whole."""
    # Heads before the history, so that one of them has a window that is committed meanwhile.
    heads = ledger.heads_of(lanes)
    last = [stored.head.last for stored in heads.values() if stored.head.last is not None]
    yield from last
    earlier = [(record.lane, seq) for record in last for seq in range(1, record.seq)]
    for some in _batched(earlier, _AT_ONCE):
        yield from ledger.records(some)
    for lane in lanes:
        if lane not in heads:
            # Its head was lost. What was erased stays so.
            yield from ledger.records_of(lane)


def _batched(items: Iterable[One], size: int) -> Iterator[list[One]]:
    """`itertools.batched` of Python 3.12."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def _as_ours(offsets: RangeSet, shared: Mapping[tuple[str, int], list[int]]) -> RangeSet:
    return RangeSet.of_intervals(
        (TopicPartition(at.topic, at.partition, incarnation), offsets.of(at))
        for at in offsets.partitions
        for incarnation in shared.get((at.topic, at.incarnation), ())
    )
