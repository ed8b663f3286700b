"""Folders of files by their names: what Arrow and delta-rs are given, and what is said where none can be opened."""

from __future__ import annotations

import errno
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import fs

from tests.support.stream_text import MINIMAL
from tidemark.airflow import connections as airflow_connections
from tidemark.cli import programs
from tidemark.cli.submitting import process_together, submit
from tidemark.cli.terminal import Look
from tidemark.clients.connections import Connection
from tidemark.clients.environment import from_environment
from tidemark.clients.lake import file_system_settings, lake_folder
from tidemark.errors import NotAuthorized, Unreachable, WrongUse
from tidemark.runs.live.open_stream import open_stream
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.kinds import sink_to_compact
from tidemark.sinks.parquet import files as parquet_files
from tidemark.sinks.parquet import folders
from tidemark.submit.command import WINDOW_JOB

IN_HBASE = "ledger: {type: hbase}\n"


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        ("file:///data/lake/lane=ingest", "file:///data/lake/lane%3Dingest"),
        ("file:///data/my läke #1", "file:///data/my%20l%C3%A4ke%20%231"),
        ("s3a://bucket/my lake/orders", "s3://bucket/my%20lake/orders"),
        ("s3n://bucket/orders", "s3://bucket/orders"),
        ("s3a://bucket", "s3://bucket"),
        ("hdfs://name:8020/data/lake", "hdfs://name:8020/data/lake"),
        ("abfss://lake@account.dfs.core.windows.net/orders", "abfss://lake@account.dfs.core.windows.net/orders"),
    ],
)
def test_a_folder_as_a_uri_with_escapes(folder: str, wanted: str) -> None:
    assert folders.escaped(folder) == wanted


@pytest.mark.parametrize("name", ["lake", "my lake", "Zoës läke", "日本 語", "a#b", "a+b&c=d,e", "it's", "a:b"])
def test_whatever_a_folder_is_called(tmp_path: Path, name: str) -> None:
    base = f"file://{tmp_path}/{name}/orders"
    parquet_files.own(base, "orders", "ledger", "parquet")
    assert parquet_files.exists(base)
    delta_table.prepare(f"{base}_delta", delta_table.columns({"id": "string"}), "orders", "ledger")
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["orders", "orders_delta"]
    assert folders.path_of(base) == f"{tmp_path}/{name}/orders"


@pytest.mark.parametrize("base", ["wasb://lake@account/orders", "file://host/orders", "data/lake"])
def test_what_arrow_does_not_know_is_refused(base: str) -> None:
    with pytest.raises(
        WrongUse, match=r"is not a folder that can be read without Spark: .* that the sink names in `files`"
    ):
        parquet_files.own(base, "orders", "ledger", "parquet")
    with pytest.raises(WrongUse, match="is not a folder that can be read without Spark"):
        delta_table.prepare(base, delta_table.columns({"id": "string"}), "orders", "ledger")


def test_a_file_system_that_refuses_is_unreachable(tmp_path: Path) -> None:
    """As without the right to write; which tests that are run as root have everywhere."""
    (tmp_path / "lake").write_text("a file")
    base = f"file://{tmp_path}/lake/orders"
    with pytest.raises(Unreachable, match=r"/lake/orders: .*Not a directory"):
        parquet_files.own(base, "orders", "ledger", "parquet")
    with pytest.raises(Unreachable, match=r"(?s)/lake/orders: .*Not a directory"):
        delta_table.prepare(base, delta_table.columns({"id": "string"}), "orders", "ledger")


