"""Compaction of the sink `parquet` with Spark, which rewrites the rows: see `tidemark.sinks.parquet.steps`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.errors import VerificationFailed
from tidemark.offsets.counting import number_of
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.parquet import compacting, steps
from tidemark.sinks.parquet.compactions import CompactedFolder, described, spans
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.parquet.steps import CompactionStep, Listener, nobody
from tidemark.spark.columns import field, values_hash
from tidemark.spark.readers.parquet import columns_of, rows_of
from tidemark.spark.runtime.session import stream_session
from tidemark.spark.schemes.fields import field_type
from tidemark.spark.sinks.parquet.writer import keys_of, write

# The size of Spark's splits of a file. Larger files gain nothing, and take longer to rewrite.
FILE_BYTES = 128 * 1024 * 1024


def compact(
    opened: OpenStream, sink: compacting.Folders, run: str, asked: CompactionRequest, on_step: Listener = nobody
) -> list[CompactedFolder]:
    """As `steps.compact`. Raises VerificationFailed too."""
    spark = stream_session(f"tidemark compaction of {opened.ledger.stream}/{sink.name}", opened)

    def rewrite(group: Sequence[FolderPart], folder: str, heard: Listener) -> int:
        return _rewrite(spark, sink, group, folder, heard)

    return steps.compact(opened, sink, run, asked, rewrite, on_step)


def _rewrite(
    spark: SparkSession, sink: compacting.Folders, group: Sequence[FolderPart], folder: str, heard: Listener
) -> int:
    """Write the rows that count in some folders into a new folder, and return their number."""
    # Where nothing counts any more, a folder with rows that were erased has the columns.
    with_columns = [part for part in group if part.holds] or [part for part in group if part.stale]
    schema = columns_of(spark, with_columns[0])
    rows = rows_of(spark, group, schema, windows=True)
    files = -(-compacting.size(group).bytes // FILE_BYTES) or 1
    keys = keys_of(sink, rows)
    spread = rows.repartition(files, *(field(key.field) for key in keys)) if keys else rows.coalesce(files)
    write(spread, sink, folder)
    heard(CompactionStep.WRITTEN)
    held = spark.read.schema(rows.schema).option("recursiveFileLookup", True).parquet(folder)
    read, found = _fingerprint(rows), _fingerprint(held)
    if read != found:
        raise VerificationFailed(
            f"{described(spans(name for part in group for name in part.names))} have "
            f"{number_of(read[0], 'row', 'that counts', 'that count')}, and "
            f"{folder} has {found[0]}, or others. It does not count, and nothing was removed. Run it again."
        )
    heard(CompactionStep.VERIFIED)
    return found[0]


def _fingerprint(rows: DataFrame) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes. A sum, so that a row that stands twice changes it."""
    each = values_hash({column.name: field_type(column.dataType) for column in rows.schema}).cast("decimal(38,0)")
    summed = rows.agg(F.count("*").alias("rows"), F.sum(each).alias("hashes")).collect()[0]
    return summed["rows"], int(summed["hashes"] or 0)
