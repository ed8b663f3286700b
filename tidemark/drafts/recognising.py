"""The format of a topic: Avro, Protobuf or JSON by a registry, JSON, access logs, delimited lines, text, or any bytes.

The majority of the messages decides. The others would be dead letters, and the draft says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemark.clients.registry_answers import FRAME, NOT_FRAMED, SCHEMA_HEADER, SchemaKind, number_in
from tidemark.clients.schema_registry import SchemaRegistry
from tidemark.drafts.access_logs import access_log_format, is_access_log
from tidemark.drafts.avro_records import avro_format, is_framed
from tidemark.drafts.columns import share
from tidemark.drafts.delimited_lines import delimited_format
from tidemark.drafts.format import Format, no_text, text_in
from tidemark.drafts.json_objects import json_format, json_in, objects_in
from tidemark.drafts.log_lines import is_log_line, is_python
from tidemark.drafts.protobuf_messages import protobuf_format
from tidemark.drafts.sampling import SampledMessage
from tidemark.drafts.wrappings import compression_of, decompressed, wrapping_of
from tidemark.errors import WrongUse

_MAX = 0.5
# What text has of the characters that are none: those of lines and terminals, and the separators of old formats.
_IN_TEXT = frozenset(b"\x01\t\n\v\f\r\x1b\x1c\x1d\x1e\x1f")
_OF_BYTES = bytes(byte for byte in range(32) if byte not in _IN_TEXT)
_SHOWN = 5
_BY_REGISTRY: Mapping[SchemaKind, Callable[[Sequence[bytes], str, Mapping[int, str]], Format]] = {
    "AVRO": avro_format,
    "PROTOBUF": protobuf_format,
}


def format_of_messages(seen: Sequence[SampledMessage], registry: tuple[str, SchemaRegistry] | None = None) -> Format:
    """As `format_of`, of messages with their headers."""
    given = [message for message in seen if message.value is not None]
    values = [message.value for message in given if message.value is not None]
    if share(given, lambda message: SCHEMA_HEADER in message.headers) <= _MAX:
        return format_of(values, registry)
    if share(values, lambda value: isinstance(json_in(value), (dict, list))) > _MAX:
        format_ = format_of(values)
        return replace(format_, what=f"{format_.what}, whose schema a header names ({SCHEMA_HEADER})")
    return _whole(
        f"records of Avro or Protobuf whose schema a header names ({SCHEMA_HEADER})",
        "raw",
        "no scheme looks up the schema of a header. If all were written with one schema, the schemes avro and protobuf read "
        "them with a file of it (schema_file), and not with a registry. Otherwise have the producer write the number in front "
        "of the value, as value.schema.id.serializer = io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer does",
    )


def format_of(values: Sequence[bytes], registry: tuple[str, SchemaRegistry] | None = None) -> Format:
    """The format of some values. `registry`: the name of a connection, and the registry there. Raises WrongUse."""
    if (wrapped := _of_wrapped(values)) is not None:
        return wrapped
    if share(values, is_framed) > _MAX:
        if registry is not None:
            return _by_registry(values, *registry)
        raise WrongUse(
            "the messages begin as those of a schema registry do, with a byte 0 and the number of a schema: name the "
            "connection of the registry, as --registry our_registry"
        )
    if not values:
        return _whole("no value: tombstones, or keys alone", "raw", "the scheme raw has a field for the key")
    if share(values, _is_text) <= _MAX:
        return _whole(
            "bytes that are no text",
            "raw",
            "Avro and Protobuf have schemes, with a file of the schema: docs/schemes.md",
        )
    return _of_text(values)


def _of_wrapped(values: Sequence[bytes]) -> Format | None:
    """The format of values that are compressed, or behind something else; None for others."""
    if (compression := compression_of(values)) is not None:
        return _compressed(values, compression)
    if (wrapping := wrapping_of(values)) is not None:
        return _whole(wrapping.what, "string" if wrapping.is_text else "raw", wrapping.note)
    return _framed_json(values) if share(values, _is_framed_json) > _MAX else None


def _of_text(values: Sequence[bytes]) -> Format:
    if share(values, _is_xml) > _MAX:
        return _whole("XML", "string", "each document is kept as text: a function takes it apart, docs/functions.md")
    if share(values, _is_object) > _MAX:
        return json_format(values)
    if share(values, lambda value: objects_in(value) is not None) > _MAX:
        format_ = json_format([object_ for value in values for object_ in objects_in(value) or ()])
        return _exploded(format_, {"json_array": True}, "JSON arrays of objects", objects_in)
    if share(values, _has_line_ends) > _MAX:
        format_ = _of_lines([line for value in values for line in _lines(value)])
        if format_.scheme["type"] == "string":
            # Nothing says that a line is more than a part: of a letter, of an error with its trace.
            return _whole(
                "text of several lines", "string", "each message is one row: `explode` would make one of each line"
            )
        return _exploded(format_, {"lines": "\n"}, f"{format_.what}, several in a message", _lines)
    return _of_lines(values)


def _whole(what: str, scheme: str, note: str) -> Format:
    """A scheme that keeps a message as it is."""
    return Format(what, {"type": scheme}, no_text if scheme == "string" else lambda value: None, notes=(note,))


def _is_text(value: bytes) -> bool:
    """Whether some bytes are text. Many a message of Protobuf is valid UTF-8."""
    return text_in(value) is not None and len(value.translate(None, _OF_BYTES)) == len(value)


def _is_xml(value: bytes) -> bool:
    stripped = value.strip()
    return stripped[:1] == b"<" and stripped[-1:] == b">" and len(stripped) > 2


def _by_registry(values: Sequence[bytes], name: str, registry: SchemaRegistry) -> Format:
    """Avro or Protobuf, of whichever kind the registry has schemas of the numbers that values name. Raises WrongUse."""
    numbers = sorted({number for value in values if (number := number_in(value)) is not None})
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    for kind, format_ in _BY_REGISTRY.items():
        schemas = {number: text for number, text in registry.schemas(numbers, kind).items() if isinstance(text, str)}
        if schemas:
            try:
                return format_(values, name, schemas)
            except ValueError as problem:
                raise WrongUse(f"the schemas {shown} of the registry of {name}: {problem}: use scheme raw") from problem
    raise WrongUse(
        f"the registry of {name} has no Avro or Protobuf schema of the numbers that the messages name: {shown}"
    )


def _of_lines(values: Sequence[bytes]) -> Format:
    if share(values, _is_object) > _MAX:
        return json_format(values)
    texts = [text for value in values if (text := text_in(value)) is not None]
    if share(texts, is_access_log) > _MAX:
        return access_log_format(texts)
    if share(texts, is_log_line) > _MAX:
        return _whole(
            "lines of a log", "string", "each line is kept as text: the scheme regex takes it apart, docs/samples.md"
        )
    if share(texts, is_python) > _MAX:
        return _whole(
            "dictionaries as Python prints them",
            "string",
            "they are no JSON: have the producer write json.dumps(value)",
        )
    return delimited_format(texts) or Format("text", {"type": "string"}, no_text)


def _has_line_ends(value: bytes) -> bool:
    """Whether a value has several lines. An end of a line within quotes is one of a column, and one behind all ends none."""
    if b"\n" not in value.removesuffix(b"\n"):
        return value.endswith(b"\n")
    return value.count(b'"') % 2 == 1 or any(b"\n" in part for part in value.removesuffix(b"\n").split(b'"')[::2])


def _is_framed_json(value: bytes) -> bool:
    return (
        is_framed(value)
        and value[FRAME : FRAME + 1] in (b"{", b"[")
        and isinstance(json_in(value[FRAME:]), (dict, list))
    )


def _framed_json(values: Sequence[bytes]) -> Format:
    """JSON behind the number of a schema: the registry is not asked."""
    format_ = json_format([value[FRAME:] for value in values if is_framed(value)])
    if format_.scheme["type"] != "json":
        return _whole("JSON by a schema registry", "raw", "no key of its objects can be the name of a field")

    def refusal(value: bytes) -> str | None:
        return NOT_FRAMED if number_in(value) is None else format_.refusal(value[FRAME:])

    scheme = {**format_.scheme, "wire_format": "confluent"}
    return replace(format_, what="JSON objects by a schema registry", scheme=scheme, refusal=refusal)


def _compressed(values: Sequence[bytes], compression: str) -> Format:
    """The format of values that were compressed one by one."""
    if compression == "snappy":
        note = "add `decompress: snappy` beside `scheme`, which is for what they are when they are decompressed"
        return _whole("values compressed with snappy", "raw", note)
    inner = [found for value in values if (found := decompressed(value, compression)) is not None]
    format_ = format_of(inner)

    def refusal(value: bytes) -> str | None:
        found = decompressed(value, compression)
        return f"not {compression}" if found is None else format_.refusal(found)

    what = f"{format_.what}, compressed with {compression}"
    return replace(format_, what=what, refusal=refusal, decompress=compression)


def _is_object(value: bytes) -> bool:
    return isinstance(json_in(value), dict)


def _exploded(
    format_: Format, explode: Mapping[str, Any], what: str, pieces: Callable[[bytes], list[bytes] | None]
) -> Format:
    def refusal(value: bytes) -> str | None:
        parts = pieces(value)
        if parts is None:
            return f"not one of {what}"
        return next((why for part in parts if (why := format_.refusal(part)) is not None), None)

    return replace(format_, what=what, explode=explode, refusal=refusal)


def _lines(value: bytes) -> list[bytes]:
    lines = value.split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines[:-1] if lines[-1] == b"" else lines)]
