"""Drafts of stream files: what is recognised, that each draft is a valid stream file, and what it says of each message."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.protobuf_orders import ORDER, Schema, framed
from tests.support.registry import serving
from tidemark.clients.schema_registry import RegistryEndpoint, SchemaRegistry
from tidemark.drafts.avro_records import avro_format
from tidemark.drafts.drafting import outcome
from tidemark.drafts.drafting import text_of as file_of
from tidemark.drafts.json_objects import json_in
from tidemark.drafts.json_types import json_type
from tidemark.drafts.recognising import format_of, format_of_messages
from tidemark.drafts.sampling import SampledMessage
from tidemark.errors import WrongUse
from tidemark.schemes.kinds import DelimitedScheme, JsonScheme, RegexScheme
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.types.fields import text_of


def drafted(folder: Path, values: list[bytes | None]) -> tuple[Stream, list[str]]:
    """The stream of the draft for some values, and why each that is no row would be a dead letter."""
    seen = [SampledMessage(f"orders/0@{offset}", value) for offset, value in enumerate(values)]
    found = format_of([value for value in values if value is not None])
    made = outcome(found, seen)
    path = folder / "orders.yaml"
    path.write_text(file_of("orders", "orders", "kafka_default", found, made, date(2026, 11, 27)))
    return load(path).stream, [f"{one.at}: {why}" for one, why in made.dead]


def objects(*given: object) -> list[bytes | None]:
    return [json.dumps(one).encode() for one in given]


@pytest.mark.covers("I10", "N70")
def test_json_has_the_type_that_fits_each_key(tmp_path: Path) -> None:
    one = {"id": 1, "price": 2, "name": "a", "at": "2026-11-27T07:00:00Z", "paid": True, "no": None}
    two = {"id": 2, "price": 2.5, "name": "b", "at": "2026-11-27 07:00:00.123", "paid": False, "no": "x"}
    stream, dead = drafted(tmp_path, [*objects(one, two), None])
    assert isinstance(stream.scheme, JsonScheme)
    assert stream.fields == {
        "id": "integer",
        "price": "double",
        "name": "string",
        "at": "timestamp",
        "paid": "boolean",
        "no": "string",
    }
    # Right for every reader, whatever reads it.
    assert ([one.type for one in stream.sinks], stream.dead_letters.type) == (["delta"], "delta")
    assert dead == []


@pytest.mark.covers("N70")
def test_mixed_values_are_kept_as_json(tmp_path: Path) -> None:
    stream, dead = drafted(tmp_path, objects({"a": {"b": 1}, "c": 1}, {"a": [1], "c": "x"}, {"order": 1, "c": None}))
    assert stream.fields == {"a": "string", "c": "string", "order": "integer"}
    assert dead == []


_MANY = [{"k" * (number + 1): number} for number in range(60)]
_DEEP: Any = 1
for _ in range(11):
    _DEEP = [_DEEP]


@pytest.mark.covers("N70")
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2026-11-21", "2024-02-29"], "date"),
        (["2026-11-21", "2026-02-29"], "string"),
        ([{"zip": 1, "at": "2026-11-21T00:00:00Z"}, {"zip": None}], "struct<zip:bigint,at:timestamp>"),
        ([[{"on": ["2026-11-21"]}], []], "array<struct<on:array<date>>>"),
        ([[1, None, 2.5], []], "array<double>"),
        # Keys that most of the objects lack are data.
        ([{"ada": 1}, {"bob": 2}, {"eve": 3}], "map<string,bigint>"),
        (_MANY, "map<string,bigint>"),
        ([{"a b": 1}], "map<string,bigint>"),
        ([{"a": 1, "b": "x"}, {"a": 1}, {"a": 1}], "struct<a:bigint,b:string>"),
        # Nothing says what is in them, they do not agree, or no sink takes as many levels.
        ([[], {}], "variant"),
        ([{"a": None}], "variant"),
        ([[1, "x"]], "variant"),
        ([{"a": 1, "A": "x"}], "variant"),
        ([{"ada": 1}, {"bob": "x"}, {"eve": 3}], "variant"),
        ([_DEEP], "variant"),
    ],
)
def test_nested_values_have_the_type_on_which_the_messages_agree(values: list[Any], kind: str) -> None:
    parsed = [json_in(json.dumps(one).encode()) for one in values]
    assert text_of(json_type(parsed)) == kind


@pytest.mark.covers("N70")
@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["9.90", "12.55", "-0.01"], "decimal(18,2)"),
        (["9.90", "1" * 17 + ".10"], "decimal(38,2)"),
        # A double never ends so, and a decimal always has its digits.
        (["9.91", "12.55"], "double"),
        (["9.90", "12.5"], "double"),
        (["9.90", "12"], "double"),
        (["9.0", "12.5"], "double"),
        (["9.90", "1.10e3"], "double"),
    ],
)
def test_amounts_are_decimals_where_all_are_written_so(tmp_path: Path, texts: list[str], kind: str) -> None:
    stream, dead = drafted(tmp_path, [f'{{"a": {one}, "b": [{one}]}}'.encode() for one in texts])
    assert (stream.fields, dead) == ({"a": kind, "b": f"array<{kind}>"}, [])
    # As columns, and as elements of an array, which keep the text of their numbers.
    stream, dead = drafted(tmp_path, [f"{one},x".encode() for one in texts])
    assert (stream.fields["column_1"], dead) == (kind, [])
    array = ", ".join(f'{{"a": {one}}}' for one in texts)
    stream, dead = drafted(tmp_path, [f"[ {array} ]".encode()])
    assert (stream.fields, dead) == ({"a": kind}, [])


@pytest.mark.covers("N70")
def test_what_does_not_fit_within_a_value_is_named_by_its_path(tmp_path: Path) -> None:
    lines = [{"sku": "a", "n": 1}]
    values = objects(*({"lines": lines, "to": {"ada": 1} if one % 3 else {}} for one in range(200)))
    values += [b'{"lines": [{"n": "x"}]}', b'{"lines": [1]}', b'{"lines": {}, "to": []}']
    stream, dead = drafted(tmp_path, values)
    assert stream.fields == {"lines": "array<struct<sku:string,n:bigint>>", "to": "struct<ada:bigint>"}
    assert dead == [
        "orders/0@200: lines[].n is not an integer",
        "orders/0@201: lines[] is not an object",
        "orders/0@202: lines is not an array",
    ]
    assert (
        "# a struct has the keys that it names: others within it are passed over"
        in (tmp_path / "orders.yaml").read_text()
    )


@pytest.mark.covers("N70")
def test_a_key_that_names_no_field_is_kept(tmp_path: Path) -> None:
    stream, _ = drafted(tmp_path, objects({"@id": 1, "Name": "a"}, {"Name": "b", "name": "c", "ключ": 1}))
    assert stream.fields == {"id": "integer", "Name": "string", "name_2": "string", "ключ": "integer"}
    assert isinstance(stream.scheme, JsonScheme)
    assert stream.scheme.keys == ("@id", "Name", "name", "ключ")
    said = "# keys that differ in case alone, of which each is a field of its own: 'Name', 'name'"
    assert said in (tmp_path / "orders.yaml").read_text()


@pytest.mark.covers("N70")
def test_no_key_is_lost_beside_one_that_is_called_unknown(tmp_path: Path) -> None:
    one = {"_id": "o1", "@timestamp": "2026-11-21T07:10:00Z", "unknown": True, "total": 1, "": 5, "Total": 2}
    stream, dead = drafted(tmp_path, objects(one, one))
    assert stream.fields == {
        "_id": "string",
        "timestamp": "timestamp",
        "unknown_2": "boolean",
        "total": "integer",
        "Total_2": "integer",
        "unknown": "string",
    }
    assert dead == []
    # With values of several types there is a schema, in which no key has another name.
    stream, dead = drafted(tmp_path, objects({**one, "a": 1}, {**one, "a": "x"}))
    assert stream.fields == {"_id": "string", "total": "integer", "a": "string", "unknown": "string"}
    assert "'@timestamp', 'unknown', '', 'Total'" in (tmp_path / "orders.yaml").read_text()


@pytest.mark.covers("N70")
def test_what_does_not_fit_is_named_with_its_reason(tmp_path: Path) -> None:
    values = objects(*({"id": number} for number in range(97)))
    values += [b'{"id": "x"}', b"no json", b'{"id": 1, "id": 2}', b"[" * 300]
    _, dead = drafted(tmp_path, values)
    assert dead == [
        "orders/0@97: id is not an integer",
        "orders/0@98: not a JSON object",
        "orders/0@99: the key 'id' occurs twice",
        "orders/0@100: nested deeper than 200 levels",
    ]


@pytest.mark.covers("N70")
def test_arrays_and_lines_are_split(tmp_path: Path) -> None:
    stream, dead = drafted(tmp_path, [b'[{"a": 1}, {"a": 2}]', b'[{"a": 3}]'])
    assert stream.explode is not None
    assert stream.explode.json_array is True
    assert stream.fields == {"a": "integer"}
    stream, dead = drafted(tmp_path, [b'{"a": 1}\n{"a": 2}\n', b'{"a": 3}\n', b'{"a": 4}\nx\n', b"x,y\n"])
    assert stream.explode is not None
    assert stream.explode.lines == "\n"
    assert dead == ["orders/0@2: not a JSON object", "orders/0@3: not a JSON object"]


@pytest.mark.covers("N70")
@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
def test_delimited_lines_have_columns(tmp_path: Path, separator: str) -> None:
    rows = [["1", "0.5", "true", "2026-11-27 07:00:00", "007", '"a ""b"""', ""] for _ in range(60)]
    values = [separator.join(row).encode() for row in rows]
    stream, dead = drafted(tmp_path, [*values, b"1", separator.join(["x", *rows[0][1:]]).encode()])
    assert isinstance(stream.scheme, DelimitedScheme)
    assert stream.scheme.separator == separator
    assert stream.scheme.timestamp == ("yyyy-MM-dd HH:mm:ss",)
    kinds = ["integer", "double", "boolean", "timestamp", "string", "string", "string"]
    assert list(stream.fields.values()) == kinds
    assert dead == ["orders/0@60: not 7 columns", "orders/0@61: column_1 is not an integer"]


