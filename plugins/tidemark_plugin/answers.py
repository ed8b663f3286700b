"""What the answers of the API have, for its description. Tests compare the real answers; requests are not checked by it.

Offsets, and counts of offsets, are texts. Times are ms since 1970.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Number = Annotated[str, Field(pattern="^[0-9]+$", description="a number of any size, as a text")]


class Problem(BaseModel):
    """Why there is no answer, in a sentence for people."""

    detail: str


class Named(BaseModel):
    name: str
    type: str


class Span(BaseModel):
    start: Number = Field(alias="from")
    until: Number


class RangeOf(Span):
    partition: str


# Streams


class Streams(BaseModel):
    streams: list[str]
    problems: list[str]


class Status(BaseModel):
    """The word of the worst partition, and the rule that gave it."""

    word: str
    rule: str
    topic: str
    partition: int
    sentence: str


class Audit(BaseModel):
    run: str
    at: int
    level: str
    clean: bool
    sentence: str


class _OfStream(BaseModel):
    stream: str
    description: str | None
    status: Status | None
    missing_topics: list[str]
    retention_alarms: list[str]
    retention_headroom: str | None
    unread_since: int | None
    audit: Audit | None
    # None while nobody has read the history.
    holes: list[str] | None
    more_holes: int


class LastCommit(BaseModel):
    window: int
    at: int
    run: str


class OfIngest(BaseModel):
    """`dead_letters` are those that the last `windows` of the ingest have written."""

    dead_letters: int
    windows: int
    last_commit: LastCommit | None


class Line(_OfStream, OfIngest):
    """A stream in one line."""

    partitions: int
    lag: Number | None
    retention_ms: int | None
    retention: str | None


class Latency(BaseModel):
    last_ms: int | None
    limit_ms: int | None
    alarm: bool | None
    sentence: str | None


class PartitionNow(BaseModel):
    topic: str
    partition: int
    log_start: Number
    position: Number | None
    end: Number
    lag: Number | None
    status: str | None
    status_rule: str | None
    status_sentence: str | None
    pending: Number | None
    retention: str | None
    retention_shown: str | None
    retention_ms: int | None
    retention_reason: str | None


class Transaction(BaseModel):
    topic: str
    partition: int
    offset: Number
    behind: Number
    producer_id: str
    producer_epoch: int
    transactional_id: str | None
    started: int | None
    last_timestamp: int | None
    sentence: str


class LaneNow(BaseModel):
    lane: str
    kind: str
    state: str
    run: str | None
    reason: str | None
    opened_at: int
    windows: int


class PassedOver(BaseModel):
    lost: Number
    skipped: Number


class NewestWindow(BaseModel):
    """Counts are None while a window is pending; `stored` then has what is stored so far.

    `ranges` are the first ones, and `more_ranges` counts the others.
    """

    lane: str
    seq: int
    state: str
    at: int
    ranges: list[RangeOf]
    more_ranges: int
    selected: Number | None
    read: int | None
    stored: int | None
    skipped: int | None
    dead_letters: int | None
    passed_over: PassedOver | None
    generation: Number | None
    run: str | None


class Stream(_OfStream):
    """`more_partitions` counts those that are not among `partitions`."""

    sinks: list[Named]
    latency: Latency
    partitions: list[PartitionNow]
    more_partitions: int
    ingest: OfIngest
    open_transactions: list[Transaction]
    lanes: list[LaneNow]
    windows: list[NewestWindow]


class Block(Span):
    """Offsets with one state, from a pixel on; `lane` and `window` name its only window."""

    pixel: int
    state: str
    stretches: int
    lane: str | None
    window: int | None
    windows: int


class Bar(Span):
    partition: str
    topic: str
    number: int
    position: Number | None
    log_start: Number
    log_end: Number
    first: Number
    last: Number
    pixels: int
    blocks: list[Block]


class Coverage(BaseModel):
    """`partitions` of the stream's (`of`) have bars, of which these are some, from the `first` on."""

    partitions: int
    of: int
    first: int
    bars: list[Bar]


class TrendOfWindow(BaseModel):
    window: int
    at: int
    lag: Number
    read: int
    dead_letters: int
    seconds: float | None


class Trend(BaseModel):
    windows: list[TrendOfWindow]


# A window


class Attempt(BaseModel):
    run: str
    generation: Number
    code_version: str
    stream_digest: str
    same_file: bool


class Step(BaseModel):
    step: str
    at: int | None
    took_ms: int | None


class Messages(BaseModel):
    read: int
    stored: int
    skipped: int
    dead_letters: int
    no_message: int


class Tally(BaseModel):
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


class PartitionOfWindow(RangeOf):
    topic: str
    number: int
    offsets: Number
    log_start: Number
    log_end: Number
    leader_epoch: int | None
    tally: Tally | None


class Gap(RangeOf):
    offsets: Number
    kind: str
    policy: str
    sentence: str


class SinkOfWindow(Named):
    place: dict[str, str]


