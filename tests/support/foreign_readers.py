"""The rows of lakes as other programs read them: DuckDB, polars, PyArrow, Spark, deltalake and pyiceberg."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.support.live_streams import LiveStream
from tidemark.sinks.iceberg import compacting as rows
from tidemark.sinks.iceberg.catalog import opened
from tidemark.sinks.iceberg.latest import compacting as newest_rows
from tidemark.sinks.parquet.settings import FolderSettings


def catalog_in_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog of Iceberg tables is in a file of SQLite, and polars does not warn of a faster package."""
    catalog = {"conn_type": "sqlite", "host": str(folder / "catalog.db")}
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(catalog))
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


def lakes(live: LiveStream, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A sink of each kind of lake with a row for each message."""
    catalog_in_a_file(folder, monkeypatch)
    return [
        {"type": "parquet", "folder": live.name},
        {"type": "delta", "folder": f"{live.name}_delta"},
        {"type": "iceberg", "folder": f"{live.name}_iceberg", "table": f"lake.{live.name}"},
    ]


def lakes_by_key(live: LiveStream, key: str) -> list[dict[str, Any]]:
    """A sink of each kind of lake with the newest row of each key."""
    more = {"key": key, "buckets": 2}
    return [
        {"type": "delta_latest", "folder": f"{live.name}_newest", **more},
        {"type": "iceberg_latest", "folder": f"{live.name}_kept", "table": f"lake.{live.name}_kept", **more},
    ]


def iceberg_table(live: LiveStream, sink: Any) -> Table:
    where = newest_rows if sink.type == "iceberg_latest" else rows
    found = opened(where.where_of(live.opened, sink))
    assert found is not None
    return found


def named_files(live: LiveStream) -> dict[str, list[str]]:
    """The paths of the files of each lake; of a table, those that it names."""
    found = {}
    for sink in _lakes(live):
        base = sink.base(live.opened.connections)
        if sink.type.startswith("delta"):
            files = DeltaTable(base).file_uris()
        elif sink.type.startswith("iceberg"):
            files = [one.file.file_path for one in iceberg_table(live, sink).scan().plan_files()]
        else:
            files = [*map(str, Path(base.removeprefix("file://")).rglob("*.parquet"))]
        found[sink.name] = [one.removeprefix("file://") for one in files]
        assert files, sink.name
    return found


def foreign_rows(spark: SparkSession, live: LiveStream) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The rows of each lake, by the name of its sink and that of the reader; of a table, from the files that it names."""
    files = named_files(live)
    for sink in _lakes(live):
        base, paths = sink.base(live.opened.connections), files[sink.name]
        if sink.type.startswith("delta"):
            yield f"{sink.name} by polars", pl.scan_delta(base).collect().to_dicts()
            yield f"{sink.name} by deltalake", DeltaTable(base).to_pyarrow_table().to_pylist()
        elif sink.type.startswith("iceberg"):
            table = iceberg_table(live, sink)
            yield f"{sink.name} by polars", pl.scan_iceberg(table).collect().to_dicts()
            yield f"{sink.name} by pyiceberg", table.scan().to_arrow().to_pylist()
        else:
            folder = base.removeprefix("file://")
            of_polars = pl.scan_parquet(f"{folder}/**/*.parquet", hive_partitioning=False)
            yield f"{sink.name} by polars", of_polars.collect().to_dicts()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            query = "SELECT * FROM read_parquet(?, hive_partitioning = false)"
            found = connection.sql(query, params=[paths]).to_arrow_table()
        yield f"{sink.name} by DuckDB", found.to_pylist()
        yield f"{sink.name} by PyArrow", ds.dataset(paths, format="parquet", partitioning=None).to_table().to_pylist()
        with_spark = spark.read.option("recursiveFileLookup", True).parquet(*paths)
        yield f"{sink.name} by Spark", with_spark.toArrow().to_pylist()


def _lakes(live: LiveStream) -> list[Any]:
    return [one for one in live.opened.stream.sinks if isinstance(one, FolderSettings)]