@pytest.mark.covers("N70")
def test_access_logs_are_known(tmp_path: Path) -> None:
    common = b'203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET /a.jpg HTTP/1.1" 200 5321'
    combined = rb'203.0.113.9 - bob [21/Nov/2026:07:10:00 +0000] "GET / HTTP/2" 304 - "https://x/" "curl \"8\"" 0.132'
    strange = rb'203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "\x16\x03\x01" 400 0 "-" "-"'
    stream, dead = drafted(tmp_path, [common, combined, strange, b"nothing", common.replace(b"Nov", b"Noon")])
    assert isinstance(stream.scheme, RegexScheme)
    assert dead == ["orders/0@3: not a line of an access log", "orders/0@4: time is not a time"]


@pytest.mark.covers("N70")
def test_text_and_bytes_are_kept_whole(tmp_path: Path) -> None:
    assert drafted(tmp_path, [b"some words, here", b"and more", b"\xff"])[0].fields == {"value": "string"}
    assert drafted(tmp_path, [b"\xff\xfe", b"\xfe", b"a"])[0].fields == {"key": "binary", "value": "binary"}
    assert drafted(tmp_path, [None, None])[0].fields == {"key": "binary", "value": "binary"}
    # These bytes are valid UTF-8 too.
    protobuf: list[bytes | None] = [b"\x08\x2a\x12\x03ada\x18\x01", b"\n\x03ada\x10\x05"]
    assert drafted(tmp_path, protobuf)[0].fields == {"key": "binary", "value": "binary"}
    # Columns of old exports are not what makes bytes.
    assert drafted(tmp_path, [b"1\x01ada", b"2\x01bob"])[0].fields == {"value": "string"}


