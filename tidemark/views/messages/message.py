"""What became of a message, in words and as plain values: for the command line, and for people who look in a browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemark.clients.kafka.slots import Found as InKafka
from tidemark.clients.kafka.slots import Slot
from tidemark.ledger.records import Record
from tidemark.offsets.times import in_utc
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.stored import StoredRow
from tidemark.sinks.texts import texts
from tidemark.views.messages.avro_record import AvroRecord
from tidemark.views.messages.fates import Fate, in_words
from tidemark.views.messages.payloads import masked, shown
from tidemark.views.messages.where import DEAD_LETTERS, Located, newest_gap

# What a dead letter repeats of its message, or what may quote it.
_PAYLOADS = ("key", "value", "headers", "detail")


def as_values(found: Located) -> dict[str, Any]:
    """Everything that was found but the message itself, as plain values for JSON."""
    return {
        "coordinate": str(found.at),
        "topic": found.at.partition.topic,
        "partition": found.at.partition.partition,
        "incarnation": found.at.partition.incarnation,
        "offset": str(found.at.offset),
        "fate": found.fate.value,
        "sentence": sentence(found),
        "windows": [_window(record, found) for record in found.found.windows],
        "pending": [
            {
                "window": f"{lane}/{one.window.seq}",
                "lane": lane,
                "seq": one.window.seq,
                "run": one.attempt.run if one.attempt else one.window.run,
                "pinned_at": one.window.pinned_at,
            }
            for lane, one in found.pending
        ],
        "gaps": [
            {
                "lane": record.lane,
                "seq": record.seq,
                "kind": gap.kind.value,
                "policy": gap.policy,
                "range": str(gap.as_range()),
            }
            for record, gap in found.found.gaps
        ],
        "rows": _rows(found, lambda _, row: texts(row.fields)),
        "under_keys": _under_keys(found, texts),
        # Why a sink's rows are not here; and the sinks that were not asked yet.
        "unsaid": [{"place": name, "why": why} for name, why in found.unsaid.items()],
        "not_asked": list(found.not_asked),
        "kafka": _kafka(found.kafka),
    }


def page_of(found: Located, *, payload: bool, order: Sequence[str] = ()) -> dict[str, Any]:
    """The same with the message, for people in a browser. Without `payload`, values are masked: only their sizes are there.

    `order` names the stream's fields: the rows of all sinks have them in this order, so that they can be compared.
    Masked are key, value and headers of the message, the fields of result rows, and those of a dead letter that quote it.
    """
    look = shown if payload else masked
    values = as_values(found)

    def fields_of(name: str, row: StoredRow) -> dict[str, Any]:
        if name != DEAD_LETTERS:
            known = [field for field in order if field in row.fields]
            return {field: look(row.fields[field]) for field in dict.fromkeys([*known, *row.fields])}
        told = _in_order(row.fields)
        return {field: look(value) if field in _PAYLOADS else shown(value) for field, value in told}

    values["rows"] = _rows(found, fields_of)
    values["under_keys"] = _under_keys(found, lambda fields: {field: look(value) for field, value in fields.items()})
    message = found.message
    values["message"] = message and {
        "timestamp": message.timestamp,
        "appended": message.appended,
        "key": look(message.key),
        "value": look(message.value),
        "headers": [{"name": shown(name.encode()), "value": look(value)} for name, value in message.headers],
    }
    values["payload"] = payload
    return values


def record_shown(record: AvroRecord | None) -> dict[str, Any] | None:
    """An Avro record, for people in a browser who may see payloads."""
    if record is None:
        return None
    return {
        "by": record.by,
        "record": shown(None if record.json is None else record.json.encode()),
        "problem": record.problem,
    }


def _rows(found: Located, fields_of: Callable[[str, StoredRow], Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows that count, with their fields as `fields_of` a place's name and a row gives them."""
    return [
        {
            "place": name,
            "index": row.place.index,
            "tombstone": row.mark.tombstone,
            "fields": fields_of(name, row),
        }
        for name, stored in found.rows.items()
        for row in stored
    ]


