"""What a connection sets and nobody uses is refused by its name: somebody believes in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from tidemark.clients.connections import Connection, connection_from_airflow, variable
from tidemark.clients.environment import from_environment
from tidemark.clients.hbase.endpoint import hbase2_endpoint, hbase_endpoint
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.lake import lake_folder
from tidemark.clients.schema_registry import registry_endpoint
from tidemark.clients.sql import Database, check, database
from tidemark.clients.zookeeper import Certificates, zookeeper_endpoint
from tidemark.errors import WrongUse

pytestmark = pytest.mark.covers("Q1")

FIELDS: dict[str, Any] = {"host": "h", "port": 1, "schema": "s", "login": "somebody", "password": "canary"}

# Of each kind: what reads it, and a connection with all that it may have.
KINDS: dict[str, tuple[Callable[[Connection], object], Connection]] = {
    "kafka": (kafka_endpoint, Connection("c", extra={"bootstrap.servers": "h:1", "allow_insecure": True})),
    "hbase": (hbase_endpoint, Connection("c", "h", 1, extra={"thrift2": "h:2"})),
    "hbase, Thrift 2": (hbase2_endpoint, Connection("c", "h", 1, extra={"thrift2": "h:2"})),
    "zookeeper": (zookeeper_endpoint, Connection("c", "h", 1, "somebody", "canary", {"allow_insecure": True})),
    "registry": (registry_endpoint, Connection("c", "https://h", 1, "somebody", "canary")),
    "files": (lake_folder, Connection("c", extra={"path": "/lake"})),
    "postgres": (
        database,
        Connection("c", "h", 1, "somebody", "canary", {"allow_insecure": True}, "s", "postgres"),
    ),
    "mysql": (database, Connection("c", "h", 1, "somebody", "canary", {"allow_insecure": True}, "s", "mysql")),
    "sqlite": (database, Connection("c", "/ledger.db", kind="sqlite")),
}
# What Airflow's own providers, and others, know of such connections.
EXTRAS = ("use_ssl", "verify", "username", "ssl.ca.location", "transport", "timeout", "path", "thrift2", "headers")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_used_or_refused(kind: str, field: str) -> None:
    read, whole = KINDS[kind]
    read(whole)
    if getattr(whole, field) is None:
        with pytest.raises(WrongUse, match=f"^connection c sets {field}: .* ignores nothing") as caught:
            read(replace(whole, **{field: FIELDS[field]}))
        assert "canary" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(name=st.sampled_from(EXTRAS) | st.from_regex("[a-z][a-z._]{0,20}", fullmatch=True), value=st.just("canary"))
def test_an_extra_is_used_or_refused(kind: str, name: str, value: object) -> None:
    """Property: an extra either changes what the connection is, or its check, or is named in the refusal."""
    read, whole = KINDS[kind]
    changed = replace(whole, extra={**whole.extra, name: value})
    said = ""
    try:
        assert read(changed) != read(whole) or name == "thrift2"
    except WrongUse as problem:
        said = str(problem)
    assert not said or name in said
    assert "canary" not in said or name == "path"


def test_hbase_over_tls_is_refused_with_what_to_do() -> None:
    with pytest.raises(WrongUse, match=r"sets use_ssl among its extras: .* stunnel"):
        hbase_endpoint(Connection("c", "h", 1, extra={"use_ssl": True}))
    assert hbase_endpoint(Connection("c", "h", 1, extra={"use_ssl": False})).port == 1


def test_zookeeper_with_tls(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("ca", "certfile", "keyfile")}
    for path in files.values():
        Path(path).touch()
    extra = {"use_ssl": True, "verify_certs": True, "check_hostname": True, **files, "keyfile_password": "canary"}
    endpoint = zookeeper_endpoint(Connection("c", "h", 2281, "me", "pw", extra))
    assert endpoint.tls == Certificates(**files, keyfile_password="canary")
    assert "canary" not in repr(endpoint)
    assert (
        zookeeper_endpoint(Connection("c", "localhost", 1, "me", "pw", {"use_ssl": False, "allow_insecure": True})).tls
        is None
    )


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (
            {"use_ssl": True, "verify_certs": False},
            "verify_certs .* is false, and any server that answers would be trusted",
        ),
        ({"use_ssl": True, "check_hostname": False}, "check_hostname .* is false"),
        ({"use_ssl": "yes"}, "use_ssl among its extras is neither true nor false"),
        ({"ca": "/x"}, 'sets ca without "use_ssl": true'),
        ({"verify_certs": True}, 'sets verify_certs without "use_ssl": true'),
        ({"use_ssl": True, "certfile": "/x"}, "certfile and keyfile among its extras go together"),
        ({"use_ssl": True, "keyfile_password": "x"}, "keyfile_password among its extras goes with keyfile"),
        ({"use_ssl": True, "ca": "/no/such/file"}, "there is no file /no/such/file, the ca among its extras"),
        ({"use_ssl": True, "ca": 1}, "ca among its extras is not a text"),
    ],
)
def test_what_of_zookeepers_tls_would_not_be_safe(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        zookeeper_endpoint(Connection("c", "h", 1, "me", "pw", extra))


def test_half_a_login_and_two_ports_are_refused() -> None:
    with pytest.raises(WrongUse, match="only one of login and password"):
        zookeeper_endpoint(Connection("c", "h", 1, "me", None, {"allow_insecure": True}))
    with pytest.raises(WrongUse, match="has ports in its host and another port besides"):
        zookeeper_endpoint(Connection("c", "h:1", 2, "me", "pw"))


def test_nothing_of_a_variable_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """As JSON and as a URI; and an exported connection is read as it was."""
    given = Connection("c", "h", 1, "me", "pw", {"a": "b"}, "s", "kafka")
    monkeypatch.setenv(variable("c"), given.to_json())
    assert from_environment("c") == given
    monkeypatch.setenv(variable("c"), "kafka://me:pw@h:1/s?a=b")
    assert from_environment("c") == given
    monkeypatch.setenv(variable("c"), json.dumps({"conn_type": "kafka", "hots": "h"}))
    with pytest.raises(WrongUse, match="AIRFLOW_CONN_C sets hots, which no connection has"):
        from_environment("c")
    monkeypatch.setenv(variable("c"), json.dumps({"conn_type": "kafka", "extra": "[]"}))
    with pytest.raises(WrongUse, match="neither JSON nor a URI"):
        from_environment("c")


@dataclass
class Given:
    """A connection as Airflow gives it."""

    extra: str | None
    host: str | None = "h"
    port: int | None = 1
    schema: str | None = "s"
    login: str | None = "me"
    password: str | None = "pw"
    conn_type: str | None = "generic"

    @property
    def extra_dejson(self) -> Any:
        try:
            return json.loads(self.extra) if self.extra else {}
        except ValueError:
            return {}


def test_extras_that_airflow_cannot_read_are_not_none_at_all() -> None:
    assert connection_from_airflow("c", Given('{"a": 1}')) == Connection(
        "c", "h", 1, "me", "pw", {"a": 1}, "s", "generic"
    )
    assert connection_from_airflow("c", Given(None)).extra == connection_from_airflow("c", Given("{}")).extra == {}
    for text in ('{"use_ssl": true', "[]", '"use_ssl"'):
        with pytest.raises(WrongUse, match="connection c: its extras are not a JSON object"):
            connection_from_airflow("c", Given(text))


SERVERS_BEYOND = (
    "kafka:9092",
    "10.0.0.1:9092",
    "127.0.0.1:9092,kafka:9092",
    "[fe80::1]:9092",
    "localhost.example.com:9092",
)


@pytest.mark.covers("Q1")
@pytest.mark.parametrize("servers", SERVERS_BEYOND)
def test_messages_leave_this_machine_in_the_clear_only_where_the_connection_says_so(servers: str) -> None:
    with pytest.raises(
        WrongUse, match=r"everybody on the way could read and change the messages: say SSL .*allow_insecur"
    ):
        kafka_endpoint(Connection("c", extra={"bootstrap.servers": servers}))
    allowed = {"bootstrap.servers": servers, "allow_insecure": True}
    assert kafka_endpoint(Connection("c", extra=allowed)).protocol == "PLAINTEXT"
    assert kafka_endpoint(Connection("c", extra={"bootstrap.servers": servers, "security.protocol": "SSL"})).tls


@pytest.mark.parametrize("servers", ["127.0.0.1:9092", "localhost:9092,127.1.2.3:1", "[::1]:9092"])
def test_on_this_machine_nobody_is_on_the_way(servers: str) -> None:
    assert kafka_endpoint(Connection("c", extra={"bootstrap.servers": servers})).protocol == "PLAINTEXT"


@pytest.mark.covers("Q1")
@pytest.mark.parametrize("host", ["zk1:2181,zk2:2181", "127.0.0.1:2181"])
def test_zookeepers_password_is_sent_in_the_clear_only_where_the_connection_says_so(host: str) -> None:
    """Digest sends it as it is, to a proxy on this machine too."""
    with pytest.raises(
        WrongUse, match=r"its password goes to ZooKeeper without TLS.*\"use_ssl\": true .*allow_insecure"
    ):
        zookeeper_endpoint(Connection("c", host, None, "me", "canary"))
    assert zookeeper_endpoint(Connection("c", host, None, "me", "canary", {"allow_insecure": True})).tls is None
    assert zookeeper_endpoint(Connection("c", host, None, "me", "canary", {"use_ssl": True})).tls


@pytest.mark.covers("Q4")
def test_a_secret_is_masked_wherever_it_stands_among_the_extras() -> None:
    hadoop = {
        "fs.azure.account.key.ours.dfs.core.windows.net": "canary-azure",
        "fs.s3a.secret.key": "canary-s3",
        "fs.azure.sas.container.ours": "canary-sas",
        "fs.s3a.endpoint": "shown",
    }
    extra = {"path": "/lake", "hadoop": hadoop, "ssl.key.pem": "canary-pem", "sasl.password": "canary-sasl", "n": 5}
    secrets = Connection("c", password="canary", extra=extra).secrets()
    assert sorted(secrets) == ["canary", "canary-azure", "canary-pem", "canary-s3", "canary-sas", "canary-sasl"]


_MYSQL = Connection("c", "db", None, "me", "canary", {"ssl_mode": "VERIFY_IDENTITY"}, "orders", "mysql")


def test_mysql_with_tls(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("ssl_ca", "ssl_cert", "ssl_key")}
    for path in files.values():
        Path(path).touch()
    found = database(replace(_MYSQL, extra={**_MYSQL.extra, **files}))
    assert (found.kind, found.port, dict(found.tls)) == ("mysql", 3306, {"ssl_mode": "VERIFY_IDENTITY", **files})
    assert "canary" not in repr(found)
    assert str(found) == "the database orders of MySQL at db:3306"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({}, "its line to MySQL is not encrypted, or nobody checks who answers"),
        ({"ssl_mode": "REQUIRED"}, 'nobody checks who answers.*say "ssl_mode": "VERIFY_IDENTITY"'),
        ({"ssl_mode": "DISABLED"}, "not encrypted"),
        (
            {"ssl_mode": "PREFERRED"},
            "ssl_mode among its extras is none of DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY",
        ),
        ({"ssl_ca": "/x", "allow_insecure": True}, "sets ssl_ca without an ssl_mode that uses TLS"),
        ({"ssl_mode": "VERIFY_CA", "ssl_ca": "/no/such/file"}, "there is no file /no/such/file, the ssl_ca among"),
        ({"ssl_mode": "VERIFY_CA", "ssl_key": "/x"}, "ssl_key among its extras goes with ssl_cert"),
        ({"ssl": {"ca": "/x"}}, "sets ssl among its extras: .* ignores nothing"),
    ],
)
def test_what_of_mysqls_tls_would_not_be_safe(extra: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        database(replace(_MYSQL, extra=extra))


@pytest.mark.covers("O10")
@pytest.mark.parametrize(
    "said",
    [
        psycopg.OperationalError("connection failed: FATAL: unsupported startup parameter: options"),
        psycopg.errors.DuplicatePreparedStatement('prepared statement "_pg3_0" already exists'),
        psycopg.errors.InvalidSqlStatementName('prepared statement "_pg3_0" does not exist'),
    ],
)
def test_a_pooler_before_a_database_is_named(said: psycopg.Error) -> None:
    """As PgBouncer says it, and PostgreSQL behind one that gives its connections to several clients."""
    where = Database("postgresql", "db", 6432, "tidemark", "tidemark")
    problem = DBAPIError.instance("SELECT 1", {}, said, psycopg.Error)
    with pytest.raises(WrongUse, match=r"A pooler such as PgBouncer stands in between.* name PostgreSQL itself"):
        check(where, problem, ["tidemark_ledger"])
