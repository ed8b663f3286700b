"""A first window of dead letters alone, because the stream file has a wrong type: the type is put right, and all goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.support.command_line import asked, tidemark
from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tests.support.stores import SETTINGS
from tidemark.ledger.records import LaneKind
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.kinds import kind_of
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

SINKS: list[dict[str, Any]] = [
    {"type": "parquet", "folder": "parquet"},
    {"type": "delta", "folder": "delta"},
    {"type": "iceberg", "folder": "iceberg", "table": "lake.all", "partition_by": ["bucket(4, id)"]},
    {"type": "delta_latest", "folder": "delta_latest", "key": "id", "buckets": 2},
    {"type": "iceberg_latest", "folder": "iceberg_latest", "table": "lake.newest", "key": "id", "buckets": 2},
]


def wrong(of: str) -> dict[str, Any]:
    return {"type": "json", "fields": {"id": of, "n": of}}


STREAM: dict[str, Any] = {"source": {"topics": []}, "scheme": wrong("integer"), "sinks": []}
NUMBERS = Example(
    "numbers",
    STREAM,
    ("numbers",),
    1,
    lambda count, first: (
        (None, json.dumps({"id": f"c{one}", "n": f"{one}!"}).encode()) for one in range(first, first + count)
    ),
    lambda value: Outcome(None, None),
)


@pytest.mark.full
@pytest.mark.covers("N91", "N108")
def test_dead_letters_alone_fix_no_types(
    make: Make, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    for name, connection in {
        "ICEBERG_DEFAULT": {"conn_type": "sqlite", "host": str(tmp_path / "catalog.db")},
        "SQLITE_DEFAULT": {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")},
        "LAKE_DEFAULT": {"conn_type": "tidemark_lake", "extra": {"path": str(lake)}},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    kept = {
        "sinks": SINKS,
        "dead_letters": {"type": "delta", "folder": "dead"},
        "ledger": SETTINGS["sqlite"],
    }
    live = make(NUMBERS, **kept)
    live.produce(5)
    (first,) = live.ingest()
    assert sum(one.dead_letters for one in first.tallies) == 5
    # The file is put right. Dead letters are read again, and new messages come.
    live.rewrite(**kept, scheme=wrong("string"))
    tidemark("streams", "check", str(live.file), "--against-ledger")
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 5)))
    live.produce(3)
    live.ingest()
    wanted = {f"c{one}": f"{one}!" for one in range(8)}
    for sink in live.opened.stream.sinks:
        rows = results(spark, live.opened, sink.name).collect()
        assert {row["id"]: row["n"] for row in rows} == wanted, sink.name
        assert len(rows) == 8
        shown = [one["fields"] for one in asked("results", str(live.file), "--sink", sink.name)]
        assert {one["id"]: one["n"] for one in shown} == wanted
    for name in ("delta", "delta_latest"):
        dataset = DeltaTable(str(lake / name)).to_pyarrow_dataset()  # noqa: F841
        assert dict(duckdb.sql("SELECT id, n FROM dataset").fetchall()) == wanted
    found = audit(live.opened, live.new_run())
    assert found.clean, found
    for sink in live.opened.stream.sinks:
        compacting: Any = kind_of(sink.type).make_spark()
        if hasattr(compacting, "compact"):
            compacting.compact(live.opened, sink, live.new_run(), CompactionRequest())
        assert {row["id"]: row["n"] for row in results(spark, live.opened, sink.name).collect()} == wanted
