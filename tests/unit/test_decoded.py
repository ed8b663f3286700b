"""A message as its scheme reads it without Spark: the same as the results, where both have the same form."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import avro_orders, registry
from tests.support.scheme_cases import CASES, HEADERS, NO_TIME, PAIRS, Case
from tests.support.scheme_cases import Message as Sent
from tests.support.stream_text import MINIMAL
from tidemark.clients.connections import Connection
from tidemark.clients.kafka.slots import Message
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.schemes.json_depth import TOO_DEEP
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.views.decoded import MOST_BYTES, MOST_PIECES, Decoded, decoded
from tidemark.views.message import decoded_shown

AT = Coordinate(TopicPartition("orders", 0), 7)


def stream(tmp_path: Path, scheme: dict[str, Any], **more: Any) -> Stream:
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(MINIMAL), "scheme": scheme, **more}, sort_keys=False))
    return load(file).stream


def nowhere(name: str) -> Connection:
    raise AssertionError(name)


def read(found: Stream, value: bytes | None, key: bytes | None = None, connections: Any = nowhere) -> Decoded:
    return decoded(found, connections, AT, Message(0, False, key, value, ()))


def fields(found: Decoded) -> dict[str, bytes | None]:
    (piece,) = found.pieces
    assert piece.problem == ""
    return dict(piece.fields)


PLAIN = [case for case in CASES if case.name != "function"]


@pytest.mark.covers("U14")
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_what_is_shown_is_what_the_scheme_makes(case: Case, tmp_path: Path) -> None:
    """Against the oracle of the schemes. Texts are the same; numbers and times are as the message has them."""
    described = stream(tmp_path, case.scheme)
    texts = [name for name, kind in described.scheme.fields.items() if kind in ("string", "binary")]
    compared = 0
    for offset, (key, value) in enumerate(PAIRS, 1):
        if case.scheme["type"] == "regex" and value is not None and value[:1] not in b"7n\xfe":
            # Each takes a process of its own.
            continue
        headers, at = HEADERS[offset % len(HEADERS)], NO_TIME if offset % 5 == 4 else 1_795_244_400_120 + offset
        wanted = case.outcome(Sent("orders", 0, offset, key, value, headers, at, 0))
        message = Message(None if at == NO_TIME else at, False, key, value, tuple(headers))
        found = decoded(described, nowhere, Coordinate(AT.partition, offset), message)
        (piece,) = found.pieces
        if wanted.fields is None:
            # What is not of its type only a run says.
            assert piece.problem == wanted.reason or " is not a" in (wanted.reason or ""), (value, piece)
            continue
        assert piece.problem == "", (value, piece)
        there = {name: part for name, part in piece.fields.items() if part is not None}
        assert set(there) == set(wanted.fields), value
        for name in set(texts) & set(there):
            shown, expected = there[name].decode(errors="surrogateescape"), wanted.fields[name]
            assert shown == expected, value
            compared += 1
    assert compared


@pytest.mark.covers("U14")
def test_a_pattern_that_searches_for_ever_is_ended(tmp_path: Path) -> None:
    scheme = {
        "type": "regex",
        "fields": {"all": "string"},
        "patterns": [{"name": "slow", "regex": "((?:a+)+)b", "fields": ["all"]}],
    }
    began = time.monotonic()
    (piece,) = read(stream(tmp_path, scheme), b"a" * 100).pieces
    assert piece.problem == "reading it took more than 2 s, or too much memory"
    assert time.monotonic() - began < 60


@pytest.mark.covers("U14")
def test_avro_by_a_file_and_by_a_registry(tmp_path: Path) -> None:
    given = {
        "id": "integer",
        "name": "string",
        "kind": "string",
        "share": "double",
        "at": "timestamp",
        "paid": "boolean",
    }
    given |= {"raw": "binary"}
    wanted = {"id": b"5", "name": "Zoë".encode(), "kind": b"OLD", "share": b"0.25", "paid": b"true"}
    wanted |= {"at": b"2026-11-21 07:10:00.12", "raw": avro_orders.ROW["raw"]}
    (tmp_path / "order.avsc").write_text(json.dumps(avro_orders.ORDER))
    by_file = stream(tmp_path, {"type": "avro", "schema_file": "order.avsc", "fields": given})
    assert fields(read(by_file, avro_orders.written(avro_orders.ORDER, avro_orders.ROW))) == wanted
    (piece,) = read(by_file, b"\x02").pieces
    assert piece.problem.startswith("not a record of the schema")

    by_registry = stream(
        tmp_path, {"type": "avro", "registry": "registry_default", "fields": {**given, "new": "string"}}
    )
    with registry.serving({17: {"schema": json.dumps(avro_orders.ORDER)}}) as server:
        there = Connection("registry_default", server.url)
        message = avro_orders.written(avro_orders.ORDER, avro_orders.ROW, 17)
        assert fields(read(by_registry, message, connections=lambda _: there)) == {**wanted, "new": None}
        problems = [
            read(by_registry, value, connections=lambda _: there).pieces[0].problem for value in (b"x", b"\0\0\0\0\1")
        ]
    assert problems[0] == "not in the wire format of a schema registry"
    assert problems[1].startswith("schema 1 is not")
    assert "Unreachable: " in read(by_registry, message, connections=lambda _: there).pieces[0].problem


LIST = {"type": "array", "items": "null"}


def test_a_list_of_a_billion_nothings_is_ended(tmp_path: Path) -> None:
    """Two dozen bytes that say so: the items of such a list take no bytes."""
    schema = {
        "type": "record",
        "name": "Many",
        "fields": [{"name": "id", "type": "int"}, {"name": "many", "type": LIST}],
    }
    (tmp_path / "many.avsc").write_text(json.dumps(schema))
    bomb = b"\x02" + b"\x80\x80\x80\x80\x80\x80\x40"
    (piece,) = read(
        stream(tmp_path, {"type": "avro", "schema_file": "many.avsc", "fields": {"id": "integer"}}), bomb
    ).pieces
    assert "too much memory" in piece.problem


def test_pieces(tmp_path: Path) -> None:
    by_id = {"type": "json", "fields": {"id": "integer"}}
    found = read(
        stream(tmp_path, by_id, explode={"json_array": "items"}), b'{"items": [{"id": 1}, {"id": 2.50}, 3, "x"]}'
    )
    assert [(one.fields, one.problem) for one in found.pieces] == [
        ({"id": b"1"}, ""),
        ({"id": b"2.50"}, ""),
        ({}, "not a JSON object"),
        ({}, "not one JSON value, or a key stands twice in it"),
    ]
    whole = stream(tmp_path, {"type": "string"}, explode={"json_array": "a"})
    value = b'{"b": [], "\\u0061" :\n[ 1.0, -0 , {"b": [1e400], "a":"]"},"\\u00e9" ] }'
    assert [one.fields["value"] for one in read(whole, value).pieces] == [
        b"1.0",
        b"-0",
        b'{"b": [1e400], "a":"]"}',
        "é".encode(),
    ]
    assert read(whole, b'{"a": [ ]}').pieces == ()
    (wrong,) = read(stream(tmp_path, by_id, explode={"json_array": True}), b"{}").pieces
    assert wrong.problem == "there is no JSON array in it"
    lines = stream(tmp_path, {"type": "string"}, explode={"lines": "\n"})
    assert [one.fields["value"] for one in read(lines, b"a\n\nb\n").pieces] == [b"a", b"", b"b"]
    assert len(read(lines, b"\n" * 50).pieces) == MOST_PIECES
    assert read(lines, b"\n" * 50).more == 50 - MOST_PIECES


def test_what_only_runs_read_is_said_to_be_so(tmp_path: Path) -> None:
    function = {"type": "function", "function": "shop:rows", "fields": {"id": "integer"}}
    found = read(stream(tmp_path, function), b"x")
    assert (found.said, found.pieces) == ("The function shop:rows makes the rows. Only runs call it.", ())
    large = read(stream(tmp_path, {"type": "string"}), b"x" * (MOST_BYTES + 1))
    assert (large.said, large.pieces) == ("A value of more than 1 000 000 bytes is read by runs alone.", ())
    deep = read(
        stream(tmp_path, {"type": "json", "fields": {"id": "integer"}}),
        b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    )
    assert deep.pieces[0].problem == TOO_DEEP
    transform = {
        "sql": "SELECT _topic, _incarnation, _partition, _offset, _index, id FROM messages",
        "fields": {"id": "integer"},
    }
    then = read(stream(tmp_path, {"type": "json", "fields": {"id": "integer"}}, transform=transform), b"{}")
    assert then.said == "By the scheme json, as texts. The transform then makes other rows of it."


def test_what_was_decoded_is_masked_like_the_message(tmp_path: Path) -> None:
    found = read(stream(tmp_path, {"type": "key_value"}), "\u202eZoë".encode())
    masked, shown = (decoded_shown(found, payload=payload)["pieces"][0]["fields"] for payload in (False, True))
    assert (masked["value"], masked["key"]) == ({"bytes": 7}, None)
    assert shown["value"]["text"] == "\\u202eZoë"
