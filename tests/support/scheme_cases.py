"""Each scheme's right results for messages, only by docs/schemes.md and docs/functions.md, without Tidemark.

Fields are as HBase holds them: text, with bytes that are not UTF-8 as Python's surrogate escapes.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.oracle import Fields, Outcome

NO_TIME = -1
CREATE_TIME, LOG_APPEND_TIME = 0, 1
_SOME_TIME = 1_795_244_400_120


@dataclass(frozen=True)
class Message:
    """All parts of a message that Kafka keeps."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    timestamp_type: int


@dataclass(frozen=True)
class Case:
    """A scheme, its fields in order, the outcome of a message, and literal fields of messages by their offset."""

    name: str
    scheme: dict[str, Any]
    fields: tuple[str, ...]
    outcome: Callable[[Message], Outcome]
    promised: dict[int, Fields] = field(default_factory=dict)


# Keys and values of the shared topics from offset 1 on, in the order of their offsets.
PAIRS: list[tuple[bytes | None, bytes | None]] = [
    (b"key", b"value"),
    (None, b"value"),
    (b"", b"value"),
    (b"key", None),
    (None, None),
    (b"", None),
    (b"key", b""),
    (None, b""),
    (b"", b""),
    (b"\xff\x00", b"value"),
    (b"\xff\x00", None),
    (b"key", b"\xfe\xff"),
    (b"\x00", "Zoë\n\0".encode()),
    # delimited, with quotes
    *(
        (b"line", line)
        for line in (
            b'1,"a, ""b""\nc",1.5,2026-11-21T07:10:00,true',
            b'2,"",1e3,2026-11-21T07:10:00.120,false',
            b"3,,,,",
            b"9223372036854775807,a,-0.25,,true",
            b"9223372036854775808,a,1,,true",
            b"1.5,a,1,,true",
            b"1,a,one,,true",
            b"1,a,1,yesterday,true",
            b"1,a,1,,maybe",
            b"1,a,1,",
            b"1,a,1,,true,6",
            b'1,"a,1,,true',
            b'1,"a"b,1,,true',
            b'1,a"b,1,,true',
            b'"4","a","1.0",,"true"',
            b'5,"' + b'a""' * 100_000 + b'",1,,true',
            b"," * 25_000,
            b'6,"\xff",1,,true',
        )
    ),
    # delimited, without
    (b"line", b'7::"::2.5'),
    (b"line", b"7::a:b::2.5::"),
    (b"line", b"7::2.5"),
    (b"line", b"::::"),
    # regex
    (b"line", b"7::abc"),
    (b"line", b"name=abc id=8"),
    (b"line", b"name=abc id=9223372036854775808"),
    # JSON
    *(
        (b"json", text.encode())
        for text in (
            '{"id": 1, "name": "Zoë", "more": [1, "2", null], "x": {"a": 1.5, "b": {}}, "nothing": null}',
            '{"id": 2}',
            '{"name": "\\u0001\\"", "Id": 5}',
            '{"id": "three", "more": 1}',
            '{"id": 4, "more": {"a": 1, "a": 2}}',
            "[1]",
            '{"id": ',
            # more than one value, or no JSON
            '{"id": 1}{"id": 2}',
            '{"id": 1} junk',
            '{"id": 1}, {"id": 2}',
            '{"id": 1}] junk',
            '{"id": 1} ',
            "",
            " ",
            "null",
            "5",
            "{}",
            "{'id': 1}",
            '{"id": 01}',
            '{"id": 1, "id": 2}',
            '{"more": 1, "more": 1}',
            '{"id": 1} // one',
            # integers
            '{"id": 9223372036854775807}',
            '{"id": 9223372036854775808}',
            '{"id": -9223372036854775808}',
            '{"id": -9223372036854775809}',
            '{"id": 123456789012345678901234567890123456789012345}',
            '{"id": 1.0}',
            '{"id": 1e0}',
            '{"id": "1"}',
            '{"id": true}',
            '{"id": [1]}',
            # strings
            '{"name": 5}',
            '{"name": {"a": 1}}',
            '{"name": ["a"]}',
            '{"name": false}',
            '{"name": null, "amount": null, "at": null, "paid": null}',
            # doubles
            '{"amount": 1}',
            '{"amount": 0.1}',
            '{"amount": -12.5e-3}',
            '{"amount": 1234567}',
            '{"amount": 1e400}',
            '{"amount": -1e400}',
            '{"amount": NaN}',
            '{"amount": Infinity}',
            '{"amount": "NaN"}',
            '{"amount": "Infinity"}',
            '{"amount": "1"}',
            '{"amount": {}}',
            # times
            '{"at": "2026-11-21T07:10:00Z"}',
            '{"at": "2026-11-21T07:10:00.120"}',
            '{"at": "2026-11-21 07:10:00.123456000+02:00"}',
            '{"at": "2026-11-21T07:10:00.1234567Z"}',
            '{"at": "2026-11-21T07:10Z"}',
            '{"at": "2026-11-21"}',
            '{"at": "T07:10:00"}',
            '{"at": "07:10:00"}',
            '{"at": "2026-02-30T07:10:00Z"}',
            '{"at": "2026-11-21T24:00:00Z"}',
            '{"at": "now"}',
            '{"at": "1795244400"}',
            '{"at": 1795244400}',
            '{"at": 1795244400120}',
            '{"at": 1795244400.5}',
            '{"at": 9223372036854775807}',
            '{"at": ""}',
            # booleans
            '{"paid": true}',
            '{"paid": "true"}',
            '{"paid": 1}',
            # two wrong fields: the reason names the first one of the scheme
            '{"name": 1, "id": "x"}',
        )
    ),
]
HEADERS: list[Sequence[tuple[str, bytes | None]]] = [
    [],
    [("b", b"1"), ("a", None), ("b", b""), ("a", b"\xff"), ("Zoë", "ü".encode())],
    [("", b"x")],
]


