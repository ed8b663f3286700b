"""A message as the stream's scheme reads it, without Spark: for people who look at one message.

What is shown are the texts of its fields. Whether they have the types of the fields, and what checks and the transform make
of them, only a run says: its rows and dead letters are shown beside. A pattern may search for hours and Avro may say that a
list has a billion entries, so both are read in a process of their own, which has limits (`limited.py`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.clients.connections import Connections, registry_endpoint
from tidemark.clients.kafka.slots import Message
from tidemark.clients.registry_answers import Refused
from tidemark.clients.schema_registry import SchemaRegistry
from tidemark.errors import TidemarkError
from tidemark.offsets.coordinates import Coordinate
from tidemark.schemes.json_depth import TOO_DEEP, too_deep
from tidemark.schemes.kinds import (
    UNKNOWN,
    AvroScheme,
    DelimitedScheme,
    FunctionScheme,
    JsonScheme,
    KeyValueScheme,
    MessageMetadataScheme,
    RawScheme,
    RegexScheme,
    StringScheme,
)
from tidemark.sinks.time_texts import time_text
from tidemark.streams.explode import Explode
from tidemark.streams.model import Stream
from tidemark.views.limited import asked_with_limits

# A larger value is not read, and of a message that is split, so many pieces are.
MOST_BYTES = 1_000_000
MOST_PIECES = 20
_REGISTRY_SECONDS = 3.0
_MAGIC = 5

_NOT_UTF8 = "not UTF-8"


@dataclass(frozen=True)
class Piece:
    """The fields of a message, or of one of its pieces: None for null. `problem`: why the scheme does not take it."""

    fields: Mapping[str, bytes | None]
    problem: str = ""


@dataclass(frozen=True)
class Decoded:
    """How a message was read, in a sentence; what it is; and how many of its pieces are not here."""

    said: str
    pieces: tuple[Piece, ...] = ()
    more: int = 0


class _Wrong(Exception):
    """Why a value is not what its scheme takes."""


def decoded(stream: Stream, connections: Connections, at: Coordinate, message: Message) -> Decoded:
    """What the scheme of a stream makes of a message. Raises nothing that depends on the message."""
    scheme = stream.scheme
    if isinstance(scheme, FunctionScheme):
        return Decoded(f"The function {scheme.function} makes the rows. Only runs call it.")
    if type(scheme) not in _READERS:
        return Decoded(f"The scheme {scheme.type} is of a package, and is read by runs alone.")
    if len(message.value or b"") > MOST_BYTES:
        return Decoded(f"A value of more than {MOST_BYTES:_} bytes is read by runs alone.".replace("_", " "))
    said = [f"By the scheme {scheme.type}{_HOW.get(type(scheme), '')}."]
    if stream.transform is not None:
        said.append("The transform then makes other rows of it.")
    try:
        values = [message.value] if stream.explode is None or message.value is None else _split(stream.explode, message)
    except _Wrong as problem:
        return Decoded(" ".join(said), (Piece({}, str(problem)),))
    pieces = tuple(_piece(scheme, connections, at, message, value) for value in values[:MOST_PIECES])
    return Decoded(" ".join(said), pieces, len(values) - len(pieces))


def _piece(scheme: Any, connections: Connections, at: Coordinate, message: Message, value: bytes | None) -> Piece:
    read: Callable[[_Asked], Mapping[str, bytes | None]] = _READERS[type(scheme)]
    try:
        fields, problem = read(_Asked(scheme, connections, at, message, value)), ""
    except (_Wrong, RecursionError) as wrong:
        fields, problem = {}, str(wrong) if isinstance(wrong, _Wrong) else "nested too deeply"
    except TidemarkError as away:
        fields, problem = {}, f"{type(away).__name__}: {away}"
    return Piece({**fields, **_kept(scheme.keep, message)}, problem)


@dataclass(frozen=True)
class _Asked:
    """What a reader needs. `value` is the message's, or one of its pieces."""

    scheme: Any
    connections: Connections
    at: Coordinate
    message: Message
    value: bytes | None

    @property
    def text(self) -> str | None:
        return _text(self.value)