def _under_keys(found: Located, look: Callable[[Mapping[str, bytes]], Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What sinks by key hold for the message's rows, as plain values; `look` gives those of some fields."""
    return [
        {
            "place": name,
            "index": row.place.index,
            "said": under.said,
            "key": look({field: value for field, value in under.key.items() if value is not None}),
            "fields": look({field: value for field, value in under.fields.items() if field not in under.key}),
        }
        for name, row, under in found.under_keys
    ]


def _in_order(fields: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """The fields of a dead letter as they are declared, the reason first."""
    return [(name, fields[name]) for name in FIELDS if name in fields]


def sentence(found: Located) -> str:
    """The one answer in words: what became of it, in which window, when, by which run."""
    if found.elsewhere is not None:
        return f"not shown: {found.elsewhere}"
    record = found.counting
    if record is not None:
        by = f"window {record.lane}/{record.seq}, committed {in_utc(record.committed_at)} by run {record.attempt.run}"
        return f"{_of_window(found)}: {by}"
    words = {
        Fate.LOST: "no window has read it: Kafka no longer had it, and a policy let the ingest pass it",
        Fate.PASSED_OVER: "no window has read it: a policy of the stream file passed over it",
        Fate.NOT_READ_YET: _not_read(found),
        Fate.NO_MESSAGE: f"there is no message: {_none(found.kafka)}; the ingest will pass it",
        Fate.HOLE: f"no window has read it, and the ingest is past it, at {found.position}; a backfill can read it",
        Fate.BEFORE: "no window has read it: it lies before the beginning of the ingest; a backfill can read it",
        Fate.EXPIRED: "no window has read it, and Kafka no longer holds it",
        Fate.NOT_YET: "not in the topic yet: at or above its end",
        Fate.GONE: "Kafka has no such topic or partition, or has recreated it; no window has read it",
        Fate.NOT_OF_THE_STREAM: f"the stream reads no such topic or partition, and no window of it has read {found.at}",
    }
    if found.fate == Fate.PENDING:
        lane, one = found.pending[0]
        by = one.attempt.run if one.attempt else one.window.run
        at = in_utc(one.window.pinned_at)
        return f"not committed yet: window {lane}/{one.window.seq} is reading it, pinned {at} by run {by}"
    if found.fate in (Fate.LOST, Fate.PASSED_OVER):
        record, gap = newest_gap(found.found)
        return (
            f"{words[found.fate]} ({gap.policy}): window {record.lane}/{record.seq}, committed "
            f"{in_utc(record.committed_at)} by run {record.attempt.run}, jumped over {gap.as_range()}"
        )
    return words[found.fate]


def _of_window(found: Located) -> str:
    match found.fate:
        case Fate.ERASED:
            return _erased(found)
        case Fate.DEAD_LETTER:
            row = found.rows[DEAD_LETTERS][0]
            said = {name: value.decode(errors="replace") for name, value in row.fields.items() if name not in _PAYLOADS}
            redrives = said.get("redrives", "0")
            again = f", redriven {redrives} times" if redrives != "0" else ""
            return f"a dead letter, reason {said.get('reason', '')!r}, attempts {said.get('attempts', '1')}{again}"
        case Fate.SKIPPED:
            return "skipped: it gave no row"
        case Fate.NO_MESSAGE:
            return f"no message: {_none(found.kafka)}"
        case Fate.READ:
            return f"read, {in_words(found.may_be)}: what the window counted does not say which"
        case Fate.MISSING:
            return "missing: the window counts a row or a dead letter, and there is none; run an audit"
        case Fate.UNPROVEN:
            return "unproven: the window was committed before it was read, and has no receipt; replay it"
    return "stored"


def _erased(found: Located) -> str:
    window = found.counting.window if found.counting else None
    by = window.erases.asked_by if window is not None and window.erases is not None else None
    asked = f", asked by {by}" if by else ""
    return f"erased for good, reason {window.reason if window else ''!r}{asked}"


def _not_read(found: Located) -> str:
    if isinstance(found.kafka, InKafka) and found.kafka.slot == Slot.HELD_BACK:
        return "not read yet: a transaction that has not ended holds it back"
    where = "has not read this partition yet" if found.position is None else f"is at {found.position}"
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


def _kafka(found: InKafka | str | None) -> dict[str, Any]:
    if isinstance(found, str):
        return {"slot": None, "sentence": found, "log_start": None, "end": None}
    if found is None:
        said = "Kafka has no such topic or partition, or has recreated it"
        return {"slot": None, "sentence": said, "log_start": None, "end": None}
    return {
        "slot": found.slot.value,
        "sentence": _SLOTS[found.slot],
        "log_start": str(found.log_start),
        "end": str(found.end),
    }


def counts_said(window: Mapping[str, Any]) -> str:
    """Whether a window counts, as `as_values` gives it: everywhere, in some sinks that it has written alone, or not."""
    if window["counts_in"]:
        return f"counts in {', '.join(window['counts_in'])} alone"
    return "counts" if window["counts"] else ""


def _window(record: Record, found: Located) -> dict[str, Any]:
    alone = record.window.sinks
    return {
        "window": f"{record.lane}/{record.seq}",
        "lane": record.lane,
        "seq": record.seq,
        "generation": str(record.attempt.generation),
        "run": record.attempt.run,
        "committed_at": record.committed_at,
        # For the coordinate itself, and in the dead letters.
        "counts": record is found.counting,
        # The sinks that it has written alone (None for all), and those of them in which it still counts.
        "only_sinks": None if alone is None else list(alone),
        "counts_in": [one for one in alone or () if found.found.counting(one) is record],
    }