@pytest.mark.covers("O13")
@pytest.mark.parametrize(
    ("path", "kind", "taken"),
    [
        ("lake/orders/generation=1/part-0.parquet", fs.FileType.File, True),
        ("lake/orders/generation=1/by_day=2026-11-28/part-0.parquet", fs.FileType.File, True),
        ("lake/orders/generation=1/by_day=2026-11-28", fs.FileType.File, False),
        ("lake/orders/generation=1", fs.FileType.File, False),
        ("lake/orders/generation=1/by_day=1.parquet", fs.FileType.Directory, False),
        ("lake/orders/generation=1/_temporary/0/part-0.parquet", fs.FileType.File, False),
        ("lake/orders/generation=1/_SUCCESS", fs.FileType.File, False),
        ("lake/orders/generation=1/.part-0.parquet.crc", fs.FileType.File, False),
    ],
)
def test_a_folder_that_is_listed_as_a_file_is_none(path: str, kind: fs.FileType, taken: bool) -> None:
    """As s3proxy over a folder lists them, where a window has partitions."""
    assert folders.is_read(fs.FileInfo(path, kind), "lake/orders/generation=1") is taken


def test_a_disk_that_takes_no_writes_is_no_server_that_is_away() -> None:
    """No retry helps. Of the kernel's own folder below /sys, which takes none from root either."""
    base, said = (
        "file:///sys/lake/orders",
        r"/sys/lake/orders: .*Mount the disk for writing, or give this user the right",
    )
    with pytest.raises(NotAuthorized, match=rf"(?s){said}"):
        parquet_files.own(base, "orders", "ledger", "parquet")
    with pytest.raises(NotAuthorized, match=rf"(?s){said}"):
        delta_table.prepare(base, delta_table.columns({"id": "string"}), "orders", "ledger")
    with pytest.raises(NotAuthorized, match="Read-only"), folders.naming(base):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), base)


def test_what_delta_says_of_its_store_passes_and_what_it_says_of_a_table_does_not(tmp_path: Path) -> None:
    """delta-rs has one class for both. A change that has lost a file on the way is no table that Delta refuses."""
    base = f"file://{tmp_path}/orders"
    schema = delta_table.columns({"id": "string"})
    delta_table.prepare(base, schema, "orders", "ledger")
    row = {name: [None] for name in schema.names} | {"_topic": ["t"], "_generation": [1]}
    write_deltalake(tmp_path / "orders", pa.table(row, schema), mode="append")
    (file,) = tmp_path.rglob("*.parquet")
    delete = partial(DeltaTable.delete, predicate="_topic = 'u' or id = 'x'")
    file.rename(tmp_path / "away")
    with pytest.raises(Unreachable, match="not found"):
        delta_table.change(base, delete)
    # A disk that is broken, as one that the network has lost.
    file.mkdir()
    with pytest.raises(Unreachable, match="Generic LocalFileSystem error"):
        delta_table.change(base, delete)
    file.rmdir()
    (tmp_path / "away").rename(file)
    delta_table.change(base, delete)
    with pytest.raises(DeltaError), folders.naming(base):
        DeltaTable(tmp_path / "orders").delete("no_such_column = 1")


@pytest.mark.parametrize(
    "said",
    [
        "Kernel error: Generic S3 error: Error performing PUT https://b/x in 3s, after 2 retries - Server returned 503",
        "Transaction failed: Object Store error: Generic S3 error: error sending request",
    ],
)
def test_a_bucket_that_does_not_answer_delta_is_away(said: str) -> None:
    with pytest.raises(Unreachable), folders.naming("s3a://b/orders"):
        raise DeltaError(said)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "data/lake",
            r"connection lake_default: the path 'data/lake' .* is relative; expected .* /data/lake, or a URI",
        ),
        ("./lake", "is relative"),
        ("~/lake", "is relative"),
        ("/data/[lake]", r"has '\[', which has a meaning there"),
        ("s3a://bucket/*", r"has '\*'"),
        ("/data/my%20lake", "has '%'"),
    ],
)
def test_a_path_that_programs_take_for_different_folders_is_refused(path: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        lake_folder(Connection("lake_default", extra={"path": path}))


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/data/my läke/", "file:///data/my läke/orders"),
        ("/", "file:///orders"),
        ("s3a://bucket/lake", "s3a://bucket/lake/orders"),
    ],
)
def test_the_folder_of_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, base: str) -> None:
    for name, more in (
        ("KAFKA", {"extra": {"bootstrap.servers": "h:1", "allow_insecure": True}}),
        ("HBASE", {"host": "h", "port": 1}),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}_DEFAULT", json.dumps({"conn_type": "generic", **more}))
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps({"conn_type": "fs", "extra": {"path": path}}))
    file = tmp_path / "orders.yaml"
    file.write_text(MINIMAL.replace("type: hbase\n    table: orders", "type: parquet\n    folder: orders") + IN_HBASE)
    opened = open_stream(file)
    assert sink_to_compact(opened.stream.sinks, "orders", None).base(opened.connections) == base