@pytest.mark.covers("N70")
@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b'<?xml version="1.0"?>\n<order id="1">\n  <sku>a, b</sku>\n</order>\n', "XML"),
        (b"<order><sku>a,b</sku></order>", "XML"),
        (b"ValueError: no\n  at a, line 1\n  at b, line 2", "text of several lines"),
    ],
)
def test_what_is_one_thing_is_one_row(tmp_path: Path, value: bytes, what: str) -> None:
    assert format_of([value] * 9).what == what
    stream, dead = drafted(tmp_path, [value] * 9)
    assert (stream.explode, stream.fields, dead) == (None, {"value": "string"}, [])


@pytest.mark.covers("N70")
def test_the_frame_of_a_registry_asks_for_its_connection() -> None:
    with pytest.raises(WrongUse, match="--registry our_registry"):
        format_of([b"\0\0\0\0\1abc"])


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "ratio", "type": ["null", "float"]},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "wall", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "to", "type": {"type": "record", "name": "Place", "fields": [{"name": "zip", "type": "int"}]}},
        {"name": "from", "type": ["null", "Place"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW"]}},
        {"name": "parts", "type": {"type": "array", "items": "Order"}},
        {"name": "either", "type": ["string", "long"]},
        {"name": "for", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}
LIST = {"type": "array", "items": {"type": "null"}}
ITSELF = {"type": "record", "name": "R", "fields": [{"name": "r", "type": {"type": "array", "items": "R"}}]}


@pytest.mark.covers("N70")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"type": "enum", "name": "E"}, "schema 7: the schema has an enum E without symbols"),
        (7, "schema 7: the schema has '7' where a type is expected"),
        ("Place", "schema 7: the schema names a type 'Place' that it does not have"),
        *(
            (kind, "no field of theirs has a type")
            for kind in (
                {"type": "array", "items": "null"},
                ["null", {"type": "map", "values": {"type": "array", "items": EMPTY}}],
                {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
                {"type": "record", "name": "G", "fields": [{"name": "e", "type": LIST}]},
            )
        ),
    ],
)
def test_a_schema_that_cannot_be_drafted_from_is_named(kind: Any, said: str) -> None:
    text = json.dumps({"type": "record", "name": "Top", "fields": [{"name": "a", "type": kind}]})
    with pytest.raises(ValueError, match=re.escape(said)):
        avro_format([b"\0\0\0\0\7"], "registry", {7: text})


