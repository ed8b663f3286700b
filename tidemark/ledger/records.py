"""The values that the ledger stores: register, head, history record, selection, heartbeat.

All are immutable. Offsets are 64-bit numbers, times are milliseconds since 1970, digests are SHA-256 in hexadecimal.
Each stored value begins with its format; `codec.py` turns them into bytes and back.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct, field

from tidemark.blocks import PartitionBlocks
from tidemark.ledger.store import Offsets
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.tallies import PartitionTally

INGEST = "ingest"

# The format of the values that this version writes; `codec.py` migrates older ones.
FORMAT = 4


class LaneKind(StrEnum):
    INGEST = "ingest"
    BACKFILL = "backfill"
    REPLAY = "replay"


def selected_lane(kind: LaneKind, name: str) -> str:
    """The lane of a backfill or a replay, by what is its own."""
    return f"{kind.value}-{name}"


def replays(lane: str) -> bool:
    """Whether this is the lane of a replay."""
    return lane.startswith(selected_lane(LaneKind.REPLAY, ""))


class Guarantee(StrEnum):
    """What a crash may cost: nothing; the window that was worked on; or, as no position is kept, nothing again.

    `at_most_once` commits before it reads, `none` keeps no positions. As `TopologyBuilder`'s ways to turn reliability off.
    """

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    NONE = "none"


class LaneState(StrEnum):
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


class Position(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The next offset to read of one partition."""

    topic: str
    incarnation: int
    partition: int
    offset: int

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition, self.incarnation)


def positions(offsets: dict[TopicPartition, int]) -> tuple[Position, ...]:
    return tuple(Position(at.topic, at.incarnation, at.partition, offset) for at, offset in sorted(offsets.items()))


def next_offsets(positions: Iterable[Position]) -> Offsets:
    """{topic: {partition: next offset}}, of each topic's newest incarnation."""
    found: Offsets = {}
    for position in sorted(positions, key=lambda one: one.incarnation):
        found.setdefault(position.topic, {})[position.partition] = position.offset
    return found


class SelectionRef(Struct, frozen=True, forbid_unknown_fields=True):
    """A stored set of offsets, named by the digest of its contents."""

    digest: str
    offsets: int


