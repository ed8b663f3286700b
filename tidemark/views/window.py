"""One window: what it covers, what became of its messages, which offsets it passed over, its attempt and its times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.incarnations import Topics
from tidemark.ledger.records import (
    Attempt,
    Gap,
    GapKind,
    Heartbeat,
    LaneEntry,
    Pending,
    Receipt,
    Record,
    Window,
    WindowRange,
)
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.messages.payloads import visible
from tidemark.views.summary import Messages, messages
from tidemark.views.unknown_fields import sentence
from tidemark.views.values import Number, PartitionRanges, part_of

COMMITTED = "committed"
_NO_TALLY = PartitionTally(topic="", incarnation=1, partition=0)


def parse_window(said: str) -> tuple[str, int]:
    """A window as people name it, LANE/NUMBER. Raises WrongUse."""
    lane, _, number = said.rpartition("/")
    if not lane or not number.isascii() or not number.isdigit() or len(number) > 19:
        raise WrongUse(f"{said!r} is not a window; expected LANE/NUMBER, for example ingest/17")
    return lane, int(number)


@dataclass(frozen=True)
class AttemptShown:
    """`same_file`: whether the stream file is still the one that the attempt worked with; `file_text` is its text then.

    The ledger keeps the digest of a file alone.
    """

    run: str
    generation: Number
    code_version: str
    stream_digest: str
    same_file: bool
    file_text: str | None


@dataclass(frozen=True)
class StepTaken:
    """When a step ended, and how long it took (ms); None for what is not known."""

    step: str
    at: int | None
    took_ms: int | None


@dataclass(frozen=True)
class MessagesOfWindow(Messages):
    no_message: int


@dataclass(frozen=True)
class TallyShown:
    read: Number
    stored: Number
    skipped: Number
    invalid: Number
    failed: Number
    rows: Number
    no_message: Number
    bytes: Number
    first: Number | None
    last: Number | None
    first_timestamp: int | None
    last_timestamp: int | None
    ack: str


@dataclass(frozen=True)
class PartitionOfWindow(PartitionRanges):
    topic: str
    number: int
    offsets: Number
    log_start: Number
    log_end: Number
    leader_epoch: int | None
    tally: TallyShown | None


@dataclass(frozen=True)
class GapShown(PartitionRanges):
    offsets: Number
    kind: str
    policy: str
    sentence: str


@dataclass(frozen=True)
class SinkOfWindow:
    name: str
    type: str
    place: dict[str, str]


@dataclass(frozen=True)
class WindowShown:
    """A committed or pending window. `attempt` and `messages` are None as long as there is none. Times are ms since 1970.

    `only_sinks`: the sinks that it writes alone; None for all, and the dead letters. `unknown_fields` says how many messages
    have keys that the stream does not name.
    """

    stream: str
    window: str
    lane: str
    seq: int
    run: str | None
    reason: str | None
    asked_by: str | None
    approved_by: str | None
    guarantee: str
    isolation: str
    offsets: Number
    only_sinks: list[str] | None
    selected: Number | None
    gaps: list[GapShown]
    state: str
    attempt: AttemptShown | None
    committed_at: int | None
    times: list[StepTaken]
    messages: MessagesOfWindow | None
    unknown_fields: str | None
    partitions: list[PartitionOfWindow]
    sinks: list[SinkOfWindow]
    takes: int | None


def window_of(opened: OpenStream, lane: str, seq: int) -> WindowShown | None:
    """A window; None when the lane has no such window. Raises the ledger's errors."""
    ledger = opened.ledger
    stored = ledger.head(lane)
    entry = all_lanes(ledger).get(lane)
    if stored is not None and stored.head.pending is not None and stored.head.pending.window.seq == seq:
        pending, beat = stored.head.pending, ledger.last_beat(lane)
        state = f"pending: {beat.step}" if beat is not None and _is_of(beat, pending) else "pending"
        return _shown(opened, lane, entry, pending, state)
    record = stored.head.last if stored is not None and stored.head.seq == seq else None
    if record is None:
        committed = ledger.record(lane, seq)
        record = committed[1] if committed is not None else None
    if record is None:
        return None
    record = ledger.with_receipt(record)
    state = COMMITTED if record.receipt is not None else "committed, without a receipt"
    return _shown(opened, lane, entry, record, state)