@pytest.mark.covers("N70")
def test_a_message_of_a_billion_items_of_nothing_is_a_dead_letter_at_once() -> None:
    """The message says so of an array whose items take no bytes: to read it would take all memory."""
    fields = [{"name": "a", "type": LIST}, {"name": "id", "type": "int"}]
    text = json.dumps({"type": "record", "name": "Top", "fields": fields})
    found = avro_format([], "registry", {7: text})
    assert found.refusal(b"\0\0\0\0\7" + b"\x80\xa8\xd6\xb9\x07\0\2") == "not a record of schema 7"
    assert found.refusal(b"\0\0\0\0\7" + b"\x06\0\2") is None


# Logical types that Avro takes for bytes, or of which Spark has none.
NUMBERS = [
    {"precision": 64, "scale": 127},
    {"precision": 0, "scale": 0},
    {"precision": "many"},
    {"precision": 64, "scale": 10},
    {},
]


@pytest.mark.covers("N70", "N83")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_decimal_that_no_type_holds_is_bytes_and_a_uuid_of_bytes_too(number: dict[str, Any]) -> None:
    """Oracle's NUMBER by Kafka Connect is one."""
    decimal = {"type": "bytes", "logicalType": "decimal", **number}
    uid = {"type": "fixed", "name": "Uid", "size": 16, "logicalType": "uuid"}
    fields = [
        {"name": "ID", "type": "long", "default": "none"},
        {"name": "AMOUNT", "type": ["null", decimal], "default": None},
        {"name": "UID", "type": uid},
    ]
    text = json.dumps({"type": "record", "name": "Top", "fields": fields})
    values = [b"\0\0\0\0\7\2\2\4\1\xf4" + bytes(16), b"\0\0\0\0\7\2\0" + bytes(16), b"\0\0\0\0\7\2"]
    found = avro_format(values, "registry", {7: text})
    assert found.scheme["fields"] == {"ID": "integer", "AMOUNT": "binary", "UID": "binary"}
    assert [found.refusal(one) for one in values] == [None, None, "not a record of schema 7"]
    assert found.notes == ("1 field is a decimal that no type holds: binary has the unscaled number: 'AMOUNT'",)


def test_an_array_of_what_takes_bytes_is_read() -> None:
    kinds = {
        "r": ITSELF,
        "e": {"type": "array", "items": ["null"]},
        "f": {"type": "array", "items": "R"},
        "s": "string",
    }
    text = json.dumps({"type": "record", "name": "Top", "fields": [{"name": n, "type": kinds[n]} for n in kinds]})
    assert avro_format([], "registry", {7: text}).scheme["fields"] == {"s": "string"}