def _text(value: bytes | None, problem: str = _NOT_UTF8) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise _Wrong(problem) from None


# Splitting


def _split(explode: Explode, message: Message) -> Sequence[bytes | None]:
    value = message.value or b""
    if explode.lines is not None:
        lines = re.split(explode.between.encode(), value)
        return lines[:-1] if lines[-1] == b"" else lines
    text = _text(value) or ""
    found, written = _json_value(text), text
    if isinstance(explode.json_array, str):
        found = found.get(explode.json_array) if isinstance(found, dict) else None
        written = "" if found is None else dict(_members(text))[explode.json_array]
    if not isinstance(found, list):
        raise _Wrong("there is no JSON array in it")
    texts = zip(found, _elements(written), strict=True)
    return [(one if type(one) is str else as_written).encode() for one, as_written in texts]


def _elements(text: str) -> Iterator[str]:
    """The elements of a JSON array, each as it stands there."""
    at = _next(text, 0)
    while text[at := _next(text, at + 1)] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield text[at:end]
        at = _next(text, end)
        if text[at] == "]":
            return


def _members(text: str) -> Iterator[tuple[str, str]]:
    """The names of the members of a JSON object, and their values as they stand there."""
    at = _next(text, 0)
    while text[at := _next(text, at + 1)] != "}":
        name, end = _DECODER.raw_decode(text, at)
        at = _next(text, _next(text, end) + 1)
        _, end = _DECODER.raw_decode(text, at)
        yield str(name), text[at:end]
        at = _next(text, end)
        if text[at] == "}":
            return


def _next(text: str, at: int) -> int:
    """Behind the white space of JSON."""
    while text[at] in " \t\r\n":
        at += 1
    return at


# The schemes


def _raw(asked: _Asked) -> Mapping[str, bytes | None]:
    return {"key": asked.message.key, "value": asked.value}


def _string(asked: _Asked) -> Mapping[str, bytes | None]:
    return {"value": _bytes(asked.text)}


def _key_value(asked: _Asked) -> Mapping[str, bytes | None]:
    return {"key": _bytes(_text(asked.message.key, "the key is not UTF-8")), "value": _bytes(asked.text)}


def _metadata(asked: _Asked) -> Mapping[str, bytes | None]:
    at, timestamp = asked.at, asked.message.timestamp
    found = (
        at.partition.topic,
        at.partition.partition,
        at.offset,
        None if timestamp is None else time_text(timestamp * 1000),
    )
    names = ("topic", "partition", "offset", "timestamp")
    return {name: None if value is None else str(value).encode() for name, value in zip(names, found, strict=True)}


def _delimited(asked: _Asked) -> Mapping[str, bytes | None]:
    scheme: DelimitedScheme = asked.scheme
    names, text = list(scheme.named), asked.text
    if text is None:
        return {}
    if scheme.quote is None:
        parts = [part or None for part in text.split(scheme.separator)]
    else:
        parts = _quoted(text, scheme.separator, scheme.quote)
    if len(parts) != len(names):
        raise _Wrong(f"not {len(names)} fields")
    return {name: _bytes(part) for name, part in zip(names, parts, strict=True)}


def _quoted(text: str, separator: str, quote: str) -> list[str | None]:
    """The fields of a text, of which quotes may enclose some; None for an empty one without quotes.

    The expression cannot go back, so it takes linear time.
    """
    between, mark = re.escape(separator), re.escape(quote)
    inside = f"[^{mark}]*+(?:{mark}{mark}[^{mark}]*+)*+"
    one = f"{mark}{inside}{mark}|(?:(?!{between})[^{mark}])*+"
    # A separator before the first field too, so that all fields are alike.
    text = separator + text
    if not re.fullmatch(f"(?:{between}(?:{one}))++", text):
        raise _Wrong("quotes do not enclose whole fields")
    found = re.findall(f"{between}({one})", text)
    return [part[1:-1].replace(2 * quote, quote) if part.startswith(quote) else part or None for part in found]


