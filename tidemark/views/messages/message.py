"""The fate of a message in words: for the command line, and for people who look in a browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidemark.clients.kafka.slots import KafkaMessage, Slot
from tidemark.clients.kafka.slots import OffsetContents as InKafka
from tidemark.ledger.incarnations import written_range
from tidemark.ledger.records import Pending, Record
from tidemark.offsets.times import in_utc
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import texts
from tidemark.views.messages.fates import Fate, in_words
from tidemark.views.messages.payloads import Masked, Value, masked, shown
from tidemark.views.messages.record import RecordRead
from tidemark.views.messages.rereading import RereadRequest, again
from tidemark.views.messages.trace import DEAD_LETTERS, LocatedRecord, newest_gap
from tidemark.views.values import Number

# The most headers that are shown. A message of a megabyte may have 300,000.
MAX_HEADERS = 100
# What a dead letter repeats of its message, or what may quote it.
_PAYLOADS = ("key", "value", "headers", "detail")


@dataclass(frozen=True)
class WindowOfMessage:
    """`counts`: for the coordinate itself, and in the dead letters. `only_sinks`: those that it has written alone, None for
    all; and `counts_in`: those of them in which it still counts.
    """

    window: str
    lane: str
    seq: int
    generation: Number
    run: str
    committed_at: int
    counts: bool
    only_sinks: list[str] | None
    counts_in: list[str]

    def counts_said(self) -> str:
        """Whether it counts: everywhere, in some sinks that it has written alone, or not."""
        if self.counts_in:
            return f"counts in {', '.join(self.counts_in)} alone"
        return "counts" if self.counts else ""


@dataclass(frozen=True)
class PendingWindow:
    window: str
    lane: str
    seq: int
    run: str | None
    pinned_at: int


@dataclass(frozen=True)
class GapAt:
    lane: str
    seq: int
    kind: str
    policy: str
    range: str


# A field of a row: on the command line a text, for people in a browser as they may see it.
Look = str | Value | Masked


@dataclass(frozen=True)
class Row:
    place: str
    index: int
    tombstone: bool
    fields: dict[str, Look]


@dataclass(frozen=True)
class RowByKey:
    """The row that a sink by key holds for a row of the message."""

    place: str
    index: int
    said: str
    key: dict[str, Look]
    fields: dict[str, Look]


@dataclass(frozen=True)
class UnansweredPlace:
    place: str
    why: str


@dataclass(frozen=True)
class KafkaShown:
    slot: str | None
    sentence: str
    log_start: Number | None
    end: Number | None


@dataclass(frozen=True)
class MessageTrace:
    """Where a message went. `unsaid`: why a sink's rows are not here. `not_asked`: sinks that are only asked with `whole`."""

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
    unsaid: list[UnansweredPlace]
    not_asked: list[str]
    kafka: KafkaShown


@dataclass(frozen=True)
class Header:
    name: Value
    value: Value | Masked | None


@dataclass(frozen=True)
class MessageContents:
    """`more_headers`: how many are not shown."""

    timestamp: int | None
    appended: bool
    key: Value | Masked | None
    value: Value | Masked | None
    headers: list[Header]
    more_headers: int


@dataclass(frozen=True)
class RecordShown:
    """The contents of a value: a record as JSON, or what was compressed; or why there is none."""

    by: str
    text: Value | None
    problem: str


@dataclass(frozen=True)
class MessageShown(MessageTrace):
    """Where a message went, and the message. `record` needs `whole`, and `payload`."""

    message: MessageContents | None
    payload: bool
    has_record: bool
    record: RecordShown | None
    again: RereadRequest
    may_see_payload: bool


def as_values(located: LocatedRecord) -> MessageTrace:
    """Everything that was found but the message itself, with fields as texts."""
    return _where(located, lambda _, row: texts(row.fields), texts)


def page_of(
    located: LocatedRecord,
    *,
    payload: bool,
    order: Sequence[str] = (),
    has_record: bool = False,
    record: RecordRead | None = None,
    may_see_payload: bool = False,
) -> MessageShown:
    """The same with the message, for people in a browser. Without `payload`, values are masked: only their sizes are there.

    `order` names the stream's fields: the rows of all sinks have them in this order, so that they can be compared.
    Masked are key, value and headers of the message, the fields of result rows, and those of a dead letter that quote it.
    """
    look = shown if payload else masked

    def fields_of(name: str, row: StoredRow) -> Fields:
        if name != DEAD_LETTERS:
            known = [field for field in order if field in row.fields]
            return {field: look(row.fields[field]) for field in dict.fromkeys([*known, *row.fields])}
        told = _in_order(row.fields)
        return {field: look(value) if field in _PAYLOADS else shown(value) for field, value in told}

    where = _where(located, fields_of, lambda fields: {field: look(value) for field, value in fields.items()})
    return MessageShown(
        **vars(where),
        message=message_shown(located.message, look),
        payload=payload,
        has_record=has_record,
        record=record_shown(record),
        again=again(located),
        may_see_payload=may_see_payload,
    )


