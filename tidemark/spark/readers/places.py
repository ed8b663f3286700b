"""Results in HBase, and dead letters, as Spark DataFrames for the audit: each place with its digests, and if its row counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.ledger.ledger import Ledger, LedgerSnapshot
from tidemark.offsets.hashing import Value, content_hash, coordinate_hash, row_hash
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.schemes.kinds import Fields
from tidemark.sinks.reading import RowsByOffset, pieces, places_of_pieces
from tidemark.sinks.stored_rows import Place, StoredRow
from tidemark.sinks.values import value_of
from tidemark.spark.columns import AT, COORDINATE, DIGEST, INDEX, JSON_TIMES, TOMBSTONE
from tidemark.spark.runtime.workers import batch_of, in_workers
from tidemark.types.fields import spark_type

COUNTS = "_counts"
FOUND_DIGEST = "_found_digest"
# The columns of a row that are none of the fields asked for.
OTHERS = "_others"

# A task with fewer rows takes longer to start than to read them.
_ROWS_PER_TASK = 10_000
# So few rows, without their fields and in so few scans, are read by the driver: Python workers would take longer to get to
# work.
_FEW_ROWS, _FEW_SCANS = 20_000, 100

# The values of a row that its digest covers.
Digested = Callable[[Mapping[str, bytes]], Sequence[Value]]

_PLACE = [
    (AT[0], pa.string()),
    (AT[1], pa.int32()),
    (AT[2], pa.int32()),
    (COORDINATE[3], pa.int64()),
    (INDEX, pa.int32()),
]


def typed(fields: Fields) -> list[Any]:
    """The fields of `hbase_places`, with their types and names."""
    return [
        of_text(F.col(f"field_{number}"), spark_type(kind)).alias(name)
        for number, (name, kind) in enumerate(fields.items())
    ]


def of_text(stored: Column, kind: str) -> Column:
    """A value of a Spark type from HBase's bytes: a binary value itself, the text or JSON of all others."""
    if kind == "binary":
        # The bytes may be no text.
        return stored
    text = stored.cast("string")
    if kind.startswith(("array<", "map<", "struct<")):
        return F.from_json(text, kind, {**JSON_TIMES, "mode": "FAILFAST"})
    # HBase holds times in UTC. The session that reads may have another time zone.
    return F.concat(text, F.lit("Z")).cast(kind) if kind == "timestamp" else text.cast(kind)


def hbase_places(
    spark: SparkSession,
    ledger: Ledger,
    table: RowsByOffset,
    sink: str | None,
    fields: Sequence[str],
    more: RangeSet | None = None,
    *,
    within: RangeSet | None = None,
    digested: Digested | None = None,
    others: bool = False,
    rows: int | None = None,
) -> DataFrame:
    """Every place that has a row in the table of a sink, or of the dead letters (None).

    At the covered offsets (only those `within`), and at `more`.
    Columns: coordinate, `_index`, `_counts` (false: only debris), `_tombstone`, `_digest` (as the row's mark says),
    `_found_digest` (as the row's cells say, of what `digested` chooses; null without it), and the fields' bytes as
    `field_0`, `field_1`, ... With `others`, also the names of the columns that are not among `fields`, as `_others`.
    `rows`: about how many there are, if that is known. If these are few, and no field is asked for, they are read now.
    """
    view = ledger.view(sink)
    covered = view.authority.covered() if within is None else view.authority.covered() & within
    wanted = covered | (more or RangeSet())
    schema = places_schema(fields, others=others)
    scans = tuple(pieces(wanted))
    reader = _ScanReader(ledger, table, replace(view, windows=[]), scans, tuple(fields), schema, digested, others)
    if rows is not None and rows <= _FEW_ROWS and len(scans) <= _FEW_SCANS and not fields:
        # Spark 4.2 takes an empty batch for the last one.
        table_ = pa.Table.from_batches((one for one in reader.of(scans) if one.num_rows), schema)
        frame = (
            spark.createDataFrame(table_) if table_.num_rows else spark.createDataFrame([], from_arrow_schema(schema))
        )
        # With a single partition, nothing is shuffled.
        return frame.coalesce(1)
    cores = spark.sparkContext.defaultParallelism
    enough = 4 * cores if rows is None else max(cores, min(4 * cores, rows // _ROWS_PER_TASK))
    tasks = max(1, min(len(scans), enough))
    # Each task takes its turn, so that neighbours, which may hold most of the rows, are in different tasks.
    turns = tuple(scan for start in range(tasks) for scan in scans[start::tasks])
    frame = spark.range(0, len(turns), 1, tasks)
    return in_workers(frame, replace(reader, scans=turns), from_arrow_schema(schema))


def contents_of(fields: Fields) -> Digested:
    """A digest over all of these fields, in this order."""
    return lambda row: [value_of(kind, row.get(name)) for name, kind in fields.items()]


def places_schema(fields: Sequence[str], *, others: bool = False) -> pa.Schema:
    return pa.schema(
        [
            *_PLACE,
            (COUNTS, pa.bool_()),
            (TOMBSTONE, pa.bool_()),
            (DIGEST, pa.int64()),
            (FOUND_DIGEST, pa.int64()),
            *((f"field_{number}", pa.binary()) for number, _ in enumerate(fields)),
            *([(OTHERS, pa.list_(pa.string()))] if others else []),
        ]
    )


def place_row(
    fields: Sequence[str],
    place: Place,
    row: StoredRow | None,
    digested: Digested | None = None,
    *,
    others: bool = False,
) -> tuple[Any, ...]:
    """A row of `places_schema`. `row` is None for a place with only debris. Else as for `hbase_places`."""
    at = place.partition
    columns = (at.topic, at.incarnation, at.partition, place.offset, place.index)
    if row is None:
        return (*columns, False, False, None, None, *(None for _ in fields), *([[]] if others else []))
    contents = [row.fields.get(name) for name in fields]
    said, digest = _signed(row.mark.digest), None
    if digested is not None:
        of_row = row_hash(coordinate_hash(at, place.offset), place.index)
        digest = _signed(content_hash(of_row, digested(row.fields)))
    other_names = [sorted(row.fields.keys() - {*fields})] if others else []
    return (*columns, True, row.mark.tombstone, said, digest, *contents, *other_names)


@dataclass(frozen=True)
class _ScanReader:
    """Runs in Spark's Python workers: takes numbers of scans, and yields rows."""

    ledger: Ledger
    table: RowsByOffset
    view: LedgerSnapshot
    scans: tuple[OffsetRange, ...]
    fields: tuple[str, ...]
    schema: pa.Schema
    digested: Digested | None
    others: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.of(self.scans[number] for batch in batches for number in batch.column(0).to_pylist())

    def of(self, wanted: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """The rows of some scans."""
        for places in places_of_pieces(self.ledger, self.table, self.view, wanted):
            rows = [place_row(self.fields, place, row, self.digested, others=self.others) for place, row in places]
            yield batch_of(rows, self.schema)


def _signed(number: int) -> int:
    """An unsigned 64-bit number as Spark's long."""
    return number - (1 << 64) if number >= 1 << 63 else number