def _json(asked: _Asked) -> Mapping[str, bytes | None]:
    scheme: JsonScheme = asked.scheme
    if asked.text is None:
        return {}
    found = _json_value(asked.text)
    if not isinstance(found, dict):
        raise _Wrong("not a JSON object")
    fields = {one.name: _member(found.pop(one.name, None)) for one in scheme.columns}
    if scheme.unknown == "keep":
        fields[UNKNOWN] = _json_text(found).encode() if found else None
    return fields


def _member(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if type(value) is str else _json_text(value)).encode()


class _Number(str):
    """A number of JSON as it is written: no digit is lost."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number)


def _json_value(text: str) -> Any:
    if too_deep(text.encode()):
        raise _Wrong(TOO_DEEP)
    try:
        return json.loads(
            text,
            object_pairs_hook=_each_once,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        raise _Wrong("not one JSON value, or a key stands twice in it") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("twice")
    return found


def _no_constant(name: str) -> Any:
    """NaN and Infinity are no JSON."""
    raise ValueError(name)


def _json_text(value: Any) -> str:
    """JSON without spaces, with keys by name, as Spark writes it; but its numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json_text(name)}:{_json_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _regex(asked: _Asked) -> Mapping[str, bytes | None]:
    scheme: RegexScheme = asked.scheme
    text = asked.text
    if text is None:
        return {}
    if len(asked.value or b"") > scheme.max_line_bytes:
        raise _Wrong(f"longer than {scheme.max_line_bytes} bytes")
    patterns = [[one.name, one.regex, list(one.groups)] for one in scheme.patterns]
    found = _limited({"kind": "regex", "patterns": patterns, "text": text})
    return {name: _bytes(found["fields"].get(name)) for name in scheme.named}


def _avro(asked: _Asked) -> Mapping[str, bytes | None]:
    scheme: AvroScheme = asked.scheme
    value = asked.value
    if value is None:
        return {}
    schema = scheme.writer
    if scheme.registry is not None:
        if len(value) < _MAGIC or value[0] != 0:
            raise _Wrong("not in the wire format of a schema registry")
        number, value = int.from_bytes(value[1:_MAGIC], "big"), value[_MAGIC:]
        registry = SchemaRegistry(
            registry_endpoint(asked.connections(scheme.registry)), timeout_seconds=_REGISTRY_SECONDS
        )
        found = registry.schema(number)
        if found is None:
            raise _Wrong(f"schema {number} is not an Avro schema of the registry")
        if isinstance(found, Refused):
            raise _Wrong(f"schema {number}: {found.why}")
        schema = found
    read = _limited({"kind": "avro", "schema": schema, "value": value.hex(), "fields": list(scheme.given)})
    return {name: None if one is None else bytes.fromhex(one) for name, one in read["fields"].items()}


def _limited(question: Mapping[str, Any]) -> dict[str, Any]:
    found = asked_with_limits(question)
    if "problem" in found:
        raise _Wrong(found["problem"])
    return found


def _kept(keep: Mapping[str, str], message: Message) -> dict[str, bytes | None]:
    """The parts of the message that the stream keeps beside its scheme's fields."""
    headers = [
        {"key": name, "value": None if value is None else base64.b64encode(value).decode()}
        for name, value in message.headers
    ]
    time = message.timestamp
    parts: dict[str, bytes | None] = {
        "key": message.key,
        "value": message.value,
        "headers": _json_text(headers).encode() if headers else None,
        "timestamp": None if time is None else time_text(time * 1000).encode(),
        "timestamp_type": b"LogAppendTime" if message.appended else b"CreateTime",
    }
    return {name: parts[part] for name, part in keep.items()}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


_READERS: dict[type[Any], Callable[[_Asked], Mapping[str, bytes | None]]] = {
    RawScheme: _raw,
    StringScheme: _string,
    KeyValueScheme: _key_value,
    MessageMetadataScheme: _metadata,
    DelimitedScheme: _delimited,
    JsonScheme: _json,
    RegexScheme: _regex,
    AvroScheme: _avro,
}
# What of a scheme is not as in a run.
_HOW: dict[type[Any], str] = {
    DelimitedScheme: ", as texts",
    JsonScheme: ", as texts",
    RegexScheme: ", as texts, its patterns searched by Python, and not by Java as in a run",
    AvroScheme: ", as texts",
}
