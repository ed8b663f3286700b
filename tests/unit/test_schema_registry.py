"""A schema registry: what it answers, and what is made of an answer that is none. And what a stream file says of Avro."""

from __future__ import annotations

import gzip
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml

from tests.support.avro_orders import written
from tests.support.registry import LOGIN, PASSWORD, Answers, Misbehaviour, drip, redirect, serving
from tests.support.servers import free_ports
from tidemark.clients.connections import Connection
from tidemark.clients.registry_answers import RefusedSchema
from tidemark.clients.schema_registry import SchemaRegistry, registry_endpoint
from tidemark.errors import InvalidStreamFile, TidemarkError, Unreachable, WrongUse
from tidemark.streams.loading import load

INSECURE = {"allow_insecure": True}
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


def test_a_schema_by_its_number() -> None:
    schemas: dict[int, Any] = {1: {"schema": ORDER}, 2: {"schema": "message A {}", "schemaType": "PROTOBUF"}}
    with serving(schemas, with_login=True) as served:
        registry = SchemaRegistry(
            registry_endpoint(Connection("registry", f"{served.url}/", None, LOGIN, PASSWORD, INSECURE))
        )
        assert registry.schema(1) == ORDER
        assert registry.schema(2) is None, "something else than Avro"
        assert registry.schema(3) is None
        assert served.asked == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/3"]
        nobody = SchemaRegistry(registry_endpoint(Connection("registry", "http://127.0.0.1", served.port)))
        with pytest.raises(WrongUse, match=r"answers 401 .* the login and the password"):
            nobody.schema(1)


def test_a_schema_is_registered_once() -> None:
    with serving({}) as served:
        registry = SchemaRegistry(registry_endpoint(Connection("registry", "http://127.0.0.1", served.port)))
        assert registry.registered("a/b-value", ORDER) is None
        number = registry.register("a/b-value", ORDER)
        assert registry.register("a/b-value", ORDER) == registry.registered("a/b-value", ORDER) == number
        served.refuses = "Schema being registered is\nincompatible with an earlier schema"
        with pytest.raises(
            WrongUse, match=r"refuses the schema for http.*/a%2Fb-value/versions: Schema being registered is inc"
        ):
            registry.register("a/b-value", ORDER.replace("long", "int"))
    with pytest.raises(Unreachable, match="does not answer"):
        registry.register("a", ORDER)


def test_that_a_schema_is_not_registered_is_the_word_of_a_registry_alone() -> None:
    """A 404 of another server, or of a proxy, would make every value of a topic look changed to an audit."""
    with serving({}) as served:
        url = f"{served.url}/of/another/program"
        registry = SchemaRegistry(registry_endpoint(Connection("registry", url)))
        with pytest.raises(WrongUse, match=r"answers 404 .* look at the address"):
            registry.registered("a-value", ORDER)


@pytest.mark.parametrize("pages", [1_000, 500, 70, 0])
def test_the_numbers_of_all_schemas(pages: int) -> None:
    """However many a registry gives at a time, and where it has no pages."""
    with serving({number: {"schema": ORDER} for number in range(1, 1_200)}) as served:
        served.pages = pages
        registry = SchemaRegistry(registry_endpoint(Connection("registry", served.url)))
        assert registry.numbers() == set(range(1, 1_200))
        assert all("deleted=true" in path for path in served.asked)
        assert registry.schemas(range(1_190, 1_210)) == {
            number: ORDER if number < 1_200 else None for number in range(1_190, 1_210)
        }


def test_a_registry_without_a_list() -> None:
    with serving({}) as served:
        served.pages = None
        assert SchemaRegistry(registry_endpoint(Connection("registry", served.url))).numbers() is None
    with pytest.raises(Unreachable):
        SchemaRegistry(registry_endpoint(Connection("registry", served.url))).numbers()


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (404, WrongUse, "answers 404 .* look at the address"),
        (500, Unreachable, "answers 500"),
        (503, Unreachable, "answers 503"),
        (429, Unreachable, "answers 429"),
        ({"id": 1}, WrongUse, "does not answer as a schema registry does"),
    ],
)
def test_an_answer_that_is_none(answer: Any, error: type[TidemarkError], said: str) -> None:
    """A registry that is away says nothing of the schema; only its own word for `unknown` does."""
    with serving({1: answer}) as served, pytest.raises(error, match=said):
        SchemaRegistry(registry_endpoint(Connection("registry", served.url))).schema(1)


def refers(*places: tuple[str, int]) -> dict[str, Any]:
    return {"references": [{"name": subject, "subject": subject, "version": version} for subject, version in places]}


