"""A backup from the remains of a damaged ledger: its register, heads or pages of closed lanes are made from the history.

Each record of the history has its window, its attempt, and the positions after it, so the history says where each lane
is. It does not have pending windows, windows that were committed and not settled, requests, and the rest of paused or
half-read lanes. So the ingest goes on after its last settled window. Any other lane without its head or its entry in
the register is closed: its commits count, and the rest has to be requested again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from tidemark.errors import LedgerContradiction, LedgerUnreadable, WrongUse
from tidemark.ledger.closed_lanes import ClosedLanes, fill_pages, page_key
from tidemark.ledger.codec import RESTORE, decode, encode
from tidemark.ledger.incarnations import still_rising
from tidemark.ledger.ledger import REGISTER, Ledger, head_key
from tidemark.ledger.ordering import noted
from tidemark.ledger.records import (
    INGEST,
    Accepted,
    Guarantee,
    Head,
    LaneEntry,
    LaneState,
    Record,
    Register,
    SinkReceipt,
    TopicChange,
    TopicIncarnation,
    Window,
    each_place,
    erases,
    positions,
)
from tidemark.ledger.recovery.backup import Summary, referred_to, sink_values, write
from tidemark.ledger.register import new_token
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import TopicPartition

# Facts about places that a register knows, and no window does.
PLACES = (
    "places that only attempts without a commit have written to, and which places are gone for good: an erasure clears those "
    "that windows have named, and those of the stream file"
)
CLOSED_BECAUSE = "the ledger was rebuilt from its history"
# The policy of a change that the history has, and that a lost register had accepted.
FOUND_IN = "found in the history"


@dataclass
class _Chain:
    """The history of one lane."""

    first: Record
    last: Record
    unpositioned: int = 0


@dataclass
class _Left:
    """The values found, completed from the history. `missing` says in words what was not found."""

    heads: dict[str, Head] = field(default_factory=dict)
    chains: dict[str, _Chain] = field(default_factory=dict)
    entries: dict[str, LaneEntry] = field(default_factory=dict)
    topics: dict[str, dict[int, TopicIncarnation]] = field(default_factory=dict)
    # The number of the ingest's first window of each incarnation of a topic.
    first: dict[tuple[str, int], int] = field(default_factory=dict)
    register: Register | None = None
    generation: int = 0
    # The places that windows have written, by type of sink.
    places: dict[tuple[object, ...], SinkReceipt] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RestorableValues:
    """The remains of a ledger: the values of a backup that can be restored, and what was missing, in words."""

    ledger: Ledger
    values: Callable[[], Iterator[tuple[Key, bytes]]]
    missing: list[str]

    def write(self, path: Path) -> Summary:
        """Write it to a new file. Raises WrongUse when the file exists or cannot be written."""
        return write(self.ledger, path, self.values())


def left_of(ledger: Ledger, ledger_id: Callable[[], str], by_order: Callable[[str], bool]) -> RestorableValues:
    """The remains of a ledger, completed from its history.

    `ledger_id` finds the id of a ledger whose register is lost; the results carry it. `by_order` says whether rows of a type
    of sink have versions by the order of a topic's messages (`ordering.py`). Changes nothing in the ledger.
    Raises WrongUse when nothing is left to begin with, or an order is lost by which rows were written. Raises
    LedgerUnreadable for a damaged record of the history.
    """
    of_sinks_first = list(sink_values(ledger.store))
    left = _found(ledger)
    if not left.chains and not left.heads and left.register is None:
        raise WrongUse(
            f"{ledger.stream} has no history, no heads and no register here: there is nothing to rebuild from"
        )
    for lane in sorted(left.heads.keys() | left.chains.keys() | left.entries.keys()):
        _complete(ledger, left, lane)
    if left.register is None:
        _check_order(ledger, left, by_order)
        left.missing.append(PLACES)
    register = left.register or _register(ledger, left, ledger_id())
    closed = {lane: entry for lane, entry in left.entries.items() if entry.state == LaneState.CLOSED}
    pages = list(fill_pages(ledger.stream, closed, ledger.store.max_value_bytes))
    register = structs.replace(
        register,
        lanes={lane: entry for lane, entry in left.entries.items() if lane not in closed},
        closed=len(closed),
        closed_page=max(0, len(pages) - 1),
    )

    def values() -> Iterator[tuple[Key, bytes]]:
        yield from of_sinks_first
        yield REGISTER, encode(register)
        yield from ((page_key(number), encode(page)) for number, page in enumerate(pages))
        yield from ((head_key(lane), encode(head)) for lane, head in sorted(left.heads.items()))
        yield from referred_to(ledger.store, {lane: head.seq for lane, head in left.heads.items()})

    return RestorableValues(ledger, values, left.missing)


def rebuild(
    ledger: Ledger, path: Path, ledger_id: Callable[[], str], by_order: Callable[[str], bool]
) -> tuple[Summary, list[str]]:
    """Write what is left of a ledger to a new file, as a backup that can be restored. Also returns what was missing, in words.

    Raises what `left_of` and its `write` raise.
    """
    left = left_of(ledger, ledger_id, by_order)
    return left.write(path), left.missing


# what is there


def _found(ledger: Ledger) -> _Left:
    left = _Left()
    try:
        register = ledger.register()
        left.register = register[1] if register else None
        if register is None:
            left.missing.append("the register")
    except LedgerUnreadable as problem:
        left.missing.append(f"the register: {problem}")
    if left.register is not None:
        left.entries.update(left.register.lanes)
    _read_pages(ledger, left)
    for key, stored in ledger.store.scan(("head",)):
        try:
            left.heads[key[1]] = ledger.head_in(key[1], stored).head
        except (LedgerUnreadable, LedgerContradiction) as problem:
            left.missing.append(f"the head of {key[1]}: {problem}")
    for _, record in ledger.records_with_bytes():
        _learn(left, ledger.with_receipt(record))
    for head in left.heads.values():
        _learn_of_head(left, head)
    return left


def _read_pages(ledger: Ledger, left: _Left) -> None:
    pages = 0
    for key, stored in ledger.store.scan(("closed",)):
        pages += 1
        try:
            left.entries.update(decode(stored, ClosedLanes, "/".join(key)).lanes)
        except LedgerUnreadable as problem:
            left.missing.append(f"a page of closed lanes: {problem}")
    if left.register is not None and left.register.closed and pages <= left.register.closed_page:
        left.missing.append(f"{left.register.closed_page + 1 - pages} pages of closed lanes")


def _learn_of_head(left: _Left, head: Head) -> None:
    if head.last is not None:
        _learn(left, head.last, in_history=False)
    if head.pending is not None:
        # Offsets that began with it may be in no committed window yet.
        _learn_topics(left, head.lane, head.pending.window)
    if head.pending is not None and head.pending.attempt is not None:
        left.generation = max(left.generation, head.pending.attempt.generation)


def _learn(left: _Left, record: Record, *, in_history: bool = True) -> None:
    left.generation = max(left.generation, record.attempt.generation)
    _learn_topics(left, record.lane, record.window)
    for place in record.places:
        left.places.setdefault(place.as_place, place)
    if not in_history:
        return
    chain = left.chains.setdefault(record.lane, _Chain(record, record))
    chain.last = record
    if record.window.guarantee == Guarantee.NONE:
        chain.unpositioned = record.seq


def _learn_topics(left: _Left, lane: str, window: Window) -> None:
    """The incarnations that a window has read, each where the ingest's first window of it began."""
    begins = _starts(window)
    beginning = set()
    # Offsets that an erasure only erases may be of an earlier incarnation than the topic's, whose id its window has.
    for range_ in window.ranges if not erases(lane) else ():
        topic_id = window.topic_ids.get(range_.topic)
        if topic_id is None:
            continue
        known = left.topics.setdefault(range_.topic, {})
        known_ = known.get(range_.incarnation) or TopicIncarnation(
            topic_id=topic_id, incarnation=range_.incarnation, since=window.pinned_at
        )
        # The history is read in the order of the numbers. All partitions of the topic are in its first window.
        if lane == INGEST and left.first.setdefault((range_.topic, range_.incarnation), window.seq) == window.seq:
            starts = {**dict(known_.starts), range_.partition: begins[range_.at]}
            known_ = structs.replace(known_, since=window.pinned_at, starts=tuple(sorted(starts.items())))
            beginning.add((range_.topic, range_.incarnation))
        known[range_.incarnation] = known_
    if lane == INGEST:
        for topic, incarnation in sorted(beginning):
            _go_on_with_the_order(left.topics[topic], incarnation)
        _note_partitions(left, window)


