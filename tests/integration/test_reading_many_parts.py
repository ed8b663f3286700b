"""The rows that count in the folders of many windows: read at once, at a cost that does not grow with the windows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.compactions import authority_of, committed
from tidemark.ledger.ledger import Committed
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.parquet.compactions import CompactedFolder, Compactions, spans
from tidemark.sinks.parquet.files import COMPACTED, attempt_folder, tables_that_count
from tidemark.sinks.parquet.parts import FolderPart, parts
from tidemark.spark.readers.parquet import parquet_rows, places_of, rows_of, schema_of, values_of
from tidemark.types.fields import FieldType

AT = TopicPartition("logs", 0)
FIELDS: dict[str, FieldType] = {"id": "string"}
# Offsets in a window, and how many records a replay takes.
SIZE, RECORDS = 40, 12

# Gives the parts of some windows and replays, and what counts.
Layout = Callable[[str, int, int], tuple[list[FolderPart], Authority]]


@pytest.fixture
def base(tmp_path: Path) -> str:
    # Names that a reader of the names of folders might take for its own.
    return f"file://{tmp_path}/generation=5/_generation=6/lake"


def written(base: str, windows: int, replays: int) -> list[Committed]:
    """Windows of an ingest, and replays of scattered records among them, with a file for each."""
    chance = random.Random(3)
    found = [committed(base, seq, range((seq - 1) * SIZE, seq * SIZE)) for seq in range(1, windows + 1)]
    for number in range(replays):
        generation = windows + number + 1
        window = committed(base, 1, range(windows * SIZE), lane=f"replay-{number}", generation=generation)
        some = chance.sample(range(windows * SIZE), RECORDS)
        found.append(replace(window, covers=RangeSet(OffsetRange(AT, offset, offset + 1) for offset in some)))
    for one in found:
        put(one.record.places[0].place["folder"], table([one]))
    return found


def table(windows: list[Committed], *, compacted: bool = False) -> pa.Table:
    places = [(one, offset) for one in windows for two in one.covers for offset in range(two.start, two.until)]
    number = len(places)
    columns = {
        "_topic": pa.array(["logs"] * number),
        "_incarnation": pa.array([1] * number, pa.int32()),
        "_partition": pa.array([0] * number, pa.int32()),
        "_offset": pa.array([offset for _, offset in places], pa.int64()),
        "_index": pa.array([0] * number, pa.int32()),
        "_tombstone": pa.array([False] * number),
        "_digest": pa.array([0] * number, pa.int64()),
        "id": pa.array([f"{offset} by {one.generation}" for one, offset in places]),
    }
    if compacted:
        columns["_lane"] = pa.array([one.record.lane for one, _ in places])
        columns["_seq"] = pa.array([one.record.seq for one, _ in places], pa.int32())
        columns["_generation"] = pa.array([one.generation for one, _ in places], pa.int64())
    return pa.table(columns)


def put(folder: str, rows: pa.Table, name: str = "part-0.parquet") -> str:
    at = Path(folder.removeprefix("file://")) / name
    at.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, at)
    return f"file://{at}"


def in_folders(base: str, windows: int, replays: int) -> tuple[list[FolderPart], Authority]:
    found = written(base, windows, replays)
    authority = authority_of(found)
    return parts(found, authority, "parquet"), authority


def partly_compacted(base: str, windows: int, replays: int) -> tuple[list[FolderPart], Authority]:
    """The first windows, and the first replay, are in one folder, as a compaction has left them before the other replays."""
    found = written(base, windows, replays)
    merged = [*found[: windows // 2], found[windows]]
    folder = attempt_folder(base, COMPACTED, 1, 100)
    put(folder, table(merged, compacted=True))
    names = [(one.record.lane, one.record.seq) for one in merged]
    one = CompactedFolder(base=base, folder=folder, generation=100, windows=spans(names), rows=0, run="run", at=1)
    known = Compactions(stream="s", sink="parquet", token="t", folders=(one,))
    authority = authority_of(found)
    return parts(found, authority, "parquet", known), authority


def in_a_table(base: str, windows: int, replays: int) -> tuple[list[FolderPart], Authority]:
    """As the files of a Delta table: each generation has a folder. Another program has moved the files of one of them."""
    found = written(base, windows, replays)
    authority = authority_of(found)
    made = []
    for number, part in enumerate(parts(found, authority, "parquet")):
        (window,) = part.windows
        folder = f"{base}/ab" if number == 1 else f"{base}/_generation={window.generation}"
        made.append(replace(part, files=(put(folder, table([window]), f"part-{number}.parquet"),)))
    return made, authority


def rows(frame: DataFrame) -> list[str]:
    return sorted(row["id"] for row in frame.collect())


def expected(authority: Authority) -> list[str]:
    found = [(one, offset) for one in authority.segments(AT) for offset in range(one.start, one.until)]
    return sorted(f"{offset} by {segment.generation}" for segment, offset in found)


def nodes(frame: DataFrame) -> Iterator[str]:
    """The lines of a plan as Spark has optimised it."""
    yield from frame._jdf.queryExecution().optimizedPlan().toString().strip().split("\n")


@pytest.mark.covers("N40")
@pytest.mark.parametrize("layout", [in_folders, partly_compacted, in_a_table])
def test_rows_that_count_are_those_of_plain_readers(spark: SparkSession, base: str, layout: Layout) -> None:
    found, authority = layout(base, 6, 5)
    assert any(part.lost for part in found)
    assert rows(parquet_rows(spark, found, FIELDS)) == expected(authority)
    assert sorted(one for some in tables_that_count(found, authority) for one in some["id"].to_pylist()) == expected(
        authority
    )


@pytest.mark.full
def test_a_compaction_takes_the_window_of_each_row(spark: SparkSession, base: str) -> None:
    found, authority = partly_compacted(base, 6, 5)
    frame = rows_of(spark, found, schema_of(FIELDS), windows=True)
    assert rows(frame) == expected(authority)
    for row in frame.collect():
        assert row["id"] == f"{row['_offset']} by {row['_generation']}"
        ingest = row["_generation"] <= 6
        assert row["_lane"] == ("ingest" if ingest else f"replay-{row['_generation'] - 7}")
        assert row["_seq"] == (row["_generation"] if ingest else 1)


@pytest.mark.full
@pytest.mark.covers("N40")
@pytest.mark.parametrize("layout", [in_folders, partly_compacted, in_a_table])
def test_the_plan_is_as_large_for_many_windows_and_replays_as_for_few(
    spark: SparkSession, base: str, layout: Layout
) -> None:
    few, _ = layout(f"{base}/few", 4, 2)
    many, authority = layout(f"{base}/many", 30, 20)
    everything = RangeSet([OffsetRange(AT, 0, 30 * SIZE)])
    for read in (
        lambda found: parquet_rows(spark, found, FIELDS),
        lambda found: places_of(spark, found, FIELDS),
        lambda found: values_of(spark, found, FIELDS, everything),
    ):
        sizes = [len([*nodes(read(found))]) for found in (few, many)]
        assert sizes[0] == sizes[1]
    assert rows(parquet_rows(spark, many, FIELDS)) == expected(authority)


@pytest.mark.full
@pytest.mark.covers("N40")
def test_a_comparison_asks_spark_of_the_columns_of_one_folder(spark: SparkSession, base: str) -> None:
    found, _ = in_folders(base, 20, 3)
    spark.sparkContext.setJobGroup("columns", "")
    try:
        values_of(spark, found, FIELDS, RangeSet([OffsetRange(AT, 0, 20 * SIZE)]))
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("columns")
    finally:
        spark.sparkContext._jsc.clearJobGroup()
    # One for the columns; one may list many folders.
    assert len(jobs) <= 3