def of_type(name: str, **fields: Any) -> str:
    parts = [{"name": one, "type": kind} for one, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": parts})


@pytest.mark.covers("E49")
def test_a_schema_has_the_types_of_those_that_it_refers_to() -> None:
    """Each is asked for once, also where they refer to each other; and in Avro's own library they are one schema."""
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    plain = {"type": "fixed", "name": "Plain", "size": 2}
    order = of_type(
        "Order", kind="Kind", to=["null", "Address"], back="shop.Address", all={"type": "array", "items": "Plain"}
    )
    versions = {
        "an%20address%2F1/3": {
            "schema": of_type("Address", kind=kind, next=["null", "Address"]),
            **refers(("plain", 1)),
        },
        "plain/1": {"schema": json.dumps(plain), **refers(("an address/1", 3))},
    }
    with serving({1: {"schema": order, **refers(("an address/1", 3), ("plain", 1))}}) as served:
        served.versions = versions
        found = SchemaRegistry(registry_endpoint(Connection("registry", served.url))).schema(1)
        assert len(served.asked) == 3
    assert isinstance(found, str)
    address = {"kind": "B", "next": {"kind": "A", "next": None}}
    row = {"kind": "A", "to": address, "back": address, "all": [b"xy", b"zz"]}
    assert fastavro.schemaless_reader(io.BytesIO(written(json.loads(found), row)), json.loads(found), None) == row
    # Plain is of no namespace, and stays so within one.
    assert [one["namespace"] for one in everything(json.loads(found)) if one.get("name") == "Plain"] == [""]


def everything(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, dict):
        yield found
    for one in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        yield from everything(one)


@pytest.mark.covers("E49")
def test_references_that_cannot_be_resolved_concern_their_own_messages_alone() -> None:
    many = {f"s{number}/1": {"schema": ORDER, **refers((f"s{number + 1}", 1))} for number in range(200)}
    deep = '{"type":"array","items":' * 150 + '"Deep"' + "}" * 150
    for number in range(3):
        of = json.loads(deep.replace("Deep", f"Deep{number + 1}"))
        text = json.dumps({"type": "record", "name": f"Deep{number}", "fields": [{"name": "a", "type": of}]})
        many[f"deep{number}/1"] = {"schema": text, **(refers((f"deep{number + 1}", 1)) if number < 2 else {})}
    answers: dict[int, Any] = {
        1: {"schema": ORDER, **refers(("gone", 1))},
        2: {"schema": ORDER, **refers(("kinds", 1))},
        3: {"schema": ORDER, **refers(("s0", 1))},
        4: {"schema": ORDER, **refers(("huge", 1), ("huge", 2))},
        5: {"schema": ORDER, "references": ["a", {"subject": "s"}]},
        6: {"schema": ORDER, "references": {"subject": 7, "version": True}},
        7: {"schema": '{"type":"record","name":"D","fields":[{"name":"d","type":"Deep0"}]}', **refers(("deep0", 1))},
        8: {"schema": ORDER, **refers(("text", 1))},
        9: {"schema": ORDER, "references": []},
        10: {"schema": "message A {}", "schemaType": "PROTOBUF", **refers(("gone", 1))},
    }
    with serving(answers) as served:
        served.versions = {
            **many,
            "kinds/1": {"schema": "message A {}", "schemaType": "PROTOBUF"},
            "huge/1": {"schema": " " * 3_000_000},
            "huge/2": {"schema": " " * 3_000_000},
            "text/1": {"schema": "{"},
        }
        found = SchemaRegistry(registry_endpoint(Connection("registry", served.url))).schemas(answers)
    named = "it refers to a schema without saying its subject and its version"
    assert found == {
        1: RefusedSchema("it refers to version 1 of 'gone', which the registry does not have"),
        2: RefusedSchema("it refers to version 1 of 'kinds', which is not an Avro schema"),
        3: RefusedSchema("it refers to more than 100 schemas"),
        4: RefusedSchema("with the schemas that it refers to, it has more than 4194304 bytes"),
        5: RefusedSchema(named),
        6: RefusedSchema(named),
        7: RefusedSchema("of this schema and those that it refers to, one is nested deeper than 200 levels"),
        8: RefusedSchema("of this schema and those that it refers to, one is not JSON"),
        9: ORDER,
        10: None,
    }


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
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n{}", WrongUse),
        (b'HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\n{"error_code": ', Unreachable),
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


@pytest.mark.covers("Q10")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_server_is_not_followed(status: int) -> None:
    """Nor does it learn the login and the password."""
    with serving({1: {"schema": ORDER}}) as other:
        for to in (f"{other.url}/schemas/ids/1", f"http://localhost:{other.port}/schemas/ids/1"):
            with serving({1: redirect(to, status)}, with_login=True) as served:
                endpoint = registry_endpoint(Connection("registry", served.url, None, LOGIN, PASSWORD, INSECURE))
                with pytest.raises(WrongUse, match=r"redirects .* to http://\S+, another server") as refused:
                    SchemaRegistry(endpoint).schema(1)
                assert str(other.port) in str(refused.value)
                assert PASSWORD not in str(refused.value)
        assert other.asked == []
        assert other.credentials == []


def test_a_redirect_on_the_same_server_is_followed() -> None:
    answers: Answers = {1: redirect("/schemas/ids/2"), 2: {"schema": ORDER}, 3: redirect("/schemas/ids/3")}
    with serving(answers, with_login=True) as served:
        registry = SchemaRegistry(
            registry_endpoint(Connection("registry", served.url, None, LOGIN, PASSWORD, INSECURE))
        )
        assert registry.schema(1) == ORDER
        with pytest.raises(WrongUse, match=r"redirects .* more than 5 times"):
            registry.schema(3)
        assert served.asked.count("/schemas/ids/3") == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        drip(b"HTTP/1.1 200 OK\r\nA: ", b"b", 0.2, 100),
        drip(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.2, 100),
        drip(b"", b"", 20, 1),
    ],
    ids=["headers", "body", "nothing"],
)
def test_an_answer_that_takes_too_long(answer: Misbehaviour) -> None:
    """One deadline for the whole of it: a byte now and then does not put it off."""
    with serving({1: answer}) as served:
        registry = SchemaRegistry(registry_endpoint(Connection("registry", served.url)), timeout_seconds=1)
        began = time.monotonic()
        with pytest.raises(Unreachable, match=f"does not answer {served.url}/schemas/ids/1 within 1 s"):
            registry.schema(1)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_that_is_too_large(packed: bool) -> None:
    """Also where some kilobytes would become it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" if packed else b"HTTP/1.1 200 OK\r\n\r\n"
    piece = gzip.compress(bytes(2**26)) if packed else bytes(2**20)
    with serving({1: drip(head, piece, 0, 1_000)}) as served:
        registry = SchemaRegistry(registry_endpoint(Connection("registry", served.url)), most_bytes=2**22)
        assert registry.schema(1) == RefusedSchema("the registry answers with more than 4194304 bytes")


@pytest.mark.parametrize(
    ("host", "login", "extra", "said"),
    [
        ("http://registry", None, {}, "change the answers"),
        ("http://registry", "me", {}, "its password"),
        ("http://127.0.0.1", "me", {}, "its password"),
        (
            "http://registry",
            "me",
            {"allow_insecure": "true"},
            "allow_insecure among its extras is neither true nor false",
        ),
        ("https://registry", "me", {"verify": False}, "sets verify among its extras"),
    ],
)
def test_what_could_be_read_on_the_way_is_refused(host: str, login: str | None, extra: Any, said: str) -> None:
    with pytest.raises(WrongUse, match=said) as refused:
        registry_endpoint(Connection("registry", host, 8081, login, login and "canary", extra))
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "login", "extra"),
    [
        ("https://registry", "me", {}),
        ("https://registry", None, {}),
        ("http://registry", "me", INSECURE),
        ("http://localhost", None, {}),
        ("http://[::1]", None, {}),
    ],
)
def test_what_is_safe_or_allowed_is_taken(host: str, login: str | None, extra: Any) -> None:
    found = registry_endpoint(Connection("registry", host, 8081, login, login and "canary", extra))
    assert found.url == f"{host}:8081"
    assert "canary" not in repr(found)


@pytest.mark.parametrize("port", [None, 8081])
@pytest.mark.parametrize(
    "host",
    [
        "registry:8081",
        "registry",
        "ftp://registry",
        "file:///etc/passwd",
        "http://me:secret@registry",
        "http://[::1",
        "http://]x",
    ],
)
def test_a_connection_that_is_no_address_of_a_registry(host: str, port: int | None) -> None:
    with pytest.raises(WrongUse, match=r"connection registry: .*expected|stand in its fields") as refused:
        registry_endpoint(Connection("registry", host, port))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("host", ["https://registry:8081", "https://[::1]:8081"])
def test_one_port_stands_in_one_place(host: str) -> None:
    with pytest.raises(WrongUse, match="connection registry: the host has a port, and so has the field port"):
        registry_endpoint(Connection("registry", host, 8081))
    assert registry_endpoint(Connection("registry", host)).url == host


def stream(tmp_path: Path, **scheme: Any) -> Path:
    path = tmp_path / "orders.yaml"
    (tmp_path / "order.avsc").write_text(ORDER)
    (tmp_path / "text.avsc").write_text('"string"')
    contents = {
        "stream": "orders",
        "source": {"topics": ["orders"]},
        "scheme": {"type": "avro", "fields": {"id": "integer"}, **scheme},
        "sinks": [{"type": "hbase", "table": "orders"}],
        "dead_letters": {"type": "hbase", "table": "orders_dead"},
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
        ({"schema_file": "../order.avsc"}, "schema_file: expected "),
        ({"schema_file": "orders.yaml"}, "the schema is not JSON"),
        ({"schema_file": "text.avsc"}, "the schema is not one of a record"),
        ({"schema_file": "order.avsc", "fields": {"name": "string"}}, "order.avsc has no field name; it has id"),
        ({"registry": "https://registry"}, "registry: expected "),
    ],
)
def test_a_scheme_that_names_no_schema_is_refused(tmp_path: Path, scheme: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said):
        load(stream(tmp_path, **scheme))