def _go_on_with_the_order(known: dict[int, TopicIncarnation], incarnation: int) -> None:
    """Where a log was cut, the topic is the same one: its order goes on to rise where it had begun to."""
    # No window may have met the incarnation in between.
    latest, before = known[incarnation], known.get(max((one for one in known if one < incarnation), default=0))
    if before is not None and before.topic_id == latest.topic_id:
        rising = still_rising(before, dict(latest.starts))
        known[incarnation] = structs.replace(latest, partitions=before.partitions, raised=rising)


def _note_partitions(left: _Left, window: Window) -> None:
    """The numbers of partitions as the pin of the window noted them, including partitions without new messages."""
    ends: dict[tuple[str, int], dict[TopicPartition, int]] = {}
    for range_ in window.ranges:
        ends.setdefault((range_.topic, range_.incarnation), {})[range_.at] = max(range_.log_end, range_.until)
    for (topic, incarnation), ends_ in ends.items():
        if (known := left.topics.get(topic, {}).get(incarnation)) is not None:
            left.topics[topic][incarnation] = noted({topic: (known,)}, ends_, window.pinned_at)[topic][0]


def _incarnations(known: Mapping[int, TopicIncarnation]) -> tuple[TopicIncarnation, ...]:
    """The incarnations of a topic. One with the same id as the one before began where its log was cut."""
    incarnations: list[TopicIncarnation] = []
    for number in sorted(known):
        incarnation = known[number]
        if not incarnations:
            incarnations.append(structs.replace(incarnation, starts=()))
            continue
        cut = incarnation.topic_id == incarnations[-1].topic_id
        change = TopicChange.TRUNCATED if cut else TopicChange.RECREATED
        begun = Accepted(change=change, policy=FOUND_IN, run="ledger rebuild", at=incarnation.since)
        incarnations.append(structs.replace(incarnation, begun=begun, starts=incarnation.starts if cut else ()))
    return tuple(incarnations)