def send(bootstrap_servers: str, topic: str) -> None:
    """Send all pairs to partition 0 in one batch, with headers and times in turn, some without a time."""
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, batch_size=1_000_000, linger_ms=60_000)
    sent = producer.send(topic, b"a value", partition=0)
    # Into the batch itself: `send` refuses what Kafka takes, null headers and messages with neither key nor value.
    batch = producer._accumulator._batches[TopicPartition(topic, 0)][0].records
    for number, (key, value) in enumerate(PAIRS, 1):
        time = NO_TIME if number % 5 == 4 else _SOME_TIME + 37 * number
        assert batch.append(time, key, value, list(HEADERS[number % len(HEADERS)])) is not None
    producer.flush(timeout=30)
    sent.get(timeout=30)
    producer.close()


def messages(bootstrap_servers: str, topics: Sequence[str]) -> Iterator[Message]:
    """Everything in partition 0 of the topics, by kafka-python."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, enable_auto_commit=False, group_id=None)
    for topic in topics:
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        while consumer.position(at) <= len(PAIRS):
            for one in consumer.poll(timeout_ms=500).get(at, ()):
                yield Message(topic, 0, one.offset, one.key, one.value, one.headers, one.timestamp, one.timestamp_type)
    consumer.close()


# What becomes of a message


def _row(**fields: bytes | str | None) -> Outcome:
    found = {name: content for name, content in fields.items() if content is not None}
    texts = {
        name: content.decode(errors="surrogateescape") if isinstance(content, bytes) else content
        for name, content in found.items()
    }
    return Outcome(texts, None)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def raw(message: Message) -> Outcome:
    return _row(key=message.key, value=message.value)


def string(message: Message) -> Outcome:
    if message.value is not None and not _is_text(message.value):
        return Outcome(None, "not UTF-8")
    return _row(value=message.value)


def key_value(message: Message) -> Outcome:
    if message.key is not None and not _is_text(message.key):
        return Outcome(None, "the key is not UTF-8")
    if message.value is not None and not _is_text(message.value):
        return Outcome(None, "not UTF-8")
    return _row(key=message.key, value=message.value)


def _time(milliseconds: int) -> str | None:
    if milliseconds == NO_TIME:
        return None
    seconds, thousandths = divmod(milliseconds, 1000)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
    return f"{text}.{thousandths:03}".rstrip("0") if thousandths else text


def _kept(message: Message) -> dict[str, bytes | str | None]:
    headers = [
        {"key": name, "value": None if value is None else base64.b64encode(value).decode()}
        for name, value in message.headers
    ]
    return {
        "bytes": message.key,
        "headers": json.dumps(headers, ensure_ascii=False, separators=(",", ":")) if headers else None,
        "sent_at": _time(message.timestamp),
        "timestamp_type": {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}.get(message.timestamp_type),
    }


KEEP = {"bytes": "key", "headers": "headers", "sent_at": "timestamp", "timestamp_type": "timestamp_type"}


def metadata(message: Message) -> Outcome:
    return _row(
        topic=message.topic,
        partition=str(message.partition),
        offset=str(message.offset),
        timestamp=_time(message.timestamp),
        value=message.value,
        headers=_kept(message)["headers"],
        timestamp_type=_kept(message)["timestamp_type"],
    )


_WHOLE = {
    "key": "binary",
    "value": "binary",
    "headers": "string",
    "time": "timestamp",
    "kind": "string",
    "half": "double",
    "even": "boolean",
}


def function(message: Message) -> Outcome:
    return _row(
        key=message.key,
        value=message.value,
        headers=repr(tuple(message.headers)),
        time=_time(message.timestamp),
        kind=_kept(message)["timestamp_type"],
        half=str(message.offset / 2),
        even=str(message.offset % 2 == 0).lower(),
        kept=_kept(message)["headers"],
    )


def split_quoted(line: str) -> list[str | None] | None:
    """The fields of a line with commas and quotes, read character by character. None when its quotes are wrong."""
    fields: list[str | None] = []
    at = 0
    while True:
        if line[at : at + 1] == '"':
            content, at = "", at + 1
            while line[at : at + 1] != '"' or line[at : at + 2] == '""':
                if at >= len(line):
                    return None
                step = 2 if line[at] == '"' else 1
                content += line[at]
                at += step
            at += 1
            fields.append(content)
        else:
            end = len(line) if line.find(",", at) < 0 else line.find(",", at)
            if '"' in line[at:end]:
                return None
            fields.append(line[at:end] or None)
            at = end
        if at == len(line):
            return fields
        if line[at] != ",":
            return None
        at += 1


def _typed(name: str, kind: str, text: str | None) -> tuple[str | None, str | None]:
    """The text as HBase would hold it, and why it is not of its type."""
    try:
        if text is None or kind == "string":
            return text, None
        if kind == "integer":
            if not re.fullmatch("[ \\t\\r\\n]*[-+]?[0-9]+[ \\t\\r\\n]*", text) or not -(2**63) <= int(text) < 2**63:
                raise ValueError
            return str(int(text)), None
        if kind == "double":
            if not re.fullmatch(r"[ \t\r\n]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[ \t\r\n]*", text):
                raise ValueError
            if math.isinf(float(text)):
                raise ValueError
            return repr(float(text)), None
        if kind == "boolean":
            return {"true": "true", "false": "false"}[text.strip(" \t\r\n").lower()], None
        found = datetime.fromisoformat(text).replace(tzinfo=UTC)
        return _time(int(found.timestamp()) * 1000 + found.microsecond // 1000), None
    except (ValueError, KeyError):
        words = {"integer": "an integer", "double": "a number", "boolean": "a boolean", "timestamp": "a time"}
        return None, f"{name} is not {words[kind]}"


def delimited(kinds: dict[str, str], split: Callable[[str], list[str | None] | None]) -> Callable[[Message], Outcome]:
    def outcome(message: Message) -> Outcome:
        if message.value is None:
            return Outcome({}, None)
        if not _is_text(message.value):
            return Outcome(None, "not UTF-8")
        texts = split(message.value.decode())
        if texts is None:
            return Outcome(None, "quotes do not enclose whole fields")
        if len(texts) != len(kinds):
            return Outcome(None, f"not {len(kinds)} fields")
        pairs = zip(kinds.items(), texts, strict=True)
        found = {name: _typed(name, kind, text) for (name, kind), text in pairs}
        problems = [problem for _, problem in found.values() if problem]
        return Outcome(None, problems[0]) if problems else _row(**{name: text for name, (text, _) in found.items()})

    return outcome


def named_groups(message: Message) -> Outcome:
    if message.value is None:
        return Outcome({}, None)
    if not _is_text(message.value):
        return Outcome(None, "not UTF-8")
    line = message.value.decode()
    found = re.fullmatch("(?P<id>[0-9]+)::(?P<name>[a-z]+)", line) or re.fullmatch(
        "name=(?P<name>[a-z]+) id=(?P<id>[0-9]+)", line
    )
    if found is None:
        return Outcome(None, "matches no pattern")
    number, problem = _typed("id", "integer", found["id"])
    return Outcome(None, problem) if problem else _row(id=number, name=found["name"])


def json_object(
    kinds: dict[str, str], finish: Callable[[Message, dict[str, Any]], Outcome]
) -> Callable[[Message], Outcome]:
    def outcome(message: Message) -> Outcome:
        if message.value is None:
            return finish(message, {})
        if not _is_text(message.value):
            return Outcome(None, "not UTF-8")
        try:
            found = json.loads(message.value, object_pairs_hook=_once, parse_constant=_refuse)
        except ValueError:
            return Outcome(None, "not one JSON value, or a key stands twice in it")
        if not isinstance(found, dict):
            return Outcome(None, "not a JSON object")
        for name, kind in kinds.items():
            if found.get(name) is not None and _of_json(kind, found[name]) is None:
                return Outcome(None, f"{name} is not {_WORDS[kind]}")
        return finish(message, found)

    return outcome


_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "double": "a number",
    "timestamp": "a time",
    "boolean": "a boolean",
}
_ISO = r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?(Z|[+-]\d\d:\d\d)?"


def _of_json(kind: str, given: Any) -> str | None:
    """The text of a JSON value; None when the value is not of its type."""
    if kind == "boolean" or isinstance(given, bool):
        return str(given).lower() if kind == "boolean" and isinstance(given, bool) else None
    if kind == "integer":
        return str(given) if isinstance(given, int) and -(2**63) <= given < 2**63 else None
    if kind == "double":
        is_number = isinstance(given, int | float) and math.isfinite(given)
        return repr(float(given)) if is_number else None
    if not isinstance(given, str):
        return None
    if kind == "string":
        return given
    parts = re.fullmatch(_ISO, given)
    if parts is None:
        return None
    day, clock, fraction, zone = parts.groups()
    try:
        found = datetime.fromisoformat(f"{day}T{clock}{zone or 'Z'}").astimezone(UTC)
    except ValueError:
        return None
    fraction = (fraction or "").rstrip("0")
    return f"{found:%Y-%m-%d %H:%M:%S}" + (f".{fraction}" if fraction else "")


def typed_json(message: Message, found: dict[str, Any]) -> Outcome:
    return _row(**{name: _of_json(kind, found[name]) for name, kind in _LINE.items() if found.get(name) is not None})


def json_with_unknown(message: Message, found: dict[str, Any]) -> Outcome:
    others = {name: value for name, value in found.items() if name not in ("id", "name")}
    return _row(
        id=str(found["id"]) if found.get("id") is not None else None,
        name=found.get("name"),
        unknown=_as_written(message.value or b"", {*others}) if others else None,
        **_kept(message),
    )


def _as_written(value: bytes, names: set[str]) -> str:
    """Compact JSON with keys by name, and numbers as they were written."""
    # No text of the messages has these marks.
    marked = json.loads(value, parse_int="<<{}>>".format, parse_float="<<{}>>".format)
    others = {name: marked[name] for name in names}
    text = json.dumps(others, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace('"<<', "").replace('>>"', "")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


_LINE = {"id": "integer", "name": "string", "amount": "double", "at": "timestamp", "paid": "boolean"}
_SHORT = {"id": "integer", "name": "string", "amount": "double"}

CASES = (
    Case("raw", {"type": "raw"}, ("key", "value"), raw),
    Case("string", {"type": "string"}, ("value",), string),
    Case(
        "key_value",
        {"type": "key_value"},
        ("key", "value"),
        key_value,
        {1: {"key": "key", "value": "value"}, 2: {"value": "value"}},
    ),
    Case(
        "message_metadata",
        {"type": "message_metadata", "keep": ["value", "headers", "timestamp_type"]},
        ("topic", "partition", "offset", "timestamp", "value", "headers", "timestamp_type"),
        metadata,
        {0: {"partition": "0", "offset": "0", "value": "a value"}},
    ),
    Case(
        "delimited",
        {"type": "delimited", "fields": _LINE, "timestamp": "yyyy-MM-dd'T'HH:mm:ss[.SSS]"},
        tuple(_LINE),
        delimited(_LINE, split_quoted),
    ),
    Case(
        "delimited without quotes",
        {"type": "delimited", "fields": _SHORT, "separator": "::", "quote": None},
        tuple(_SHORT),
        delimited(_SHORT, lambda line: [one or None for one in line.split("::")]),
    ),
    Case(
        "regex with named groups",
        {
            "type": "regex",
            "fields": {"id": "integer", "name": "string"},
            "patterns": [
                {"name": "colons", "regex": "(?<id>[0-9]+)::(?<name>[a-z]+)"},
                {"name": "words", "regex": "name=(?<name>[a-z]+) id=(?<id>[0-9]+)", "fields": ["name", "id"]},
            ],
        },
        ("id", "name"),
        named_groups,
    ),
    Case(
        "function",
        {
            "type": "function",
            "function": "tests.support.own_functions:whole",
            "fields": _WHOLE,
            "keep": {"kept": "headers"},
        },
        (*_WHOLE, "kept"),
        function,
    ),
    Case(
        "json",
        {"type": "json", "fields": {"id": "integer", "name": "string"}, "unknown": "keep", "keep": KEEP},
        ("id", "name", "unknown", *KEEP),
        json_object({"id": "integer", "name": "string"}, json_with_unknown),
    ),
    Case(
        "json of all types",
        {"type": "json", "fields": _LINE},
        tuple(_LINE),
        json_object(_LINE, typed_json),
    ),
)
