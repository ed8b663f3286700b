"""The values that the ledger stores: register, head, history record, selection, heartbeat.

All are immutable. Offsets are 64-bit numbers, times are milliseconds since 1970, digests are SHA-256 in hexadecimal.
Each stored value begins with its format. `codec.py` turns the values into bytes and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache

import msgspec
from msgspec import Struct, field

from tidemark.ledger.stores.contract import Offsets, ResetOffset
from tidemark.offsets.blocks import PartitionBlocks
from tidemark.offsets.ranges import Interval, OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import PartitionTally
from tidemark.offsets.times import in_utc

INGEST = "ingest"

# The format of all values of a ledger; `codec.py` refuses others.
FORMAT = 1


# A history names the same few partitions in each of its windows.
partition_of = lru_cache(maxsize=1 << 16)(TopicPartition)


class LaneKind(StrEnum):
    INGEST = "ingest"
    BACKFILL = "backfill"
    REPLAY = "replay"
    # Makes offsets have no result for ever. See `erasures.py`.
    ERASE = "erase"

    @property
    def reads_again(self) -> bool:
        """Whether its windows cover what other windows have read: those of ingest and backfill do not overlap."""
        return self in (LaneKind.REPLAY, LaneKind.ERASE)


def selected_lane(kind: LaneKind, name: str) -> str:
    """The lane of a backfill, a replay or an erasure, by its own part of the name."""
    return f"{kind.value}-{name}"


def replays(lane: str) -> bool:
    """Whether this is the lane of a replay."""
    return lane.startswith(selected_lane(LaneKind.REPLAY, ""))


def erases(lane: str) -> bool:
    """Whether this is the lane of an erasure."""
    return lane.startswith(selected_lane(LaneKind.ERASE, ""))


def reads_again(lane: str) -> bool:
    """Whether this is the lane of a kind that reads again."""
    return replays(lane) or erases(lane)


class Guarantee(StrEnum):
    """The cost of a crash. `at_least_once`: nothing. `at_most_once`: the window in work, committed before it is read.

    `none`: nothing, because the lane keeps no positions. `TopologyBuilder` can turn reliability off in similar ways.
    """

    AT_LEAST_ONCE = "at_least_once"
    AT_MAX_ONCE = "at_most_once"
    NONE = "none"


class LaneState(StrEnum):
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


# gc=False: there are many of these, and none can be in a cycle. Searching them for cycles took half of a commit's time.
class Position(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The next offset to read of one partition."""

    topic: str
    incarnation: int
    partition: int
    offset: int

    @property
    def at(self) -> TopicPartition:
        return partition_of(self.topic, self.partition, self.incarnation)


def positions(offsets: dict[TopicPartition, int]) -> tuple[Position, ...]:
    return tuple(Position(at.topic, at.incarnation, at.partition, offset) for at, offset in sorted(offsets.items()))


def next_offsets(positions: Iterable[Position]) -> Offsets:
    """{topic: {partition: next offset}}, of each topic's newest incarnation."""
    by_incarnation: dict[str, dict[int, dict[int, int]]] = {}
    for position in positions:
        by_incarnation.setdefault(position.topic, {}).setdefault(position.incarnation, {})[position.partition] = (
            position.offset
        )
    return {topic: incarnations[max(incarnations)] for topic, incarnations in by_incarnation.items()}