class Window(BaseModel):
    """A window. `attempt` and `messages` are None as long as there is none."""

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
    gaps: list[Gap]
    state: str
    attempt: Attempt | None
    committed_at: int | None
    times: list[Step]
    messages: Messages | None
    partitions: list[PartitionOfWindow]
    sinks: list[SinkOfWindow]
    takes: int | None


# Messages and dead letters


class Value(BaseModel):
    """A value as a text, in which nothing is hidden, and in hexadecimal. Where it is masked, `bytes` alone is there."""

    bytes: int
    text: str | None = None
    utf8: bool | None = None
    more: int | None = None
    hex: str | None = None
    hex_more: int | None = None


class WindowOfMessage(BaseModel):
    window: str
    lane: str
    seq: int
    generation: Number
    run: str
    committed_at: int
    counts: bool
    only_sinks: list[str] | None
    counts_in: list[str]


class PendingWindow(BaseModel):
    window: str
    lane: str
    seq: int
    run: str | None
    pinned_at: int


class GapAt(BaseModel):
    lane: str
    seq: int
    kind: str
    policy: str
    range: str


class Row(BaseModel):
    place: str
    index: int
    tombstone: bool
    fields: dict[str, Value | None]


class RowByKey(BaseModel):
    place: str
    index: int
    said: str
    key: dict[str, Value | None]
    fields: dict[str, Value | None]


class Unsaid(BaseModel):
    place: str
    why: str


class InKafka(BaseModel):
    slot: str | None
    sentence: str
    log_start: Number | None
    end: Number | None


class Header(BaseModel):
    name: Value
    value: Value | None


class TheMessage(BaseModel):
    timestamp: int | None
    appended: bool
    key: Value | None
    value: Value | None
    headers: list[Header]


class AvroRecord(BaseModel):
    by: str
    record: Value | None
    problem: str


class Again(BaseModel):
    """The request that reads a message again, or why there is none."""

    kind: Literal["replay", "backfill"] | None
    fields: dict[str, str]
    why_not: str | None


class Message(BaseModel):
    """Where a message went. `not_asked` are sinks that are only asked with `whole`; `avro` needs it, and `payload`."""

    coordinate: str
    topic: str
    partition: int
    incarnation: int
    offset: Number
    fate: str
    sentence: str
    windows: list[WindowOfMessage]
    pending: list[PendingWindow]
    gaps: list[GapAt]
    rows: list[Row]
    under_keys: list[RowByKey]
    unsaid: list[Unsaid]
    not_asked: list[str]
    kafka: InKafka
    message: TheMessage | None
    payload: bool
    is_avro: bool
    avro: AvroRecord | None
    again: Again
    may_see_payload: bool


class WindowOfGroup(BaseModel):
    window: str
    number: int
    committed_at: int
    run: str


class Shown(BaseModel):
    reason: Value
    error: Value | None


class Group(BaseModel):
    """`selects` names the group in a request; None when only coordinates do. `shown`: as people may look at it."""

    reason: str
    error: str | None
    shown: Shown
    number: int
    too_often: int
    selects: str | None
    examples: list[str]
    windows: list[WindowOfGroup]
    more_windows: int


class DeadLetters(BaseModel):
    """`not_counted`: what the windows wrote that there was no time to count."""

    counted: int
    windows: int
    windows_counted: int
    complete: bool
    not_counted: int
    max_redrives: int
    groups: list[Group]
    more_groups: int


# Audits and completeness


class Repaired(BaseModel):
    run: str
    at: int
    clean: bool


class PlaceOfAudit(BaseModel):
    name: str
    counts: dict[str, int]
    at: dict[str, list[str]]
    blocks_at: list[str]


class Findings(BaseModel):
    places: list[PlaceOfAudit]
    holes: list[str]
    overlaps: list[str]
    problems: list[str]
    selection: str | None
    offsets: Number | None
    sinks: list[str] | None


class OneAudit(Audit):
    repair_of: str | None
    repaired: Repaired | None
    problem: str | None
    found: Findings | None


class Audits(BaseModel):
    audits: list[OneAudit]
    more: bool


class Late(BaseModel):
    least: int
    most: int


class HourLine(BaseModel):
    hour: str
    since: int
    until: int
    word: str
    missing: Number
    late: Late
    unread_after: Number


class Calendar(BaseModel):
    now: int
    watermark: int | None
    allowed_lateness_ms: int
    first: int | None
    hours: list[HourLine]


class MissingRange(Span):
    kind: str
    meaning: str
    again: str | None


class LateIn(Late):
    windows: list[str]


class PartitionOfHour(BaseModel):
    partition: str
    complete: bool
    rule: str
    meaning: str
    missing: list[MissingRange]
    more_missing: int
    late: LateIn
    unread_after: Number


class Hour(BaseModel):
    hour: str
    since: int
    until: int
    word: str
    complete: bool
    now: int
    allowed_lateness_ms: int
    late: Late
    unread_after: Number
    partitions: list[PartitionOfHour]
    backfill: list[str]
    more_backfill: int