@pytest.mark.covers("N70")
def test_the_types_of_avro_are_those_that_the_scheme_reads() -> None:
    """All but unions, a record that holds itself, and logical types that Spark reads as numbers."""
    with serving({7: {"schema": json.dumps(AVRO)}}) as served:
        known = format_of([b"\0\0\0\0\7?"], ("ours", SchemaRegistry(RegistryEndpoint(served.url))))
    assert known.scheme["fields"] == {
        "id": "integer",
        "ratio": "double",
        "amount": "decimal(12,2)",
        "day": "date",
        "at": "timestamp",
        "wall": "timestamp_ntz",
        "to": "struct<zip: int>",
        "from": "struct<zip: int>",
        "lines": "array<map<string, bigint>>",
        "kind": "string",
    }
    assert known.notes == (
        "3 fields have a type that scheme avro does not read, or several, or another field's name: 'parts', 'either', 'for'",
    )


@pytest.mark.covers("N112")
def test_protobuf_by_a_registry_is_drafted_with_its_types() -> None:
    schema = Schema()
    orders = [framed(7, schema.written(id=str(one), name="x"), 1) for one in range(5)]
    others = [framed(7, schema.written("shop.Refund", id="1")), framed(8, b""), framed(7, b"\xff", 1), b"?"]
    with serving(
        {7: {"schema": ORDER, "schemaType": "PROTOBUF"}, 9: {"schema": "nothing", "schemaType": "PROTOBUF"}}
    ) as served:
        registry = ("ours", SchemaRegistry(RegistryEndpoint(served.url)))
        known = format_of([*orders, *others], registry)
        with pytest.raises(WrongUse, match="the registry of ours has no Avro or Protobuf schema of the numbers"):
            format_of([framed(8, b""), framed(9, b"")], registry)
    assert known.scheme["message"] == "shop.Order"
    fields = known.scheme["fields"]
    assert fields["large"] == "decimal(20,0)"
    assert fields["counts"] == "map<string, bigint>"
    # A line's parts are lines again, which no type says.
    assert fields["lines"] == "array<struct<sku: string, price: double>>"
    assert (fields["placed"], fields["took"], fields["rank"], fields["more"]) == (
        "timestamp",
        "decimal(21,9)",
        "integer",
        "string",
    )
    assert [known.refusal(one) for one in [orders[0], *others]] == [
        None,
        "a message shop.Refund, and not shop.Order",
        "the registry has no Protobuf schema 8",
        "not a message shop.Order",
        "not in the wire format of a schema registry",
    ]


@pytest.mark.covers("N112")
def test_a_message_without_a_field_that_is_read_is_kept_as_it_is() -> None:
    """It holds itself, and nothing else."""
    schema = 'syntax = "proto3"; package shop; message Part { repeated Part parts = 1; }'
    with serving({7: {"schema": schema, "schemaType": "PROTOBUF"}}) as served:
        registry = ("ours", SchemaRegistry(RegistryEndpoint(served.url)))
        with pytest.raises(
            WrongUse, match=r"no field of shop\.Part has a type that scheme protobuf reads: use scheme raw"
        ):
            format_of([framed(7, b"\x0a\0")] * 3, registry)


def drafted_by(kind: str, schema: str, values: list[bytes]) -> tuple[dict[str, str], list[str | None]]:
    """The fields of a draft, and why it would not take each value."""
    with serving({7: {"schema": schema, "schemaType": kind}}) as served:
        found = format_of(values, ("ours", SchemaRegistry(RegistryEndpoint(served.url))))
    return found.scheme["fields"], [found.refusal(one) for one in values]


@pytest.mark.covers("N112")
def test_types_that_hold_each_other_are_drafted_in_no_time_and_names_once() -> None:
    """Of 40 messages that hold each other there are millions of ways down; and Spark takes `id` and `ID` for one name."""
    parts = [" ".join(f"M{of} m{of} = {of + 9};" for of in range(40) if of != one) for one in range(40)]
    messages = "".join(f"message M{one} {{ {part} }} " for one, part in enumerate(parts))
    schema = f"""syntax = "proto3"; package shop; message Order {{ int64 id = 1; string ID = 2; Pair pair = 3; M0 many = 4; }}
        message Pair {{ int32 a = 1; string A = 2; }} {messages}"""
    assert drafted_by("PROTOBUF", schema, [framed(7, b"\x08\x01")]) == (
        {"id": "integer", "pair": "struct<a: int>"},
        [None],
    )
    node = [{"name": f"m{one}", "type": ["null", "Node"]} for one in range(12)]
    pair = [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]
    fields = [
        {"name": "id", "type": "int"},
        {"name": "ID", "type": "int"},
        {"name": "pair", "type": {"type": "record", "name": "Pair", "fields": pair}},
        {"name": "many", "type": {"type": "record", "name": "Node", "fields": node}},
    ]
    record = json.dumps({"type": "record", "name": "Order", "fields": fields})
    assert drafted_by("AVRO", record, [b"\0\0\0\0\7" + bytes(16)]) == ({"id": "integer"}, [None])