# what is made


def _complete(ledger: Ledger, left: _Left, lane: str) -> None:
    """Make the head and the entry of a lane if they are missing, and close what cannot go on."""
    entry, head, chain = left.entries.get(lane), left.heads.get(lane), left.chains.get(lane)
    if head is None and entry is not None and entry.state == LaneState.OPENING:
        return
    if head is None or (chain is not None and head.seq < chain.last.seq):
        if chain is None and lane == INGEST:
            raise WrongUse(
                f"the head of {ledger.stream}/{INGEST} is lost, and no window of it is in the history: nothing says how far "
                f"it was. {RESTORE}"
            )
        left.missing.append(f"the head of {lane}" if head is None else f"the newest head of {lane}")
        head = _head(ledger, lane, entry, chain)
    if entry is None:
        if left.register is not None:
            left.missing.append(f"the entry of {lane} in the register")
        entry = _entry(lane, head, chain)
        if lane != INGEST and head.state != LaneState.CLOSED:
            head = structs.replace(head, state=LaneState.CLOSED, pending=None, closed_early=CLOSED_BECAUSE)
    if head.state == LaneState.CLOSED and entry.state != LaneState.CLOSED:
        at = max(ledger.clock(), head.last.committed_at + 1 if head.last else 0)
        entry = structs.replace(
            entry, state=LaneState.CLOSED, closed_at=at, windows=head.seq, closed_early=head.closed_early
        )
    left.entries[lane], left.heads[lane] = entry, head


