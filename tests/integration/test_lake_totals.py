"""Tables of a lake with totals of each key, which anybody reads: key and totals of all rows that count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from tests.support.command_line import asked
from tests.support.cuts import Cut, cut_after
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, Fields
from tidemark.commit.protocol import Step
from tidemark.ledger.records import LaneKind
from tidemark.runs.windows import lanes
from tidemark.sinks.column_texts import with_texts
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg.catalog import opened
from tidemark.sinks.iceberg.latest.compacting import where_of
from tidemark.sinks.kinds import kind_of
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

KEY = ("host", "method")
FIELDS = {"all": "size", "most": "dltime", "least": "time"}
VALUES = {"rows": "count", "all": {"sum": "size"}, "most": {"max": "dltime"}, "least": {"min": "time"}}
# By key: `rows`, and of those that are not null the others. Times are texts.
Totals = dict[tuple[Any, ...], dict[str, Any]]
_TYPES: dict[str, Any] = {"rows": int, "all": int, "most": float, "least": str}


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog in a file of SQLite."""
    connection = {"conn_type": "sqlite", "host": str(tmp_path / "catalog.db")}
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG_DEFAULT", json.dumps(connection))


class BlockSums:
    """A stream with one table of totals."""

    def __init__(self, live: LiveStream, kind: str) -> None:
        self.live, self.kind = live, kind
        folder = f"{live.name}_sums"
        table = {} if kind == "delta_aggregates" else {"table": f"lake.{folder}"}
        sink = {"type": kind, "folder": folder, "buckets": 4, "key": [*KEY], "values": VALUES, **table}
        live.rewrite(sinks=[sink])
        (sink_,) = live.opened.stream.sinks
        self.settings: Any = sink_
        self.erased: set[tuple[str, int, int]] = set()

    @property
    def base(self) -> str:
        return str(self.settings.base(self.live.opened.connections))

    def wanted(self) -> Totals:
        """What the rows come to, by dictionaries."""
        rows = (row for place, row in self.live.expected().rows.items() if place[:3] not in self.erased)
        return _sums(rows)

    def seen(self) -> Totals:
        """What others see, whichever reader they take."""
        found = [_by_key(rows) for rows in self._readers()]
        assert all(one == found[0] for one in found)
        return found[0]

    def _readers(self) -> Iterator[pa.Table]:
        if self.kind == "iceberg_aggregates":
            yield self._iceberg().scan().to_arrow()
            with pytest.MonkeyPatch.context() as patched:
                # Without it, polars warns of a faster package.
                patched.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
                yield pl.scan_iceberg(self._iceberg()).collect().to_arrow()
            files = [task.file.file_path for task in self._iceberg().scan().plan_files()]
        else:
            base = self.base.removeprefix("file://")
            table = DeltaTable(base)
            yield table.to_pyarrow_table()
            yield pl.read_delta(base).to_arrow()
            files = table.file_uris()
        yield duckdb.read_parquet(files, union_by_name=True).to_arrow_table()

    def _iceberg(self) -> Table:
        found = opened(where_of(self.live.opened, self.settings))
        assert found is not None
        return found

    def change(self) -> None:
        """As somebody else does it, who knows nothing of Tidemark: the totals of a host."""
        host = min(key[0] for key in self.seen() if key[0] is not None)
        if self.kind == "iceberg_aggregates":
            rows = self._iceberg().scan().to_arrow()
            changed = pc.add(rows.column("rows"), pc.equal(rows.column("host"), host).cast(pa.int64()))
            self._iceberg().overwrite(rows.set_column(rows.schema.get_field_index("rows"), "rows", changed))
            return
        table = DeltaTable(self.base.removeprefix("file://"))
        table.update({"rows": "rows + 1"}, predicate=f"host = '{host}'")

    def counting(self, spark: SparkSession) -> Totals:
        """What Tidemark's readers give."""
        shown = asked("results", str(self.live.file), "--limit", "1000")
        by_reader = {tuple(one["key"].values()): _typed(one["values"]) for one in shown}
        # By Spark's own functions.
        with_spark = _by_key(results(spark, self.live.opened, self.kind).toArrow())
        assert by_reader == with_spark
        return by_reader

    def assert_all(self, spark: SparkSession) -> None:
        assert self.seen() == self.counting(spark) == self.wanted()