@pytest.mark.covers("N112")
def test_a_message_with_values_that_json_lacks_is_drafted_as_the_scheme_reads_it() -> None:
    schema = """syntax = "proto3"; package shop; import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";
        message Order { int64 id = 1; google.protobuf.Any any = 2; google.protobuf.Timestamp at = 3; }"""
    values = [b"\x08\x01\x12\x07\x0a\x05x/y.Z", b"\x1a\x07\x08\xff\xff\xff\xff\xff\x7f"]
    fields, refused = drafted_by("PROTOBUF", schema, [framed(7, one) for one in values])
    assert (fields["any"], refused) == ("struct<type_url: string, value: binary>", [None, None])


@pytest.mark.covers("N112")
def test_what_begins_otherwise_does_not_decide_which_message_most_are() -> None:
    schema = Schema()
    orders = [framed(7, schema.written(id="1"), 1) for _ in range(4)]
    others = [b"\1" + framed(7, schema.written("shop.Refund", id="1"))[1:] for _ in range(3)]
    refunds = [framed(7, schema.written("shop.Refund", id="1")) for _ in range(2)]
    with serving({7: {"schema": ORDER, "schemaType": "PROTOBUF"}}) as served:
        found = format_of([*orders, *others, *refunds], ("ours", SchemaRegistry(RegistryEndpoint(served.url))))
    assert found.scheme["message"] == "shop.Order"


names = st.one_of(
    st.sampled_from(["no", "on", "null", "1", "a b", "unknown", "Unknown", "select", "x" * 70]), st.text(max_size=5)
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.just("2026-02-30T00:00:00Z"),
)
documents = st.dictionaries(
    names, st.recursive(scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=4), max_size=5
)
lines = st.one_of(
    documents.map(lambda one: json.dumps(one).encode()),
    st.lists(st.text(max_size=4), min_size=1, max_size=4).map(lambda row: ",".join(row).encode(errors="replace")),
    st.binary(max_size=12),
    st.text(max_size=12).map(lambda one: one.encode(errors="replace")),
)


@pytest.mark.slow
@pytest.mark.covers("N70")
@given(values=st.lists(st.one_of(st.none(), lines), min_size=1, max_size=12))
@example(values=[b'{"_hidden": 1, "Unknown": []}'])
def test_whatever_the_messages_are_the_draft_is_a_valid_stream_file(
    tmp_path_factory: pytest.TempPathFactory, values: list[bytes | None]
) -> None:
    if sum(one is not None and one[:1] == b"\0" for one in values) * 2 > len(
        [one for one in values if one is not None]
    ):
        return
    drafted(tmp_path_factory.mktemp("draft"), values)


@pytest.mark.covers("N70", "N83")
@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        # Of 64 bits without a sign, and longer ones: as doubles, two of them would be one number.
        (["18446744073709551615", "18446744073709551614"], "decimal(20,0)"),
        (["9223372036854775808", "1", "-5"], "decimal(20,0)"),
        (["1" * 38, "2"], "decimal(38,0)"),
        (["9007199254740993.5", "0.25"], "decimal(38,2)"),
        (["123456789012345678.25", "7"], "decimal(38,2)"),
        (["0.12345678901234567890123", "1.5"], "decimal(38,23)"),
        # What a double holds is one.
        (["9007199254740993", "1.5"], "decimal(38,1)"),
        (["9007199254740992", "1.5"], "double"),
        (["0.10000000000000001", "0.1"], "double"),
        (["1e23", "2"], "double"),
        (["18446744073709551616.0", "0.5"], "double"),
    ],
)
def test_no_two_numbers_become_one(tmp_path: Path, numbers: list[str], kind: str) -> None:
    stream, dead = drafted(tmp_path, [f'{{"a": {one}, "b": [{one}], "c": {{"d": {one}}}}}'.encode() for one in numbers])
    assert (stream.fields, dead) == ({"a": kind, "b": f"array<{kind}>", "c": f"struct<d:{kind}>"}, [])
    stream, dead = drafted(tmp_path, [f"{one},x".encode() for one in numbers])
    assert (stream.fields["column_1"], dead) == (kind, [])