@pytest.mark.parametrize(
    ("hadoop", "said"),
    [
        (
            {"spark.hadoop.fs.s3a.secret.key": "canary"},
            "sets spark.hadoop.fs.s3a.secret.key; expected settings of a file",
        ),
        ({"fs.s3a.secret.key": ["canary"]}, "sets fs.s3a.secret.key; expected .* each with a text"),
        (["canary"], "hadoop among its extras is no map of settings"),
    ],
)
def test_settings_that_are_none_of_a_file_system_are_refused(hadoop: Any, said: str) -> None:
    with pytest.raises(WrongUse, match=said) as refused:
        file_system_settings(Connection("lake_default", extra={"path": "s3a://b", "hadoop": hadoop}))
    assert "canary" not in str(refused.value)


def test_the_settings_of_two_connections_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, more in (
        ("KAFKA", {"extra": {"bootstrap.servers": "h:1", "allow_insecure": True}}),
        ("HBASE", {"host": "h", "port": 1}),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}_DEFAULT", json.dumps({"conn_type": "generic", **more}))
    sinks = "".join(f"type: parquet\n    name: {name}\n    files: {name}\n    folder: orders\n  - " for name in "ab")
    file = tmp_path / "orders.yaml"
    file.write_text(MINIMAL.replace("type: hbase\n    table: orders", sinks.removesuffix("\n  - ")) + IN_HBASE)

    def given(**settings: dict[str, str]) -> dict[str, str]:
        for name, hadoop in settings.items():
            extra = {"path": "s3a://bucket", "hadoop": hadoop}
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "fs", "extra": extra}))
        return open_stream(file).file_system_settings()

    assert given(a={}, b={}) == {}
    assert given(a={"fs.x": "1", "fs.a": "2"}, b={"fs.x": "1", "fs.b": "3"}) == {"fs.x": "1", "fs.a": "2", "fs.b": "3"}
    with pytest.raises(WrongUse, match=r"connections a and b give fs\.x different values") as refused:
        given(a={"fs.x": "canary-1"}, b={"fs.x": "canary-2"})
    assert "canary" not in str(refused.value)


def test_a_relative_path_is_refused_before_a_job_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line and in Airflow's tasks. Spark would take seconds to start, and then end with the same sentence."""
    for name, value in (
        ("KAFKA", {"extra": {"bootstrap.servers": "h:1", "allow_insecure": True}}),
        ("HBASE", {"host": "h", "port": 1}),
        ("SPARK", {"host": "local[1]"}),
        ("LAKE", {"extra": {"path": "data/lake"}}),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}_DEFAULT", json.dumps({"conn_type": "generic", **value}))
    file = tmp_path / "orders.yaml"
    file.write_text(MINIMAL.replace("type: hbase\n    table: orders", "type: parquet\n    folder: orders") + IN_HBASE)
    monkeypatch.setattr(programs, "run", lambda *_: pytest.fail("a job was started"))
    monkeypatch.setattr(airflow_connections, "from_airflow", from_environment)
    look: Look = lambda: pytest.fail("a job was waited for")  # noqa: E731
    with pytest.raises(WrongUse, match="connection lake_default: the path 'data/lake' among its extras is relative"):
        submit(open_stream(file), WINDOW_JOB, [], look=look, verbose=True)
    with pytest.raises(WrongUse, match="connection lake_default: the path 'data/lake' among its extras is relative"):
        process_together(open_stream(file), "tidemark run", [["ingest"]], "run 1")
    with pytest.raises(WrongUse, match="connection lake_default: the path 'data/lake' among its extras is relative"):
        airflow_connections.open_here(str(file))