def message_shown(
    message: KafkaMessage | None, look: Callable[[bytes], Value | Masked] = shown
) -> MessageContents | None:
    if message is None:
        return None
    key, value = (None if part is None else look(part) for part in (message.key, message.value))
    headers = headers_shown(message.headers[:MAX_HEADERS], look)
    return MessageContents(
        message.timestamp, message.appended, key, value, headers, len(message.headers) - len(headers)
    )


def headers_shown(
    headers: Sequence[tuple[str, bytes | None]],
    look: Callable[[bytes], Value | Masked],
    name: Callable[[bytes], Value] = shown,
) -> list[Header]:
    return [
        Header(name(of.encode("utf-8", "surrogatepass")), None if part is None else look(part)) for of, part in headers
    ]


def record_shown(record: RecordRead | None) -> RecordShown | None:
    """The contents of a value, for people in a browser who may see payloads."""
    if record is None:
        return None
    return RecordShown(record.by, None if record.text is None else shown(record.text.encode()), record.problem)


Fields = Mapping[str, Look]


def _where(
    located: LocatedRecord, fields_of: Callable[[str, StoredRow], Fields], look: Callable[[Mapping[str, bytes]], Fields]
) -> MessageTrace:
    """The trace of a message, with the fields of rows that count as `fields_of` a place's name and a row gives them.

    `look` gives those of what sinks by key hold.
    """
    return MessageTrace(
        coordinate=located.written,
        topic=located.at.partition.topic,
        partition=located.at.partition.partition,
        incarnation=located.at.partition.incarnation,
        offset=located.at.offset,
        fate=located.fate.value,
        sentence=sentence(located),
        windows=[_window(record, located) for record in located.found.windows],
        pending=[_pending(lane, pending) for lane, pending in located.pending],
        gaps=[
            GapAt(record.lane, record.seq, gap.kind.value, gap.policy, written_range(located.topics, gap.as_range()))
            for record, gap in located.found.gaps
        ],
        rows=[
            Row(name, row.place.index, row.mark.tombstone, dict(fields_of(name, row)))
            for name, stored in located.rows.items()
            for row in stored
        ],
        under_keys=[
            RowByKey(
                place=name,
                index=row.place.index,
                said=under.said,
                key=dict(look({field: value for field, value in under.key.items() if value is not None})),
                fields=dict(look({field: value for field, value in under.fields.items() if field not in under.key})),
            )
            for name, row, under in located.under_keys
        ],
        unsaid=[UnansweredPlace(name, why) for name, why in located.unsaid.items()],
        not_asked=list(located.not_asked),
        kafka=_kafka(located.kafka),
    )


