"""A schema registry: what it answers, and what is made of an answer that is none. And what a stream file says of Avro."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.registry import LOGIN, PASSWORD, serving
from tests.servers import free_ports
from tidemark.connections import Connection, registry_endpoint
from tidemark.errors import InvalidStreamFile, TidemarkError, Unreachable, WrongUse
from tidemark.registry import SchemaRegistry
from tidemark.streams.loading import load

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


def test_a_schema_by_its_number() -> None:
    schemas: dict[int, Any] = {1: {"schema": ORDER}, 2: {"schema": "message A {}", "schemaType": "PROTOBUF"}}
    with serving(schemas, with_login=True) as served:
        registry = SchemaRegistry(registry_endpoint(Connection("registry", f"{served.url}/", None, LOGIN, PASSWORD)))
        assert registry.schema(1) == ORDER
        assert registry.schema(2) is None, "something else than Avro"
        assert registry.schema(3) is None
        assert served.asked == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/3"]
        nobody = SchemaRegistry(registry_endpoint(Connection("registry", "http://127.0.0.1", served.port)))
        with pytest.raises(WrongUse, match=r"answers 401 .* the login and the password"):
            nobody.schema(1)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (404, WrongUse, "answers 404 .* look at the address"),
        (500, Unreachable, "answers 500"),
        (503, Unreachable, "answers 503"),
        (429, Unreachable, "answers 429"),
        ({"id": 1}, WrongUse, "does not answer as a schema registry does"),
        ({"schema": ORDER, "references": [{"name": "a"}]}, WrongUse, "schema 1 .* refers to other schemas"),
    ],
)
def test_an_answer_that_is_none(answer: Any, error: type[TidemarkError], said: str) -> None:
    """A registry that is away says nothing of the schema; only its own word for `unknown` does."""
    with serving({1: answer}) as served, pytest.raises(error, match=said):
        SchemaRegistry(registry_endpoint(Connection("registry", served.url))).schema(1)


def test_a_registry_that_is_away() -> None:
    endpoint = registry_endpoint(Connection("registry", "http://127.0.0.1", free_ports()))
    with pytest.raises(Unreachable, match=r"does not answer http://127\.0\.0\.1:"):
        SchemaRegistry(endpoint).schema(1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        # The server of another protocol; a connection that is closed before the answer, and in the middle of it.
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", Unreachable),
        (b"", Unreachable),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"schema": ', Unreachable),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{", Unreachable),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n{}", Unreachable),
        (b'HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\n{"error_code": ', WrongUse),
    ],
)
def test_an_answer_that_is_not_one_of_http(answer: bytes, error: type[TidemarkError]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def say() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        saying = threading.Thread(target=say)
        saying.start()
        endpoint = registry_endpoint(Connection("registry", "http://127.0.0.1", server.getsockname()[1]))
        with pytest.raises(error, match=r"http://127\.0\.0\.1:\d+/schemas/ids/1"):
            SchemaRegistry(endpoint).schema(1)
        saying.join()


@pytest.mark.parametrize("host", ["registry:8081", "ftp://registry", "file:///etc/passwd", "http://me:secret@registry"])
def test_a_connection_that_is_no_address_of_a_registry(host: str) -> None:
    with pytest.raises(WrongUse, match="connection registry") as refused:
        registry_endpoint(Connection("registry", host))
    assert "secret" not in str(refused.value)


def stream(tmp_path: Path, **scheme: Any) -> Path:
    path = tmp_path / "orders.yaml"
    (tmp_path / "order.avsc").write_text(ORDER)
    (tmp_path / "text.avsc").write_text('"string"')
    contents = {
        "stream": "orders",
        "source": {"topics": ["orders"]},
        "scheme": {"type": "avro", "fields": {"id": "integer"}, **scheme},
        "sinks": [{"type": "hbase", "table": "orders"}],
        "dead_letters": {"table": "orders_dead"},
    }
    path.write_text(yaml.safe_dump(contents))
    return path


def test_the_schema_file_is_part_of_the_digest(tmp_path: Path) -> None:
    path = stream(tmp_path, schema_file="order.avsc")
    before = load(path)
    assert before.stream.fields == {"id": "integer"}
    (tmp_path / "order.avsc").write_text(f"{ORDER}\n")
    assert load(path).digest != before.digest
    assert load(stream(tmp_path, registry="our_registry")).stream.connections() >= {"our_registry", "kafka_default"}


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ({}, "scheme.*: expected one of schema_file and registry"),
        ({"schema_file": "order.avsc", "registry": "our_registry"}, "expected one of schema_file and registry"),
        ({"schema_file": "nowhere.avsc"}, "nowhere.avsc cannot be read: No such file"),
        ({"schema_file": "../order.avsc"}, "schema_file: String should match pattern"),
        ({"schema_file": "orders.yaml"}, "the schema is not JSON"),
        ({"schema_file": "text.avsc"}, "the schema is not one of a record"),
        ({"schema_file": "order.avsc", "fields": {"name": "string"}}, "order.avsc has no field name; it has id"),
        ({"registry": "https://registry"}, "registry: String should match pattern"),
    ],
)
def test_a_scheme_that_names_no_schema_is_refused(tmp_path: Path, scheme: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said):
        load(stream(tmp_path, **scheme))
