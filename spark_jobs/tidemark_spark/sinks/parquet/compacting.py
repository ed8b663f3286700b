"""Compaction of the sink `parquet`: the folders of many windows become few, also while windows are written and read.

    1 claimed    from now on, earlier compactions can replace nothing
    2 written    a new folder has the rows that count in the old folders
    3 verified   the new folder was read back, and has the same rows
    4 replaced   one compare-and-set: the new folder counts instead of the old ones
    5 removed    the old folders, and what killed compactions have left
    6 finished   the claim is released

After a crash at any step, run the compaction again. A folder is removed only when its replacement counts. A folder that
the ledger does not name counts for no reader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.errors import VerificationFailed, WrongUse
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.contract import Asked
from tidemark.sinks.parquet import compacting, compactions
from tidemark.sinks.parquet import files as parquet_files
from tidemark.sinks.parquet.compactions import CompactedFolder, described, spans
from tidemark.sinks.parquet.parts import Part, parts
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark_spark.columns import field
from tidemark_spark.readers.parquet import columns_of, rows_of
from tidemark_spark.runtime.session import stream_session
from tidemark_spark.sinks.parquet.writer import keys_of, write

log = logging.getLogger(__name__)

# The size of Spark's splits of a file. Larger files gain nothing, and take longer to rewrite.
FILE_BYTES = 128 * 1024 * 1024
_MOST_ROWS = 2**63 - 1


class Step(StrEnum):
    """The step that the compaction has just done."""

    CLAIMED = "claimed"
    WRITTEN = "written"
    VERIFIED = "verified"
    REPLACED = "replaced"
    REMOVED = "removed"
    FINISHED = "finished"


Listener = Callable[[Step], None]


def nobody(step: Step) -> None:
    """A listener that ignores all steps."""


def compact(
    opened: OpenStream, sink: ParquetSink, run: str, asked: Asked, on_step: Listener = nobody
) -> list[CompactedFolder]:
    """Compact what is asked for, and finish what an earlier compaction left; returns the new folders.

    Raises Fenced when another compaction of the sink has begun meanwhile, and WrongUse for a sink under a new name.
    Also raises VerificationFailed, TooLarge, OwnedByAnother.
    """
    book = opened.book
    spark = stream_session(f"tidemark compaction of {book.stream}/{sink.name}", opened)
    base = sink.base(opened.connections)
    register = book.register()
    if register is None:
        raise WrongUse(f"{book.stream} has not been read yet: there is nothing to compact")
    parquet_files.own(base, book.stream, register[1].ledger, sink.name)

    def heard(step: Step) -> None:
        log.info("compaction of %s/%s: %s", book.stream, sink.name, step.value)
        on_step(step)

    held = compactions.claim(book, sink.name, run)
    heard(Step.CLAIMED)
    view = book.view(sink.name)
    chosen = compacting.choose(parts(view.windows, view.authority, sink.name, held.value), base, asked)
    made: list[CompactedFolder] = []
    for number, group in enumerate(compacting.groups(chosen), 1):
        folder = _planned(opened, held, base, number, group)
        compactions.check_room(book, compactions.replaced(held, structs.replace(folder, rows=_MOST_ROWS)))
        try:
            rows = _rewrite(spark, sink, group, folder.folder, heard)
        except Exception:
            compactions.check_held(book, held)
            raise
        made.append(structs.replace(folder, rows=rows))
        held = compactions.replace(book, held, made[-1])
        heard(Step.REPLACED)
    compacting.remove_replaced(book, held.value, base, _claim(held).generation)
    heard(Step.REMOVED)
    compactions.finish(book, held)
    heard(Step.FINISHED)
    return made


def _claim(held: compactions.Stored) -> compactions.Claim:
    if held.value.claim is None:
        raise ValueError("nobody holds this compaction")
    return held.value.claim


def _planned(
    opened: OpenStream, held: compactions.Stored, base: str, number: int, group: Sequence[Part]
) -> CompactedFolder:
    claim = _claim(held)
    return CompactedFolder(
        base=base,
        folder=parquet_files.attempt_folder(base, parquet_files.COMPACTED, number, claim.generation),
        generation=claim.generation,
        windows=spans(name for part in group for name in part.names),
        rows=0,
        run=claim.run,
        at=opened.book.clock(),
    )


def _rewrite(spark: SparkSession, sink: ParquetSink, group: Sequence[Part], folder: str, heard: Listener) -> int:
    """Write the rows that count in some folders into a new folder, and return their number."""
    schema = columns_of(spark, next(part for part in group if part.holds))
    rows = rows_of(spark, group, schema, windows=True)
    files = -(-compacting.size(group).bytes // FILE_BYTES) or 1
    keys = keys_of(sink, rows)
    spread = rows.repartition(files, *(field(key.field) for key in keys)) if keys else rows.coalesce(files)
    write(spread, sink, folder)
    heard(Step.WRITTEN)
    held = spark.read.schema(rows.schema).option("recursiveFileLookup", True).parquet(folder)
    read, found = _fingerprint(rows), _fingerprint(held)
    if read != found:
        raise VerificationFailed(
            f"{described(spans(name for part in group for name in part.names))} have {read[0]} rows that count, and "
            f"{folder} has {found[0]}, or others. It does not count, and nothing was removed. Run it again."
        )
    heard(Step.VERIFIED)
    return found[0]


def _fingerprint(rows: DataFrame) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes. A sum, so that a row that stands twice changes it."""
    each = F.xxhash64(*(field(name) for name in rows.columns)).cast("decimal(38,0)")
    found = rows.agg(F.count("*").alias("rows"), F.sum(each).alias("hashes")).collect()[0]
    return found["rows"], int(found["hashes"] or 0)
