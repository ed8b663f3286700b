"""The job that rewrites the folders of many windows into few, while windows are written and read.

    1 claimed    from now on no compaction that has begun before can replace anything
    2 written    what counts in the folders that are replaced, in a folder of its own
    3 verified   what was written is read back, and is what was read
    4 replaced   one compare-and-set: the new folder counts in their place
    5 removed    the folders that were replaced, and what killed compactions have left
    6 finished   the claim is given back

A crash after any of these is met by running again. Nothing is removed before its replacement counts, and what nobody has
named counts for nobody.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.errors import EXIT_DONE, VerificationFailed, WrongUse
from tidemark.ledger import compactions
from tidemark.ledger.compactions import CompactedFolder, described, spans
from tidemark.results import compacting, parquet_files
from tidemark.results.compacting import Asked
from tidemark.results.parquet_parts import Part, parts
from tidemark.streams.opened import OpenStream, open_stream
from tidemark.streams.parquet_sink import ParquetSink
from tidemark_spark.columns import field
from tidemark_spark.parquet_reading import columns_of, rows_of
from tidemark_spark.session import open_session
from tidemark_spark.sinks.parquet import keys_of, write

log = logging.getLogger(__name__)

# As large as Spark's pieces of a file: larger ones gain nothing, and take longer to write again.
FILE_BYTES = 128 * 1024 * 1024
_MOST_ROWS = 2**63 - 1


class Step(StrEnum):
    """What has just been done."""

    CLAIMED = "claimed"
    WRITTEN = "written"
    VERIFIED = "verified"
    REPLACED = "replaced"
    REMOVED = "removed"
    FINISHED = "finished"


Listener = Callable[[Step], None]


def nobody(step: Step) -> None:
    """A listener that does not listen."""


def main(arguments: list[str], on_step: Listener = nobody) -> int:
    parser = argparse.ArgumentParser(prog="compact_stream")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument(
        "--before", type=int, help="only windows committed before this time, in milliseconds since 1970"
    )
    parser.add_argument("--windows", type=int, help="at most so many, the oldest ones")
    parser.add_argument("--again", action="store_true", help="compacted folders too")
    options = parser.parse_args(arguments)
    opened = open_stream(options.stream_file)
    asked = Asked(options.before, options.windows, options.again)
    compact(opened, opened.parquet_sink(options.sink), options.run, asked, on_step)
    return EXIT_DONE


def compact(
    opened: OpenStream, sink: ParquetSink, run: str, asked: Asked, on_step: Listener = nobody
) -> list[CompactedFolder]:
    """Compact what is asked for, and finish what an earlier compaction did not; gives the new folders.

    Raises Fenced when another compaction of the sink has begun meanwhile, VerificationFailed, TooLarge, OwnedByAnother,
    WrongUse for a sink under a new name.
    """
    book = opened.book
    spark = open_session(f"tidemark compaction of {book.stream}/{sink.name}")
    base = opened.files_base(sink)
    register = book.register()
    if register is None:
        raise WrongUse(f"{book.stream} has not been read yet: there is nothing to compact")
    parquet_files.own(base, book.stream, register[1].ledger, sink.name)

    def heard(step: Step) -> None:
        log.info("compaction of %s/%s: %s", book.stream, sink.name, step.value)
        on_step(step)

    held = compactions.claim(book, sink.name, run)
    heard(Step.CLAIMED)
    view = book.view()
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
    compacting.remove_replaced(book, held.value, base, _generation(held))
    heard(Step.REMOVED)
    compactions.finish(book, held)
    heard(Step.FINISHED)
    return made


def _generation(held: compactions.Stored) -> int:
    assert held.value.claim is not None
    return held.value.claim.generation


def _planned(
    opened: OpenStream, held: compactions.Stored, base: str, number: int, group: Sequence[Part]
) -> CompactedFolder:
    generation = _generation(held)
    assert held.value.claim is not None
    return CompactedFolder(
        base=base,
        folder=parquet_files.attempt_folder(base, parquet_files.COMPACTED, number, generation),
        generation=generation,
        windows=spans(name for part in group for name in part.names),
        rows=0,
        run=held.value.claim.run,
        at=opened.book.clock(),
    )


def _rewrite(spark: SparkSession, sink: ParquetSink, group: Sequence[Part], folder: str, heard: Listener) -> int:
    """Write what counts in some folders into a new one, and give the number of rows that are there."""
    schema = columns_of(spark, next(part for part in group if part.holds))
    rows = rows_of(spark, group, schema)
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
    """How many rows there are, and the sum of their hashes: a row that is there twice is not the same as once."""
    each = F.xxhash64(*(field(name) for name in rows.columns)).cast("decimal(38,0)")
    found = rows.agg(F.count("*").alias("rows"), F.sum(each).alias("hashes")).collect()[0]
    return found["rows"], int(found["hashes"] or 0)
