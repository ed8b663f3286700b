"""Avro and Protobuf whose schemas a real registry has: streams from nothing, and schemas that refer to others."""

from __future__ import annotations

import io
import json
import os
import secrets
import struct
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from services import control, environment
from services.site import Site
from tests.support.command_line import asked, tidemark
from tests.support.live_streams import Kafka
from tests.support.protobuf_orders import Schema, framed

ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "shop",
    "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": ["null", "string"], "default": None}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "to", "type": "shop.Address"},
    ],
}
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}


class Registry:
    """Registers schemas as a producer does."""

    def __init__(self, url: str) -> None:
        self.url = url

    def register(self, subject: str, schema: dict[str, Any], *references: tuple[str, str]) -> int:
        """The schema's number. `references`: a name of a type, and the subject that has it as version 1."""
        return self._register(subject, {"schema": json.dumps(schema)}, references)

    def register_protobuf(self, subject: str, text: str, *references: tuple[str, str]) -> int:
        """The same, of the text of a .proto file. `references`: the name of an import, and the subject that has it."""
        return self._register(subject, {"schema": text, "schemaType": "PROTOBUF"}, references)

    def _register(self, subject: str, schema: dict[str, str], references: tuple[tuple[str, str], ...]) -> int:
        referred = [{"name": name, "subject": where, "version": 1} for name, where in references]
        body = {**schema, "references": referred}
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.load(answer)["id"])


@pytest.fixture
def registry(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    """Beside it there is Kafka alone, as for whoever begins."""
    control.up(site, ["registry"])
    for name in [
        name for name in os.environ if name.startswith("AIRFLOW_CONN_") and name != "AIRFLOW_CONN_KAFKA_DEFAULT"
    ]:
        monkeypatch.delenv(name)
    for name, value in {**environment.registry(site), **environment.spark(site)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path / "home" / "streams"))
    return Registry(environment.registry_url(site))


def written(schema: dict[str, Any], number: int, row: dict[str, Any]) -> bytes:
    """A record in the registry's wire format."""
    known: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named_schemas=known)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas=known), row)
    return struct.pack(">bI", 0, number) + out.getvalue()


def drafted_and_read(topic: str) -> list[dict[str, Any]]:
    """The fields of the rows of a stream that `init` drafts for the topic: of 102 messages, two are no message of it."""
    _, said = tidemark("init", "orders", "--topic", topic, "--registry", "schema_registry")
    assert "100 of them would be rows, 2 dead letters" in said
    tidemark("streams", "check")
    (window,) = asked("run", "orders")["windows"]
    assert (window["read"], window["stored"], window["dead_letters"]) == (102, 100, 2)
    return sorted((one["fields"] for one in asked("results", "orders", "--limit", "1000")), key=lambda f: int(f["id"]))


@pytest.mark.full
@pytest.mark.covers("S7", "N71")
def test_a_stream_from_nothing(registry: Registry, kafka: Kafka) -> None:
    topic = f"orders-{secrets.token_hex(3)}"
    registry.register(f"{topic}-address", ADDRESS)
    numbers = [
        registry.register(f"{topic}-value", schema, ("shop.Address", f"{topic}-address")) for schema in (ORDER, LATER)
    ]
    kafka.create(topic, 1)
    rows = [
        {"id": number, "amount": Decimal(number) / 4, "to": {"city": f"c{number % 3}", "zip": None}, "note": "later"}
        for number in range(100)
    ]
    values = [written((ORDER, LATER)[at % 2], numbers[at % 2], row) for at, row in enumerate(rows)]
    unknown = written(ORDER, 999_999, rows[0])
    kafka.send((topic, 0, None, value) for value in [*values, unknown, b"{}"])

    found = drafted_and_read(topic)
    assert [Decimal(str(one["amount"])) for one in found] == [row["amount"] for row in rows]
    assert [json.loads(one["to"])["city"] for one in found] == [row["to"]["city"] for row in rows]
    said, _ = tidemark("audit", "orders")
    assert "missing 0, different 0" in said


LINE = """syntax = "proto3"; package shop; message Line { string sku = 1; }"""
MESSAGE = """syntax = "proto3"; package shop; import "line.proto";
message Refund { int64 id = 1; }
message Order { int64 id = 1; uint64 amount = 2; repeated Line lines = 3; }"""


@pytest.mark.full
@pytest.mark.covers("N112")
def test_a_stream_of_protobuf_from_nothing(registry: Registry, kafka: Kafka) -> None:
    topic = f"orders-{secrets.token_hex(3)}"
    registry.register_protobuf(f"{topic}-line", LINE)
    number = registry.register_protobuf(f"{topic}-value", MESSAGE, ("line.proto", f"{topic}-line"))
    schema = Schema(MESSAGE, line=LINE)
    kafka.create(topic, 1)
    orders = [
        schema.written(id=str(one), amount=str(2**64 - 1 - one), lines=[{"sku": f"s{one}"}]) for one in range(1, 101)
    ]
    values = [framed(number, one, 1) for one in orders]
    others = [framed(number, schema.written("shop.Refund", id="1"), 0), b"{}"]
    kafka.send((topic, 0, None, value) for value in [*values, *others])

    found = drafted_and_read(topic)
    assert [int(one["amount"]) for one in found] == [2**64 - 1 - one for one in range(1, 101)]
    assert [json.loads(one["lines"]) for one in found] == [[{"sku": f"s{one}"}] for one in range(1, 101)]
    said, _ = tidemark("audit", "orders")
    assert "missing 0, different 0" in said