class WindowRange(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[start, until) of one partition as it was pinned, with what was then known of the partition's log."""

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
        return TopicPartition(self.topic, self.partition, self.incarnation)

    def as_range(self) -> OffsetRange:
        return OffsetRange(self.at, self.start, self.until)


class GapKind(StrEnum):
    """Why a lane has jumped over offsets: Kafka no longer had them, or a policy of the stream file passed them over."""

    LOST = "lost"
    SKIPPED = "skipped"


class Gap(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Offsets that a lane jumps over when the window with this gap commits, and the policy that said so."""

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

    def as_range(self) -> OffsetRange:
        return OffsetRange(TopicPartition(self.topic, self.partition, self.incarnation), self.start, self.until)


class Window(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Ranges pinned once, and read exactly so for ever. With a selection, only its offsets within the ranges.

    `gaps` lie before the ranges: the lane's positions jump over them, and they count as lost or skipped from the commit on.
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
    # The end that the run saw when it began: it goes on, window after window, until it is there.
    goal: tuple[Position, ...] = ()

    def hull(self) -> RangeSet:
        return RangeSet(one.as_range() for one in self.ranges)


class Attempt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One attempt at a window. The generation is its fence, and the version of all that it writes."""

    generation: int
    token: str
    run: str
    taken_at: int
    code_version: str
    stream_digest: str
    # Higher than that of every attempt that may have written at the same offsets before; see `draw_generation`.
    ordinal: int = 0


class Pending(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The window that a lane works on. `previous` is the digest of the history record before it."""

    window: Window
    token: str
    previous: str | None
    takes: int = 0
    attempt: Attempt | None = None


class SinkReceipt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where one sink put the results (or the dead letters) of a window, in that sink's own terms."""

    name: str
    type: str
    place: dict[str, str]


class BlocksRef(Struct, frozen=True, forbid_unknown_fields=True):
    """The tallies of a window's blocks, which are a value of their own: its digest, and how many offsets a block has."""

    digest: str
    size: int


class Receipt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an attempt did."""

    tallies: tuple[PartitionTally, ...]
    sinks: tuple[SinkReceipt, ...]
    # None of a window that had nothing to read.
    dead_letters: SinkReceipt | None
    started_at: int
    finished_at: int
    # The digest of the fields that contents were digested of (`blocks.fields_digest`); older versions wrote none.
    fields: str | None = None
    # None where each partition of the window lies in one block, so that its tally says it all; and in older versions.
    blocks: BlocksRef | None = None


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A committed window: the head holds the last one, the history all of them for good.

    Without a `receipt` it was committed before it was read (`at_most_once`): see `Book.receipt`.
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
    # An earlier attempt may have left rows that this one did not write again.
    owes_sweep: bool
    previous: str | None

    @property
    def seq(self) -> int:
        return self.window.seq

    @property
    def tallies(self) -> tuple[PartitionTally, ...]:
        """What the attempt counted; nothing while there is no receipt."""
        return self.receipt.tallies if self.receipt else ()

    @property
    def places(self) -> tuple[SinkReceipt, ...]:
        """Where the results and the dead letters are, as far as a receipt says so."""
        if self.receipt is None:
            return ()
        dead_letters = self.receipt.dead_letters
        return (*self.receipt.sinks, dead_letters) if dead_letters else self.receipt.sinks


class Blocks(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The tallies of a window by blocks of `size` offsets; put by an attempt before it commits, and named by its receipt."""

    format: int = FORMAT
    size: int
    partitions: tuple[PartitionBlocks, ...]


class Late(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The receipt of a window that was committed before it was read."""

    format: int = FORMAT
    receipt: Receipt


class Abandoned(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many pending windows of a lane were given up, the last of them, and how far any of them went."""

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
    # The last window that moved no position (`guarantee: none`): up to it, positions do not say which window read what.
    unpositioned: int = 0

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


class Raised(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Partitions were added to a topic, which changes what is newer: see `ordering.py`.

    `ends` and `later` are (partition, offset) pairs of the partitions that were there before: where they ended when it was
    noticed, and when every producer had noticed too (None while that is to come). `at` is milliseconds since 1970.
    """

    at: int
    ends: tuple[tuple[int, int], ...]
    later: tuple[tuple[int, int], ...] | None = None


class TopicIncarnation(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A topic as the ledger knows it, until it is recreated or truncated.

    `begun` is why this incarnation follows another one, `left` that the topic is gone and is not waited for.
    """

    topic_id: str
    incarnation: int
    since: int
    begun: Accepted | None = None
    left: Accepted | None = None
    # (partition, offset) where its partitions begin, if not at their log starts.
    starts: tuple[tuple[int, int], ...] = ()
    # How many partitions it had when the ingest last looked (older versions wrote none), and when that has changed.
    partitions: int | None = None
    raised: tuple[Raised, ...] = ()


class LaneEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the register says of a lane; everything but `ingest` works on a selection, and that is its claim.

    `until` is where the selection ends in each partition of `start`, in that order: a look-up need not read it for what lies
    outside. Empty in lanes without a selection, and in those that older versions opened.
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
    # Of a closed lane: behind the time of its last commit, and how many windows it has. Older versions wrote neither.
    closed_at: int | None = None
    windows: int | None = None


class Register(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One per stream. `generation` and `ordinal` never fall; `token` is that of the last write, so no value ever recurs."""

    format: int = FORMAT
    stream: str
    ledger: str
    generation: int
    token: str
    topics: dict[str, tuple[TopicIncarnation, ...]] = {}
    lanes: dict[str, LaneEntry] = {}
    # Of the last attempt that has written again, or may have, where another one had. Older versions wrote none.
    ordinal: int = 0


class Heartbeat(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sign of life beside the head, and how far the attempt is. Advisory: nothing is decided by it but waiting."""

    format: int = FORMAT
    generation: int
    run: str
    at: int
    step: str
    done: dict[str, int] = {}


class Selection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stored set of offsets: per partition (start, until) pairs, ascending."""

    format: int = FORMAT
    partitions: tuple[tuple[str, int, int, tuple[tuple[int, int], ...]], ...]

    def __post_init__(self) -> None:
        for _, _, _, intervals in self.partitions:
            for start, until in intervals:
                if not 0 <= start <= until:
                    raise ValueError(f"from {start} until {until} is not a range of offsets")

    def as_ranges(self) -> RangeSet:
        return RangeSet(
            OffsetRange(TopicPartition(topic, partition, incarnation), start, until)
            for topic, incarnation, partition, intervals in self.partitions
            for start, until in intervals
        )

    @classmethod
    def of(cls, ranges: RangeSet) -> Selection:
        return cls(
            partitions=tuple((at.topic, at.incarnation, at.partition, ranges.of(at)) for at in ranges.partitions)
        )


def covers(window: Window, selection: RangeSet | None) -> RangeSet:
    """The offsets that a window is about."""
    return window.hull() if selection is None else window.hull() & selection