class SelectionRef(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A stored set of offsets, named by the digest of its contents."""

    digest: str
    offsets: int


class Erasure(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The offsets that a lane erases, who asked and who approved: None if nobody is known, or had to approve."""

    selection: SelectionRef
    asked_by: str | None = None
    approved_by: str | None = None


class RunRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The request that a run's lanes were opened for. The run's name stands for this request, and for no other.

    `fields`: the request's fields that were filled in; a long text by its digest. `selection` and `again` are the
    claims of all lanes of the run together: see `open_request`. `erases` is the erased part.
    """

    fields: dict[str, str]
    selection: SelectionRef | None = None
    again: SelectionRef | None = None
    erases: SelectionRef | None = None


class WindowRange(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """[start, until) of one partition as pinned, with the bounds and leader epoch of its log at that time."""

    topic: str
    incarnation: int
    partition: int
    start: int = field(name="from")
    until: int
    log_start: int
    log_end: int
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.until:
            raise ValueError(f"from {self.start} until {self.until} is not a range of offsets")

    @property
    def at(self) -> TopicPartition:
        return partition_of(self.topic, self.partition, self.incarnation)

    def as_range(self) -> OffsetRange:
        return OffsetRange(self.at, self.start, self.until)


class GapKind(StrEnum):
    """Why a lane has jumped over offsets: Kafka had lost them, or a policy of the stream file skipped them."""

    LOST = "lost"
    SKIPPED = "skipped"


class Gap(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """Offsets that a lane jumps over when the window with this gap commits, and the policy that allows the jump."""

    kind: GapKind
    policy: str
    topic: str
    incarnation: int
    partition: int
    start: int = field(name="from")
    until: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.until:
            raise ValueError(f"from {self.start} until {self.until} is not a gap")

    @property
    def at(self) -> TopicPartition:
        return partition_of(self.topic, self.partition, self.incarnation)

    def as_range(self) -> OffsetRange:
        return OffsetRange(self.at, self.start, self.until)


class Window(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """Ranges that are pinned once and never change. With a selection, only its offsets within the ranges.

    `gaps` lie before the ranges. The commit moves the lane's positions over them, and they count as lost or skipped.
    """

    seq: int
    ranges: tuple[WindowRange, ...]
    gaps: tuple[Gap, ...] = ()
    selection: SelectionRef | None = None
    topic_ids: dict[str, str]
    isolation: str
    pinned_at: int
    run: str
    reason: str | None = None
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    # The end that the run saw when it began. The run goes on, window after window, until the lane reaches this end.
    goal: tuple[Position, ...] = ()
    # The sinks that the window writes, by name. None if all sinks of the stream file, and the dead letters.
    sinks: tuple[str, ...] | None = None
    # None for every window but those of an erasure.
    erases: Erasure | None = None

    def counts_for(self, sink: str | None) -> bool:
        """Whether the window decides which rows count at its offsets in a sink; None for the dead letters and the
        offsets themselves.
        """
        return self.sinks is None or sink in self.sinks

    def hull(self) -> RangeSet:
        return RangeSet.of_intervals((range_.at, ((range_.start, range_.until),)) for range_ in self.ranges)


class Attempt(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """One attempt at a window. The generation is its fence, and the version of all rows that it writes."""

    generation: int
    token: str
    run: str
    taken_at: int
    code_version: str
    stream_digest: str
    # As in `protocol.Run`.
    task: str = ""


class Pending(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The window that a lane works on. `previous` is the digest of the history record before it."""

    window: Window
    token: str
    previous: str | None
    takes: int = 0
    attempt: Attempt | None = None


class SinkReceipt(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """Where one sink put the results (or the dead letters) of a window, in that sink's own terms."""

    name: str
    type: str
    place: dict[str, str]

    @property
    def as_place(self) -> tuple[object, ...]:
        """The place, whichever attempt has written there: without the attempt's own folder."""
        return (self.name, self.type, *sorted(item for item in self.place.items() if item[0] != "folder"))

    @property
    def words(self) -> tuple[str, ...]:
        """The place as a person names it, for example to `tidemark ledger forget-place`."""
        return (self.name, *(f"{name}={value}" for name, value in self.place.items() if name != "folder"))

    def where(self) -> str:
        return " ".join(self.words[1:])


def each_place(places: Iterable[SinkReceipt]) -> tuple[SinkReceipt, ...]:
    """The places of several attempts; of those that differ only in an attempt's own folder, the first.

    A sink with another name is another place: what it has written is found by its name.
    """
    merged: dict[tuple[object, ...], SinkReceipt] = {}
    for place in places:
        merged.setdefault(place.as_place, place)
    return tuple(merged.values())


class BlocksRef(Struct, frozen=True, forbid_unknown_fields=True):
    """The tallies of a window's blocks, stored as a separate value: the digest of this value, and the offsets per block."""

    digest: str
    size: int


_MAX_UNKNOWN_NAMES, MAX_UNKNOWN_BYTES = 20, 750


class UnknownFields(Struct, frozen=True, forbid_unknown_fields=True):
    """How many messages of a window had keys that no field of the stream has, and the most frequent of these keys.

    Each of `names` with the number of messages that had it. Names are cut, and not all are kept.
    """

    messages: int
    names: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, messages: int, times: Mapping[str, int]) -> UnknownFields | None:
        """All keys of some `messages`, by how many times each was there; None of no message."""
        names = sorted(times.items(), key=lambda one: (-one[1], one[0]))
        return cls(messages, tuple(names)) if messages else None

    def for_a_receipt(self) -> UnknownFields:
        """The same with its most frequent names: as many as have room. JSON may write a character in six bytes."""
        names = self.names[:_MAX_UNKNOWN_NAMES]
        while len(msgspec.json.encode(names)) > MAX_UNKNOWN_BYTES:
            names = names[:-1]
        return UnknownFields(self.messages, names)


class Receipt(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """The result of an attempt: what it counted, and where it wrote."""

    tallies: tuple[PartitionTally, ...]
    sinks: tuple[SinkReceipt, ...]
    # None for a window that had nothing to read.
    dead_letters: SinkReceipt | None
    started_at: int
    finished_at: int
    # The digest of the fields that enter content digests (`blocks.fields_digest`). None for a window without messages.
    fields: str | None = None
    # None when each partition of the window lies in one block: its tally is then that block's.
    blocks: BlocksRef | None = None
    # None if no message had any, or the scheme does not tell.
    unknown: UnknownFields | None = None


class Record(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """A committed window. The head holds the last one; the history keeps all of them for good.

    Without a `receipt`, the window was committed before it was read (`at_most_once`): see `Ledger.with_receipt`.
    """

    format: int = FORMAT
    stream: str
    lane: str
    kind: LaneKind
    window: Window
    attempt: Attempt
    receipt: Receipt | None
    positions: tuple[Position, ...]
    committed_at: int
    # An earlier attempt may have left rows that this attempt did not write again.
    owes_sweep: bool
    previous: str | None

    @property
    def seq(self) -> int:
        return self.window.seq

    @property
    def tallies(self) -> tuple[PartitionTally, ...]:
        """The attempt's counts; nothing while there is no receipt."""
        return self.receipt.tallies if self.receipt else ()

    @property
    def has_counts(self) -> bool:
        """Whether the ledger has what the attempt counted, if only that there was nothing.

        Not without a receipt, and not if the ledger was rebuilt from the results.
        """
        return self.receipt is not None and (bool(self.receipt.tallies) or self.receipt.fields is not None)

    @property
    def places(self) -> tuple[SinkReceipt, ...]:
        """Where the results and the dead letters are; nothing while there is no receipt."""
        if self.receipt is None:
            return ()
        dead_letters = self.receipt.dead_letters
        return (*self.receipt.sinks, dead_letters) if dead_letters else self.receipt.sinks


def exported(record: Record, before: Iterable[Position] | None = None) -> Offsets:
    """The next offsets that other tools are shown after a commit of the ingest: those of the partitions that it reads.

    `before`: the positions before the commit. Where it is the first in another incarnation of a partition, the offset is Anew.

    A partition that fell away is left out: its topic was deleted or recreated, or the stream file no longer names it. The
    topic itself stays, so that a layout for several topics stays one.
    """
    read = {range_.at for range_ in record.window.ranges}
    known = {position.at for position in before} if before is not None else read
    earlier = {(at.topic, at.partition) for at in known}
    changed: Offsets = {}
    for position in record.positions:
        partitions = changed.setdefault(position.topic, {})
        if position.at in read:
            anew = position.at not in known and (position.topic, position.partition) in earlier
            partitions[position.partition] = ResetOffset(position.offset) if anew else position.offset
    return changed


class BlockTallies(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tallies of a window by blocks of `size` offsets. An attempt stores them before its commit; its receipt names them."""

    format: int = FORMAT
    size: int
    partitions: tuple[PartitionBlocks, ...]


class LateReceipt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The receipt of a window that was committed before it was read."""

    format: int = FORMAT
    receipt: Receipt


class Abandoned(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many pending windows of a lane were abandoned, the last of them, and where the furthest of them ends."""

    count: int
    token: str
    generation: int | None
    reason: str
    until: tuple[Position, ...]


class Head(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The state of a lane. `seq` counts its committed windows; no value of a head ever recurs."""

    format: int = FORMAT
    stream: str
    lane: str
    kind: LaneKind
    state: LaneState
    token: str
    seq: int
    positions: tuple[Position, ...]
    pending: Pending | None = None
    last: Record | None = None
    abandoned: Abandoned | None = None
    # The last window that moved no position (`guarantee: none`). Up to it, positions cannot tell which window read an offset.
    unpositioned: int = 0
    # Why the lane was closed before it was done; None for all other lanes.
    closed_early: str | None = None
    # The purpose of the lane; None for the ingest.
    asked: RunRequest | None = None

    def offsets(self) -> dict[TopicPartition, int]:
        return {position.at: position.offset for position in self.positions}


class TopicChange(StrEnum):
    RECREATED = "recreated"
    TRUNCATED = "truncated"
    DELETED = "deleted"


class Accepted(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A change of a topic that a policy of the stream file has accepted: an event of the ledger."""

    change: TopicChange
    policy: str
    run: str
    at: int


class RaisedOrder(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Partitions were added to a topic, which changes the order of messages: see `ordering.py`.

    `ends` and `later` are (partition, offset) pairs of the older partitions. `ends`: where they ended when the ingest
    noticed the change. `later`: where they ended once every producer had noticed too; None until then. `at` is in
    milliseconds since 1970.
    """

    at: int
    ends: tuple[tuple[int, int], ...]
    later: tuple[tuple[int, int], ...] | None = None


class TopicIncarnation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A topic as the ledger knows it, until it is recreated or truncated.

    `begun` is why this incarnation follows another one. With `left`, the topic is gone and the stream leaves it.
    """

    topic_id: str
    incarnation: int
    since: int
    begun: Accepted | None = None
    left: Accepted | None = None
    # (partition, offset) pairs: where partitions begin, if not at their log starts.
    starts: tuple[tuple[int, int], ...] = ()
    # How many partitions the topic had when the ingest last looked (None before that), and when partitions were added.
    partitions: int | None = None
    raised: tuple[RaisedOrder, ...] = ()


class Paused(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Since when no further window of a lane begins, and why."""

    reason: str
    at: int


class LaneEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lane in the register. Every lane but `ingest` works on a selection, and this selection is its claim.

    `until` is where the selection ends in each partition of `start`, in that order. With it, a look-up of an offset outside
    need not read the selection. Empty for lanes without a selection, and for a selection that does not begin at `start`.
    """

    kind: LaneKind
    state: LaneState
    token: str
    opened_at: int
    run: str
    reason: str | None = None
    start: tuple[Position, ...] = ()
    until: tuple[int, ...] = ()
    selection: SelectionRef | None = None
    # For a closed lane: a time after its last commit, and how many windows it has. None for an open lane.
    closed_at: int | None = None
    windows: int | None = None
    # As in the head.
    closed_early: str | None = None
    # Who asked for the lane, and the second person who approved it. None where no user is known, or none had to approve.
    asked_by: str | None = None
    approved_by: str | None = None
    paused: Paused | None = None
    # The most records a second, on average. None for the stream file's rate.
    rate: int | None = None
    # As in the windows of the lane.
    sinks: tuple[str, ...] | None = None
    erases: Erasure | None = None
    # As in the head.
    asked: RunRequest | None = None


class AcceptedClock(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event: an operator accepted a last generation far ahead of all clocks. From there on, draws count up."""

    generation: int
    reason: str
    at: int


class ForgottenPlace(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event: somebody said that a place is gone for good, and what it holds with it. No erasure or sweep goes there.

    `back`: somebody has said since that it is there again. Erasures clear it again; nothing is written there until all that
    was erased meanwhile is cleared.
    """

    place: SinkReceipt
    reason: str
    by: str
    at: int
    back: bool = False

    def said(self) -> str:
        return f"{self.by} said at {in_utc(self.at)} that it is gone for good: {self.reason}"


class Register(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One per stream. `generation` never falls; `token` is that of the last write, so no value ever recurs.

    `lanes` has the lanes that are not closed. The `closed` others are in the pages 0 to `closed_page` (`closed_lanes.py`).
    """

    format: int = FORMAT
    stream: str
    ledger: str
    generation: int
    token: str
    topics: dict[str, tuple[TopicIncarnation, ...]] = {}
    lanes: dict[str, LaneEntry] = {}
    # Drawn when this ledger may have forgotten something: see `forgetting.py`. It is a part of the name `ledger` from then on.
    restored: str = ""
    # The last acceptance of a generation that was far ahead.
    clock: AcceptedClock | None = None
    closed: int = 0
    closed_page: int = 0
    # Why the ledger is used no more, for example where it has moved to. Then the register never changes again.
    retired: str | None = None
    # Where attempts may have written, each place once, whether they committed or not: see `note_places`.
    places: tuple[SinkReceipt, ...] = ()
    # The places among them, and among those of receipts, that are gone for good: see `places.py`.
    forgotten: tuple[ForgottenPlace, ...] = ()

    def __post_init__(self) -> None:
        # Each page has a lane: one of the closed, or one whose closing has died on the way.
        if not 0 <= self.closed_page <= self.closed + len(self.lanes):
            raise ValueError(f"{self.closed} closed lanes are not in pages 0 to {self.closed_page}")


class Heartbeat(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sign of life next to the head, and the progress of the attempt. Advisory: it only decides whether another run waits."""

    format: int = FORMAT
    generation: int
    run: str
    at: int
    step: str
    done: dict[str, int] = {}

    @property
    def stored(self) -> int | None:
        """The messages that the step has stored so far. None for a step that stores none: `done` are those that it has read."""
        return sum(self.done.values()) if "storing" in self.step else None


class JobProgress(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The progress of a job that holds no window: an audit or a comparison. Advisory: for whoever waits.

    In a step that reads Kafka, `total` has the offsets of each partition, in their order, and `done` the messages.
    `try_number` is that of its task in Airflow; 0 without Airflow.
    """

    format: int = FORMAT
    run: str
    at: int
    step: str
    try_number: int = 0
    done: dict[str, int] = {}
    total: tuple[tuple[str, int], ...] = ()


class AuditOutcome(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The outcome of an audit that has ended. Advisory: the report of the run says the same, and more."""

    format: int = FORMAT
    run: str
    at: int
    level: str
    clean: bool
    sentence: str


class StoredPiece(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a selection that is stored as a selection of its own: where it begins, and its digest."""

    topic: str
    incarnation: int
    partition: int
    start: int
    digest: str

    @property
    def begins(self) -> tuple[TopicPartition, int]:
        return partition_of(self.topic, self.partition, self.incarnation), self.start


class Selection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stored set of offsets: per partition (start, until) pairs, ascending. Or its `pieces`, in order, without pairs."""

    format: int = FORMAT
    partitions: tuple[tuple[str, int, int, tuple[Interval, ...]], ...] = ()
    pieces: tuple[StoredPiece, ...] = ()

    def __post_init__(self) -> None:
        for _, _, _, intervals in self.partitions:
            for start, until in intervals:
                if not 0 <= start <= until:
                    raise ValueError(f"from {start} until {until} is not a range of offsets")

    def as_ranges(self) -> RangeSet:
        """The offsets of a selection without pieces."""
        return RangeSet.of_intervals(
            (TopicPartition(topic, partition, incarnation), intervals)
            for topic, incarnation, partition, intervals in self.partitions
        )

    @classmethod
    def of(cls, ranges: RangeSet) -> Selection:
        return cls(
            partitions=tuple((at.topic, at.incarnation, at.partition, ranges.of(at)) for at in ranges.partitions)
        )


def covers(window: Window, selection: RangeSet | None) -> RangeSet:
    """The offsets that a window covers."""
    return window.hull() if selection is None else window.hull() & selection