@pytest.mark.covers("N70", "N83")
def test_a_number_that_no_type_holds_stays_as_it_is_written(tmp_path: Path) -> None:
    numbers = ["1" * 40, "2"]
    stream, dead = drafted(tmp_path, [f'{{"a": {one}, "id": 1}}'.encode() for one in numbers])
    assert (stream.fields, dead) == ({"a": "string", "id": "integer"}, [])
    stream, dead = drafted(tmp_path, [f"{one},x".encode() for one in numbers])
    assert (stream.fields["column_1"], dead) == ("string", [])


def framed_json(number: int, one: object) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + json.dumps(one).encode()


@pytest.mark.covers("N70", "N110")
def test_json_by_a_registry_is_drafted_with_its_frame(tmp_path: Path) -> None:
    values = [framed_json(5, {"id": one}) for one in range(80)]
    stream, dead = drafted(tmp_path, [*values, b'{"id": 1}', framed_json(5, {"id": "x"})])
    assert isinstance(stream.scheme, JsonScheme)
    assert (stream.scheme.wire_format, stream.fields) == ("confluent", {"id": "integer"})
    assert dead == [
        "orders/0@80: not in the wire format of a schema registry",
        "orders/0@81: id is not an integer",
    ]


LOGS = [
    "2026-11-21 07:10:00,123 INFO root: retry 1, of 3",
    "2026-11-21 07:10:00,123 - app.db - WARNING - slow, 12 ms",
    "2026-11-21T07:10:00.123Z [main] ERROR com.example.A - closed",
    "2026-11-21 07:10:00.123 DEBUG 4711 --- [nio-1] c.e.A : a, b",
    "[2026-11-21 07:10:00,123] took 5, then 6",
    "INFO:root:started, with 3 workers",
    "WARNING: disk is nearly full, 5 % left",
]


@pytest.mark.covers("N70")
@pytest.mark.parametrize("line", LOGS)
def test_a_line_of_a_log_is_no_columns(tmp_path: Path, line: str) -> None:
    values: list[bytes | None] = [line.replace("0:00", f"0:{second:02}").encode() for second in range(60)]
    stream, dead = drafted(tmp_path, values)
    assert (stream.fields, dead) == ({"value": "string"}, [])
    assert "lines of a log" in (tmp_path / "orders.yaml").read_text()


@pytest.mark.covers("N70")
def test_columns_with_a_time_or_a_level_are_columns(tmp_path: Path) -> None:
    for line in (b"2026-11-21 07:10:00,INFO,root", b"INFO,2026-11-21 07:10:00,1", b"2026-11-21 07:10:00;12,5;x"):
        stream, dead = drafted(tmp_path, [line] * 20)
        assert isinstance(stream.scheme, DelimitedScheme), line
        assert (len(stream.fields), dead) == (3, [])


@pytest.mark.covers("N70")
def test_dictionaries_of_python_are_named(tmp_path: Path) -> None:
    stream, dead = drafted(tmp_path, [repr({"id": n, "name": "x", "ok": True, "no": None}).encode() for n in range(20)])
    assert (stream.fields, dead) == ({"value": "string"}, [])
    assert "json.dumps(value)" in (tmp_path / "orders.yaml").read_text()


@pytest.mark.covers("N70")
def test_a_record_with_line_ends_within_quotes_is_one(tmp_path: Path) -> None:
    values: list[bytes | None] = [f'{one},"first line\nsecond, line",{one}.50\n'.encode() for one in range(30)]
    for some in (values, [*values, *(f"{one},a,{one}.50\n".encode() for one in range(20))]):
        stream, dead = drafted(tmp_path, some)
        assert isinstance(stream.scheme, DelimitedScheme)
        assert (stream.explode, [*stream.fields.values()], dead) == (None, ["integer", "string", "decimal(18,2)"], [])