def _by_key(rows: pa.Table) -> Totals:
    """Rows of a table, which has nothing but the key and the totals, and the bucket at most."""
    assert {*rows.column_names} - {"_bucket"} == {*KEY, *VALUES}
    found = {tuple(row[name] for name in KEY): _typed({one: row[one] for one in VALUES}) for row in _texts(rows)}
    assert len(found) == rows.num_rows, "a key is there twice"
    return found


def _texts(rows: pa.Table) -> list[dict[str, Any]]:
    times = rows.schema.get_field_index("least")
    kind = pa.timestamp("us", "UTC")
    plain = rows.set_column(times, "least", rows.column("least").cast(kind)) if times >= 0 else rows
    return with_texts(plain).to_pylist()


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _TYPES[name](value) for name, value in values.items() if value is not None}


def _sums(rows: Iterable[Fields]) -> Totals:
    found: Totals = {}
    for row in rows:
        total = found.setdefault(tuple(row.get(name) for name in KEY), {"rows": 0})
        total["rows"] += 1
        for name, merge in (("all", lambda a, b: a + b), ("most", max), ("least", min)):
            if FIELDS[name] in row:
                (value,) = _typed({name: row[FIELDS[name]]}).values()
                total[name] = merge(total[name], value) if name in total else value
    return found


@pytest.mark.full
@pytest.mark.covers("L8")
@pytest.mark.parametrize("kind", ["delta_aggregates", "iceberg_aggregates"])
def test_anybody_reads_the_totals_of_what_counts(make: Make, spark: SparkSession, kind: str) -> None:
    live = make(CDN)
    sums = BlockSums(live, kind)
    for count in (150, 60):
        live.produce(count)
        live.ingest()
        sums.assert_all(spark)

    # A replay dies between its commit and its publication.
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (5, 35)), run, on_step=cut_after(Step.COMMITTED))
    sums.assert_all(spark)
    lanes.finish(live.opened, lanes.lane_name(LaneKind.REPLAY, run))
    # So does an ingest. Others see it later, and its rows once.
    live.produce(40)
    before = sums.seen()
    with pytest.raises(Cut):
        live.ingest(on_step=cut_after(Step.COMMITTED))
    assert sums.seen() == before
    assert sums.counting(spark) == sums.wanted() != before
    live.produce(30)
    live.ingest()
    sums.assert_all(spark)

    # What is erased counts no more, and is in no file after a compaction.
    topic = live.topics[0]
    asked("erase", "--yes", str(live.file), "--records", f"{topic}/0@20", "--reason", "request 4711")
    sums.erased.add((topic, 0, 20))
    gone = live.ranges(0, 0, (20, 21))
    sums.assert_all(spark)
    admin = kind_of(kind).make_admin()
    assert "tidemark compact" in admin.remains(live.opened, kind, gone)
    kind_of(kind).make_spark().compact(live.opened, sums.settings, live.new_run(), CompactionRequest())
    assert admin.remains(live.opened, kind, gone) == ""
    sums.assert_all(spark)

    report = audit(live.opened, "audit 1")
    assert report.clean, report.sentence()
    # A total that somebody has changed is found at a message of its key, and a replay of that mends it.
    sums.change()
    assert sums.seen() != sums.wanted()
    report = audit(live.opened, "audit 2")
    (place,) = (one for one in report.places if one.name == kind)
    assert place.different > 0
    assert (place.missing, place.extra, place.twice) == (0, 0, 0), report.sentence()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 1)))
    sums.assert_all(spark)
    assert audit(live.opened, "audit 3").clean
