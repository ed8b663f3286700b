"""An Iceberg table by day, hour and bucket: files made by hand lie in the partitions that Iceberg's own transforms give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.compactions import committed
from tidemark.clients.sql import Database
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Committed
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.contract import SettingsContext
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import CatalogTable
from tidemark.sinks.iceberg.partitions import buckets
from tidemark.sinks.iceberg.settings import IcebergSink, PartitionKey

FIELDS = {"id": "string", "number": "integer", "at": "timestamp"}
KEYS = [PartitionKey.read(one) for one in ("day(at)", "bucket(4, id)")]
AT = TopicPartition("logs", 0)
COLUMNS = pa.schema(
    [
        *[("_topic", pa.string()), ("_incarnation", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64())],
        *[("_index", pa.int32()), ("_tombstone", pa.bool_()), ("_digest", pa.int64())],
        *[("id", pa.string()), ("number", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("_generation", pa.int64())],
    ]
)
# Before 1970, a time lies in the day that has begun, and not in the next one.
FIRST = datetime(1969, 12, 30, 23, 59, 59, 999999, UTC)


def rows(generation: int, numbers: range) -> list[dict[str, Any]]:
    return [
        {
            "_topic": "logs",
            "_incarnation": 1,
            "_partition": 0,
            "_offset": one,
            "_index": 0,
            "_tombstone": False,
            "_digest": 7,
            "id": None if one % 7 == 0 else f"k{one % 5}",
            "number": one,
            "at": None if one % 11 == 0 else FIRST + timedelta(hours=13 * one),
            "_generation": generation,
        }
        for one in numbers
    ]


def partitions(found: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows as Spark puts them into files: those of one day and one bucket together."""
    apart: dict[tuple[object, object], list[dict[str, Any]]] = {}
    of_ids = buckets(pa.array([one["id"] for one in found], pa.string()), 4).to_pylist()
    for one, bucket in zip(found, of_ids, strict=True):
        apart.setdefault((one["at"] and one["at"].date(), bucket), []).append(one)
    yield from apart.values()


def window(where: CatalogTable, generation: int, numbers: range, lane: str = "ingest") -> Committed:
    one = committed(f"{where.base}/data", generation, numbers, lane=lane, generation=generation)
    folder = iceberg_table.attempt_folder(where.base, lane, generation, generation)
    for number, some in enumerate(partitions(rows(generation, numbers))):
        there = Path(folder.removeprefix("file://")) / f"by_day_at={number}" / "by_bucket_id=0"
        there.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(some, COLUMNS), there / "part-0.parquet")
    return one


def publish(where: CatalogTable, one: Committed, replaced: RangeSet) -> None:
    folder = iceberg_table.attempt_folder(where.base, one.record.lane, one.record.seq, one.generation)
    iceberg_table.publish(where, "s", one.record, folder, replaced)


@pytest.fixture
def where(tmp_path: Path) -> CatalogTable:
    made = CatalogTable(
        f"file://{tmp_path}/table", Database("sqlite", f"{tmp_path}/catalog.db"), "tidemark", "lake.orders"
    )
    iceberg_table.prepare(made, FIELDS, "s", "ledger", KEYS)
    publish(made, window(made, 1, range(60)), RangeSet())
    return made


def foreign(where: CatalogTable) -> Table:
    return SqlCatalog(where.catalog, uri=f"sqlite:///{where.server.host}").load_table(where.table)


@pytest.mark.slow
@pytest.mark.covers("I4")
def test_a_reader_opens_only_the_files_of_its_day_and_its_bucket(where: CatalogTable) -> None:
    table = foreign(where)
    everything = rows(1, range(60))
    all_files = len(list(table.scan().plan_files()))
    for key in ("k0", "k3"):
        scan = table.scan(row_filter=f"id = '{key}'")
        assert sorted(scan.to_arrow()["_offset"].to_pylist()) == [r["_offset"] for r in everything if r["id"] == key]
        assert len(list(scan.plan_files())) < all_files / 2
    for since in (FIRST - timedelta(days=1), FIRST, FIRST + timedelta(days=20)):
        until = since + timedelta(days=1)
        scan = table.scan(row_filter=f"at >= '{since.isoformat()}' and at < '{until.isoformat()}'")
        wanted = [r["_offset"] for r in everything if r["at"] is not None and since <= r["at"] < until]
        assert sorted(scan.to_arrow()["_offset"].to_pylist()) == wanted
        assert len(list(scan.plan_files())) < all_files / 2
    assert table.scan(row_filter="id is null").to_arrow().num_rows == sum(one["id"] is None for one in everything)


@pytest.mark.slow
@pytest.mark.covers("I4")
def test_a_replay_keeps_rows_in_their_partitions(where: CatalogTable) -> None:
    replay = window(where, 5, range(20, 40), "replay-1")
    publish(where, replay, RangeSet([OffsetRange(AT, 20, 40)]))
    table = foreign(where)
    found = table.scan().to_arrow().to_pylist()
    assert sorted((one["_offset"], one["_generation"]) for one in found) == [
        (one, 5 if 20 <= one < 40 else 1) for one in range(60)
    ]
    of_key = table.scan(row_filter="id = 'k3'").to_arrow()["_offset"].to_pylist()
    assert sorted(of_key) == [one for one in range(60) if one % 5 == 3 and one % 7]


def test_a_table_keeps_what_it_is_partitioned_by(where: CatalogTable) -> None:
    for keys in ([], KEYS[:1], [KEYS[0], PartitionKey.read("bucket(8, id)")]):
        with pytest.raises(
            WrongUse, match=r"is partitioned by day of at, bucket\[4\] of id, and the stream file now says"
        ):
            iceberg_table.prepare(where, FIELDS, "s", "ledger", keys)


@pytest.mark.parametrize(
    ("keys", "fields", "problem"),
    [
        (["day(time)"], {}, "names the field time, which the stream does not have"),
        (["hour(id)"], {}, r"hour\(id\) needs a timestamp, and id is of type string"),
        (["bucket(4, at)"], {}, "at is of type timestamp; bucket takes"),
        (["day(at)"], {"at_day": "string"}, r"day\(at\) is called as the field at_day"),
        (["day(at)", "bucket(4,number)"], {}, None),
    ],
)
def test_what_a_table_can_be_partitioned_by(keys: list[str], fields: dict[str, str], problem: str | None) -> None:
    sink = IcebergSink(type="iceberg", folder="a", table="lake.a", partition_by=tuple(keys))
    said = sink.problem_with(SettingsContext({**FIELDS, **fields}, "at_least_once", lambda *_: True))
    if problem is None:
        assert said is None
    else:
        assert said is not None
        assert re.search(problem, said)


@pytest.mark.parametrize("key", ["week(at)", "bucket(0, id)", "bucket(id)", "day(at) ", "id"])
def test_other_words_are_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="expected day"):
        IcebergSink(type="iceberg", folder="a", table="lake.a", partition_by=(key,))
