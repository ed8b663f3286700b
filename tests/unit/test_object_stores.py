"""Buckets: what a connection of type `aws` says to Hadoop, Arrow and delta-rs, and which key opens a folder."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.support.stream_text import MINIMAL
from tidemark.clients import object_stores
from tidemark.clients.connections import Connection, Connections
from tidemark.clients.lake import lake_folder
from tidemark.clients.object_stores import Access, access_of, access_to
from tidemark.clients.secrets import is_secret
from tidemark.errors import ConnectionMissing, WrongUse
from tidemark.runs.live.open_stream import open_stream
from tidemark.sinks.parquet import folders

SECRET, TOKEN = "canary-secret", "canary-token"
PATH = "s3a://bucket/lake"


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_stores, "_noted", {})


def lake(path: str = PATH, *, login: str | None = "id", password: str | None = SECRET, **extra: Any) -> Connection:
    return Connection("lakes", login=login, password=password, extra={"path": path, **extra}, kind="aws")


def known(**found: Connection) -> Connections:
    def connection(name: str) -> Connection:
        if name not in found:
            raise ConnectionMissing(name)
        return found[name]

    return connection


@pytest.mark.covers("O13")
@pytest.mark.parametrize(
    ("connection", "wanted"),
    [
        (lake(region_name="eu-west-1"), Access("bucket", "eu-west-1", None, "id", SECRET)),
        (lake(login=None, password=None, region_name="eu-west-1"), Access("bucket", "eu-west-1")),
        (
            lake(region_name="eu-west-1", aws_session_token=TOKEN),
            Access("bucket", "eu-west-1", None, "id", SECRET, TOKEN),
        ),
        (lake(endpoint_url="https://minio:9000/"), Access("bucket", "us-east-1", "https://minio:9000", "id", SECRET)),
        (
            lake(endpoint_url="http://127.0.0.1:9000"),
            Access("bucket", "us-east-1", "http://127.0.0.1:9000", "id", SECRET),
        ),
        (
            lake(endpoint_url="http://minio:9000", region_name="x", allow_insecure=True),
            Access("bucket", "x", "http://minio:9000", "id", SECRET),
        ),
    ],
)
def test_what_a_connection_says(connection: Connection, wanted: Access) -> None:
    assert access_of(connection) == wanted
    assert lake_folder(connection) == PATH
    assert "canary" not in f"{wanted}{connection}"


def test_a_lake_of_another_type_says_nothing_of_keys() -> None:
    assert access_of(Connection("lakes", extra={"path": PATH}, kind="fs")) is None
    with pytest.raises(WrongUse, match=r"connection lakes sets login, password: Tidemark does not use that"):
        lake_folder(Connection("lakes", login="id", password=SECRET, extra={"path": PATH}, kind="fs"))


@pytest.mark.covers("O13")
@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (lake("/data/lake", region_name="x"), "is in no bucket: expected s3a://BUCKET/FOLDER"),
        (lake("s3://bucket/lake", region_name="x"), "is in no bucket: expected s3a://BUCKET/FOLDER"),
        (lake(), "has no region_name among its extras"),
        (lake(password=None, region_name="x"), "has only one of login and password"),
        (lake(login=None, region_name="x"), "has only one of login and password"),
        (
            lake(login=None, password=None, region_name="x", aws_session_token=TOKEN),
            "aws_session_token among its extras goes with login and password",
        ),
        (lake(endpoint_url="minio:9000"), "expected an endpoint_url among its extras that begins with https"),
        (lake(endpoint_url="https://minio/here"), "and names a host and no path"),
        (lake(endpoint_url=f"https://id:{SECRET}@minio"), "stand in its fields, not in endpoint_url"),
        (lake(endpoint_url="http://minio:9000"), "asks an object store by http://.*allow_insecure"),
        (
            lake(endpoint_url="http://127.0.0.1:9000", aws_session_token=TOKEN),
            "asks an object store by http://.*allow_insecure",
        ),
        (lake(role_arn="arn:x"), "sets role_arn among its extras.* or neither: then the machine's own role is used"),
        (lake(config_kwargs={}), "sets config_kwargs among its extras"),
    ],
)
def test_what_is_refused(connection: Connection, said: str) -> None:
    with pytest.raises(WrongUse, match=said) as refused:
        access_of(connection)
    assert "canary" not in str(refused.value)


@pytest.mark.covers("O13")
def test_settings_for_each_library() -> None:
    access = access_of(lake(endpoint_url="http://127.0.0.1:9000", aws_session_token=TOKEN, allow_insecure=True))
    assert access is not None
    hadoop = access.for_hadoop()
    assert {name.removeprefix("fs.s3a.bucket.bucket."): value for name, value in hadoop.items()} == {
        "endpoint": "http://127.0.0.1:9000",
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        "access.key": "id",
        "secret.key": SECRET,
        "session.token": TOKEN,
    }
    # Whatever shows settings knows by the names which of them to hide.
    assert all(is_secret(name) for name, value in hadoop.items() if "canary" in value)
    assert access.for_arrow()["session_token"] == access.for_delta()["AWS_SESSION_TOKEN"] == TOKEN
    assert access.for_delta()["AWS_ALLOW_HTTP"] == "true"

    role = access_of(lake(login=None, password=None, region_name="eu-west-1"))
    assert role is not None
    # Nothing says where a key is: each library looks for the machine's role.
    assert role.for_arrow() == {"region": "eu-west-1"}
    assert role.for_delta() == {"AWS_REGION": "eu-west-1", "AWS_CONDITIONAL_PUT": "etag"}
    assert role.for_hadoop() == {
        "fs.s3a.bucket.bucket.endpoint.region": "eu-west-1",
        "fs.s3a.bucket.bucket.connection.ssl.enabled": "true",
    }


@pytest.mark.covers("O13")
def test_the_key_of_the_nearest_lake_opens_a_folder() -> None:
    def at(path: str, login: str) -> Connection:
        return lake(path, login=login, region_name="x")

    object_stores.note("a", {"one": [], "gone": []}, known(one=at("s3a://b/lake", "a")))
    object_stores.note("b", {"one": []}, known(one=at("s3a://b/lake/inner", "b")))
    object_stores.note("c", {"one": []}, known(one=Connection("one", extra={"path": "/data"})))

    def key(folder: str) -> str | None:
        access = access_to(folder)
        return access and access.key

    assert key("s3a://b/lake/orders/lane=ingest") == key("s3a://b/lake") == "a"
    assert key("s3a://b/lake/inner/orders") == "b"
    # A lake that has moved within its bucket: the receipts name its old folder.
    assert key("s3a://b/old/orders") == key("s3a://b/lakes/orders") == "b"
    assert key("s3a://other/lake") is key("file:///data/orders") is key("hdfs://b/lake") is None
    object_stores.note("d", {"one": []}, known(one=at("s3a://b/lake", "d")))
    assert key("s3a://b/lake/orders") == "d"
    object_stores.note("a", {"one": []}, known(one=at("s3a://b/lake", "changed")))
    assert key("s3a://b/lake/orders") == "changed"


@pytest.mark.covers("O13")
def test_a_wrong_connection_of_one_stream_leaves_the_folders_of_others_alone() -> None:
    """It is said of what lies below its own path, and asked for again: somebody corrects it."""
    half = Connection("half", login="id", kind="aws", extra={"path": "s3a://b/half", "region_name": "x"})
    right = lake("s3a://b/lake", login="a", region_name="x")
    known_now = {"half": half}
    object_stores.note("wrong", {"half": ["orders"]}, lambda name: known_now[name])
    object_stores.note("right", {"lake": ["orders"]}, known(lake=right))
    object_stores.note("no path", {"none": ["orders"]}, known(none=Connection("none", kind="aws")))
    access = access_to("s3a://b/lake/orders")
    assert access is not None
    assert access.key == "a"
    with pytest.raises(WrongUse, match="connection half has only one of login and password"):
        access_to("s3a://b/half/orders")
    assert access_to("s3a://other/orders") is None
    known_now["half"] = lake("s3a://b/half", login="b", region_name="x")
    access = access_to("s3a://b/half/orders")
    assert access is not None
    assert access.key == "b"


@pytest.mark.covers("O13")
def test_connections_are_asked_for_once() -> None:
    """Those of a stream without a bucket too: in Airflow each question is a request."""
    asked: list[str] = []

    def connections(name: str) -> Connection:
        asked.append(name)
        return Connection(name, extra={"path": "/data"})

    object_stores.note("local", {"files": ["orders"]}, connections)
    for _ in range(3):
        assert access_to("s3a://nobodys/orders") is None
    assert asked == ["files"]


@pytest.mark.covers("O13")
def test_of_connections_with_one_path_each_stream_opens_its_folders_with_its_own() -> None:
    """Whichever was opened last: else it would depend on what a program has done before."""
    lakes = {name: lake("s3a://b/lake", login=name, region_name="x") for name in ("one", "two")}
    for order in (("one", "two"), ("two", "one")):
        object_stores._noted.clear()
        for name in order:
            object_stores.note(f"stream {name}", {name: [f"rows of {name}"]}, known(**lakes))
        for name in order:
            access = access_to(f"s3a://b/lake/rows of {name}/lane=ingest")
            assert access is not None
            assert access.key == name
        # A folder of neither, which an old receipt may name.
        with pytest.raises(
            WrongUse, match=r"lake/old/lane=1 is opened by the connections (one, two|two, one), whose keys"
        ):
            access_to("s3a://b/lake/old/lane=1")
    lakes["two"] = lakes["one"]
    object_stores.note("stream two", {"two": ["rows of two"]}, known(**lakes))
    assert access_to("s3a://b/lake/old/lane=1") == access_of(lakes["one"])


@pytest.mark.covers("O13")
def test_an_opened_stream_and_its_workers_have_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("KAFKA_DEFAULT", {"extra": {"bootstrap.servers": "h:1", "allow_insecure": True}}),
        ("HBASE_DEFAULT", {"host": "h", "port": 1}),
        ("LAKES", {"login": "id", "password": SECRET, "extra": {"path": PATH, "endpoint_url": "https://minio:9000"}}),
    ):
        monkeypatch.setenv(
            f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "aws" if name == "LAKES" else "x", **value})
        )
    sink = "type: parquet\n    files: lakes\n    folder: orders"
    file = tmp_path / "orders.yaml"
    text = MINIMAL.replace("type: hbase\n    table: orders", sink)
    letters = "dead_letters:\n  type: parquet\n  files: lakes\n  folder: dead"
    file.write_text(
        text.replace("dead_letters:\n  type: hbase\n  table: orders_dead", letters) + "ledger: {type: hbase}\n"
    )
    opened = open_stream(file)
    access = access_to(f"{PATH}/dead")
    assert access is not None
    assert opened.file_system_settings() == access.for_hadoop()
    assert opened.file_systems() == {"s3a://bucket"}
    assert folders.options(f"{PATH}/orders") == access.for_delta()
    # What the connection sets itself comes before.
    hadoop = {"fs.s3a.bucket.bucket.path.style.access": "false"}
    extra = {"path": PATH, "endpoint_url": "https://minio:9000", "hadoop": hadoop}
    other = {"conn_type": "aws", "login": "id", "password": SECRET, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKES", json.dumps(other))
    assert open_stream(file).file_system_settings() == {**access.for_hadoop(), **hadoop}
    sent = pickle.dumps(opened.dead_letter_table())
    object_stores._noted.clear()
    pickle.loads(sent)
    assert access_to(f"{PATH}/dead/lane=ingest") == access