def _shown(
    opened: OpenStream, lane: str, entry: LaneEntry | None, pending: Record | Pending, state: str
) -> WindowShown:
    window, attempt, record = pending.window, pending.attempt, pending if isinstance(pending, Record) else None
    covers, receipt = opened.ledger.covers(window), record.receipt if record else None
    topics = opened.ledger.topics()
    committed_at = record.committed_at if record else None
    return WindowShown(
        stream=opened.ledger.stream,
        window=f"{lane}/{window.seq}",
        lane=lane,
        seq=window.seq,
        run=window.run,
        reason=window.reason or (entry.reason if entry else None),
        asked_by=entry.asked_by if entry else None,
        approved_by=entry.approved_by if entry else None,
        guarantee=window.guarantee.value,
        isolation=window.isolation,
        offsets=covers.count(),
        only_sinks=None if window.sinks is None else list(window.sinks),
        selected=None if window.selection is None else window.selection.offsets,
        gaps=[_gap(gap, topics) for gap in window.gaps],
        state=state,
        attempt=_attempt(opened, attempt) if attempt else None,
        committed_at=committed_at,
        times=_times(window, attempt, receipt, committed_at),
        messages=_messages(record, covers) if record is not None and receipt is not None else None,
        unknown_fields=sentence(receipt.unknown) if receipt is not None else None,
        partitions=[
            _partition(range_, covers, receipt, topics) for range_ in window.ranges if range_.start < range_.until
        ],
        sinks=[SinkOfWindow(place.name, place.type, dict(place.place)) for place in record.places] if record else [],
        takes=pending.takes if isinstance(pending, Pending) else None,
    )


def _messages(record: Record, covers: RangeSet) -> MessagesOfWindow:
    counts = messages(record)
    return MessagesOfWindow(**vars(counts), no_message=covers.count() - counts.read)


def _attempt(opened: OpenStream, attempt: Attempt) -> AttemptShown:
    same_file = attempt.stream_digest == opened.file.digest
    text = _text_of(opened.file.path) if same_file else None
    return AttemptShown(attempt.run, attempt.generation, attempt.code_version, attempt.stream_digest, same_file, text)


def _text_of(path: Path) -> str | None:
    """A file that has been read before, whose disk may be away now."""
    try:
        return visible(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _times(
    window: Window, attempt: Attempt | None, receipt: Receipt | None, committed_at: int | None
) -> list[StepTaken]:
    before = receipt is not None and committed_at is not None and committed_at <= receipt.started_at
    ends = [
        ("pinned", window.pinned_at),
        ("taken by the attempt", attempt.taken_at if attempt else None),
        ("begun", receipt.started_at if receipt else None),
        ("read, stored and verified", receipt.finished_at if receipt else None),
    ]
    # With `guarantee: at_most_once`, the commit comes before the work.
    ends.insert(2 if before else 4, ("committed", committed_at))
    steps: list[StepTaken] = []
    last: int | None = None
    for name, at in ends:
        took = None if at is None or last is None else max(0, at - last)
        steps.append(StepTaken(name, at, took))
        last = last if at is None else at
    return steps


def _partition(range_: WindowRange, covers: RangeSet, receipt: Receipt | None, topics: Topics) -> PartitionOfWindow:
    offsets = covers.count(range_.at)
    same = {name: getattr(range_, name) for name in ("topic", "log_start", "log_end", "leader_epoch")}
    same |= vars(part_of(topics, OffsetRange(range_.at, range_.start, range_.until)))
    tally = None if receipt is None else _tally(range_.at, offsets, receipt)
    return PartitionOfWindow(**same, number=range_.partition, offsets=offsets, tally=tally)


def _tally(at: TopicPartition, offsets: int, receipt: Receipt) -> TallyShown:
    tally = next((tally for tally in receipt.tallies if tally.at == at), _NO_TALLY)
    names = ("read", "stored", "skipped", "invalid", "failed", "rows")
    return TallyShown(
        **{name: getattr(tally, name).number for name in names},
        no_message=offsets - tally.read.number,
        bytes=tally.bytes,
        first=tally.first,
        last=tally.last,
        first_timestamp=tally.first_timestamp,
        last_timestamp=tally.last_timestamp,
        ack=tally.read.ack,
    )


_WHY = {
    GapKind.LOST: "Kafka no longer had them when the window was pinned, and the policy let the ingest go on behind them",
    GapKind.SKIPPED: "the policy left them out; a backfill can still read what Kafka holds of them",
}


def _gap(gap: Gap, topics: Topics) -> GapShown:
    part = vars(part_of(topics, gap.as_range()))
    return GapShown(
        **part, offsets=gap.until - gap.start, kind=gap.kind.value, policy=gap.policy, sentence=_WHY[gap.kind]
    )


def _is_of(beat: Heartbeat | None, pending: Pending) -> bool:
    return beat is not None and pending.attempt is not None and beat.generation == pending.attempt.generation