def _head(ledger: Ledger, lane: str, entry: LaneEntry | None, chain: _Chain | None) -> Head:
    """The head of a lane after its last window in the history. Only the ingest goes on; other lanes are closed."""
    last = chain.last if chain else None
    kind = entry.kind if entry else last.kind if last else None
    assert kind is not None  # noqa: S101 - a lane without a head was found by its entry or in the history
    was_closed = entry is not None and entry.state == LaneState.CLOSED
    return Head(
        stream=ledger.stream,
        lane=lane,
        kind=kind,
        state=LaneState.OPEN if lane == INGEST else LaneState.CLOSED,
        token=new_token(),
        seq=last.seq if last else 0,
        positions=last.positions if last else entry.start if entry else (),
        last=last,
        unpositioned=chain.unpositioned if chain else 0,
        closed_early=None if lane == INGEST else entry.closed_early if entry and was_closed else CLOSED_BECAUSE,
        asked=entry.asked if entry else None,
    )


def _entry(lane: str, head: Head, chain: _Chain | None) -> LaneEntry:
    """An open lane's entry, as the first window tells it."""
    first = chain.first if chain else head.last
    window = first.window if first else head.pending.window if head.pending else None
    return LaneEntry(
        kind=head.kind,
        state=LaneState.OPEN,
        token=head.token,
        opened_at=window.pinned_at if window else 0,
        run=window.run if window else "",
        reason=window.reason if window else None,
        start=positions(_starts(first.window)) if lane == INGEST and first else (),
        selection=window.selection if window else None,
        sinks=window.sinks if window else None,
        erases=window.erases if window else None,
        asked=head.asked,
    )


def _starts(window: Window) -> dict[TopicPartition, int]:
    """Where a window of the ingest began in each partition: with what it has read or jumped over."""
    starts = {range_.at: range_.start for range_ in window.ranges}
    for gap in window.gaps:
        at = gap.as_range().partition
        starts[at] = min(gap.start, starts.get(at, gap.start))
    return starts


def _check_order(ledger: Ledger, left: _Left, by_order: Callable[[str], bool]) -> None:
    """Versions of a lost order lie in a table of newest values: a newer value must not be written below one of them.

    The history says between which windows partitions were added, not where the logs ended when a run first saw that. A
    change of a topic that no window of the ingest has met may have come before it was recreated. All else is found again:
    each cut begins the next epoch, and an order that no window of the ingest has met has no versions yet.
    """
    table = next((place for place in sorted(left.places.values(), key=_by_type) if by_order(place.type)), None)
    if table is None:
        return
    for topic, known in sorted(left.topics.items()):
        if any(incarnation.raised for incarnation in known.values()):
            why = "partitions were added to"
        elif len({incarnation.topic_id for incarnation in known.values()}) > 1 or max(known) > len(known):
            why = "somebody recreated or cut"
        else:
            continue
        raise WrongUse(
            f"the register of {ledger.stream} is lost. It alone knew where the order of the messages changed when {why} "
            f"{topic}. By that order, the sink {table.name} has written versions ({table.where()}): newer values could be "
            f"hidden there. {RESTORE}"
        )


def _by_type(place: SinkReceipt) -> str:
    return place.type


def _register(ledger: Ledger, left: _Left, ledger_id: str) -> Register:
    return Register(
        stream=ledger.stream,
        ledger=ledger_id,
        generation=left.generation,
        token=new_token(),
        topics={topic: _incarnations(known) for topic, known in left.topics.items()},
        places=each_place(left.places.values()),
    )