WRAPPED = {
    b"\xef\xbb\xbf" + b'{"id": 1}': ("JSON behind a byte order mark", "EF BB BF"),
    b"\xef\xbb\xbf" + b"1,2": ("text behind a byte order mark", "EF BB BF"),
    "{}".encode("utf-16"): ("text in UTF-16", "UTF-8"),
    b"\x03\x00" + bytes(range(16)) + b"\x02abc": ("bytes with the frame of AWS Glue's registry", "AWS Glue"),
    b"\x01" + bytes(range(16)) + b"\x02abc": ("bytes with the id (GUID) of a schema before them", "Confluent"),
    b"\0" + (7).to_bytes(8, "big") + b"\x02abc": ("bytes with the frame of Apicurio's registry", "four bytes"),
    b"Obj\x01" + bytes(30): ("container files of Avro", "function"),
    b"\xc3\x01" + b"12345678" + b"\x02": ("single objects of Avro", "function"),
    b"PAR1" + bytes(30): ("files of Parquet", "function"),
    b"\xff\x06\x00\x00sNaPpY" + bytes(9): ("values compressed with snappy", "decompress: snappy"),
}


@pytest.mark.covers("N70")
@pytest.mark.parametrize("value", WRAPPED)
def test_what_stands_around_a_value_is_named_with_the_way_on(tmp_path: Path, value: bytes) -> None:
    what, way = WRAPPED[value]
    found = format_of([value] * 20)
    assert what in found.what
    assert way in " ".join(found.notes)
    stream, dead = drafted(tmp_path, [value] * 20)
    assert (stream.scheme.type in ("raw", "string"), dead) == (True, [])


@pytest.mark.covers("N70")
def test_a_schema_that_a_header_names_is_named_with_the_way_on(tmp_path: Path) -> None:
    """Bytes of Avro may be text, or begin as a value of a registry does."""
    for value in (b"\x02\x06abc", b"2 abc", b"\0\0\0\0\x01abc", b"\0"):
        seen = [SampledMessage("orders/0@1", value, ("trace", "__value_schema_id")), SampledMessage("orders/0@2", None)]
        found = format_of_messages(seen)
        assert found.scheme == {"type": "raw"}
        assert "whose schema a header names (__value_schema_id)" in found.what
        assert "with a file of it (schema_file)" in found.notes[0]
        assert "PrefixSchemaIdSerializer" in found.notes[0]
    seen = [SampledMessage("orders/0@1", b'{"id": 1}', ("__value_schema_id",))] * 3
    found = format_of_messages(seen)
    assert (found.scheme["type"], found.scheme["fields"]) == ("json", {"id": "integer"})
    # The header of a key's schema says nothing of the value.
    keyed = [SampledMessage("orders/0@1", b"2 abc", ("__key_schema_id",))] * 3
    assert format_of_messages(keyed).scheme["type"] != "raw"


@pytest.mark.covers("N70")
@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_compressed_values_are_drafted_as_what_is_in_them(tmp_path: Path, name: str) -> None:
    def packed(value: bytes) -> bytes:
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, name) as stream:
            stream.write(value)
        return bytes(out.getvalue())

    values = [packed(b'{"id": %d}' % one) for one in range(20)]
    stream, dead = drafted(tmp_path, [*values, b'{"id": 1}', values[0][:-3], packed(b"{")])
    assert (stream.decompress, stream.fields) == (name, {"id": "integer"})
    assert dead == [
        f"orders/0@20: not {name}",
        f"orders/0@21: not {name}",
        "orders/0@22: not a JSON object",
    ]


@pytest.mark.covers("N70")
def test_a_draft_says_how_sure_it_is(tmp_path: Path) -> None:
    drafted(tmp_path, objects(*({"id": number} for number in range(6))) + [b"x"] * 4)
    assert "# not sure: 60 % of the messages fit this file" in (tmp_path / "orders.yaml").read_text()
    drafted(tmp_path, objects({"id": 1}))
    assert "# not sure: 1 message may not show all that comes" in (tmp_path / "orders.yaml").read_text()
    drafted(tmp_path, objects(*({"id": number} for number in range(100))))
    assert "not sure" not in (tmp_path / "orders.yaml").read_text()