def _in_order(fields: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """The fields of a dead letter as they are declared, the reason first."""
    return [(name, fields[name]) for name in FIELDS if name in fields]


def sentence(located: LocatedRecord) -> str:
    """The one answer in words: what became of it, in which window, when, by which run."""
    if located.elsewhere is not None:
        return f"not shown: {located.elsewhere}"
    record = located.counting
    if record is not None:
        by = f"window {record.lane}/{record.seq}, committed {in_utc(record.committed_at)} by run {record.attempt.run}"
        return f"{_of_window(located)}: {by}"
    words = {
        Fate.LOST: "no window has read it: Kafka no longer had it, and a policy let the ingest pass it",
        Fate.PASSED_OVER: "no window has read it: a policy of the stream file passed over it",
        Fate.NOT_READ_YET: _not_read(located),
        Fate.NO_MESSAGE: f"there is no message: {_none(located.kafka)}; the ingest will pass it",
        Fate.HOLE: f"no window has read it, and the ingest is past it, at {located.position}; a backfill can read it",
        Fate.BEFORE: "no window has read it: it lies before the beginning of the ingest; a backfill can read it",
        Fate.EXPIRED: "no window has read it, and Kafka no longer holds it",
        Fate.NOT_YET: "not in the topic yet: at or above its end",
        Fate.GONE: "Kafka has no such topic or partition, or has recreated it; no window has read it",
        Fate.NOT_OF_THE_STREAM: f"the stream reads no such topic or partition, and no window of it has read {located.at}",
    }
    if located.fate == Fate.PENDING:
        lane, pending = located.pending[0]
        by = pending.attempt.run if pending.attempt else pending.window.run
        at = in_utc(pending.window.pinned_at)
        return f"not committed yet: window {lane}/{pending.window.seq} is reading it, pinned {at} by run {by}"
    if located.fate in (Fate.LOST, Fate.PASSED_OVER):
        record, gap = newest_gap(located.found)
        jumped = written_range(located.topics, gap.as_range())
        return (
            f"{words[located.fate]} ({gap.policy}): window {record.lane}/{record.seq}, committed "
            f"{in_utc(record.committed_at)} by run {record.attempt.run}, jumped over {jumped}"
        )
    return words[located.fate]


def _of_window(located: LocatedRecord) -> str:
    match located.fate:
        case Fate.ERASED:
            return _erased(located)
        case Fate.DEAD_LETTER:
            row = located.rows[DEAD_LETTERS][0]
            said = {name: value.decode(errors="replace") for name, value in row.fields.items() if name not in _PAYLOADS}
            redrives = said.get("redrives", "0")
            again = f", redriven {redrives} times" if redrives != "0" else ""
            return f"a dead letter, reason {said.get('reason', '')!r}, attempts {said.get('attempts', '1')}{again}"
        case Fate.SKIPPED:
            return "skipped: it gave no row"
        case Fate.NO_MESSAGE:
            return f"no message: {_none(located.kafka)}"
        case Fate.READ:
            return f"read, {in_words(located.may_be)}: what the window counted does not say which"
        case Fate.MISSING:
            return "missing: the window counts a row or a dead letter, and there is none; run an audit"
        case Fate.UNPROVEN:
            return "unproven: the window was committed before it was read, and has no receipt; replay it"
    return "stored"


def _erased(located: LocatedRecord) -> str:
    window = located.counting.window if located.counting else None
    by = window.erases.asked_by if window is not None and window.erases is not None else None
    asked = f", asked by {by}" if by else ""
    return f"erased for good, reason {window.reason if window else ''!r}{asked}"


def _not_read(located: LocatedRecord) -> str:
    if isinstance(located.kafka, InKafka) and located.kafka.slot == Slot.HELD_BACK:
        return "not read yet: a transaction that has not ended holds it back"
    where = "has not read this partition yet" if located.position is None else f"is at {located.position}"
    return f"not read yet: the ingest {where}"


def _none(kafka: InKafka | str | None) -> str:
    slot = kafka.slot if isinstance(kafka, InKafka) else None
    words = {
        Slot.MARKER: "it is a transaction's mark",
        Slot.ABORTED: "it is of an aborted transaction",
        Slot.COMPACTED: "compacted away, of an aborted transaction, or a transaction's mark",
    }
    return words.get(slot or Slot.EXPIRED, "it was compacted away, of an aborted transaction, or a transaction's mark")


_SLOTS = {
    Slot.MESSAGE: "Kafka holds the message",
    Slot.HELD_BACK: "Kafka holds the message; a transaction that has not ended holds it back",
    Slot.ABORTED: "Kafka holds the message; its transaction was aborted, so it does not count",
    Slot.MARKER: "the offset is a transaction's mark, and no message",
    Slot.COMPACTED: "Kafka has compacted it away",
    Slot.EXPIRED: "Kafka no longer holds it",
    Slot.BEYOND: "Kafka has not got so far",
}


def _kafka(contents: InKafka | str | None) -> KafkaShown:
    if isinstance(contents, str):
        return KafkaShown(None, contents, None, None)
    if contents is None:
        return KafkaShown(None, "Kafka has no such topic or partition, or has recreated it", None, None)
    return KafkaShown(contents.slot.value, _SLOTS[contents.slot], contents.log_start, contents.end)


def _pending(lane: str, pending: Pending) -> PendingWindow:
    run = pending.attempt.run if pending.attempt else pending.window.run
    return PendingWindow(f"{lane}/{pending.window.seq}", lane, pending.window.seq, run, pending.window.pinned_at)


def _window(record: Record, located: LocatedRecord) -> WindowOfMessage:
    alone = record.window.sinks
    return WindowOfMessage(
        window=f"{record.lane}/{record.seq}",
        lane=record.lane,
        seq=record.seq,
        generation=record.attempt.generation,
        run=record.attempt.run,
        committed_at=record.committed_at,
        counts=record is located.counting,
        only_sinks=None if alone is None else list(alone),
        counts_in=[name for name in alone or () if located.found.counting(name) is record],
    )
