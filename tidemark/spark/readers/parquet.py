"""The rows of Parquet folders that count, as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import PartitionTally
from tidemark.schemes.kinds import Fields
from tidemark.sinks.parquet.files import GENERATION, WINDOW_COLUMNS, exists, schema_of_file
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.spark.columns import AT, COORDINATE, DIGEST, INDEX, TOMBSTONE, content_digest, field, text
from tidemark.spark.readers.places import COUNTS, FOUND_DIGEST, OTHERS
from tidemark.spark.rows.selecting import without_lost
from tidemark.spark.runtime.session import PARQUET_ROWS, setting
from tidemark.types.fields import columns_in_ddl
from tidemark.types.renamed_fields import NEVER, Names

_WINDOW = tuple(map(StructField, WINDOW_COLUMNS, (StringType(), IntegerType(), LongType())))

# How many rows of a file Spark takes at a time, as columns in memory: for this many bytes of messages, and at most this many
# rows, since some messages may be far larger than others.
_BYTES_AT_A_TIME, _FEWEST_ROWS, _MAX_ROWS = 16 << 20, 16, 256


def rows_at_a_time(spark: SparkSession, tallies: Iterable[PartitionTally]) -> AbstractContextManager[None]:
    """Within this, rows of files are read as fast as the size of their messages allows: those that these tallies count."""
    return setting(spark, PARQUET_ROWS, str(number_at_a_time(tallies)))


def number_at_a_time(tallies: Iterable[PartitionTally]) -> int:
    average = max((tally.bytes / tally.read.number for tally in tallies if tally.read.number), default=_BYTES_AT_A_TIME)
    return max(_FEWEST_ROWS, int(min(_MAX_ROWS, _BYTES_AT_A_TIME / max(average, 1))))


def rows_of(
    spark: SparkSession, parts: Iterable[FolderPart], schema: StructType, was: Names = NEVER, *, windows: bool = False
) -> DataFrame:
    """The rows that count in some folders. The plan has two reads at most, however many folders and newer windows there are.

    Columns: those of `schema`, null where a file lacks one under its name and under those of `was`. With `windows`, also the
    window and generation that wrote the row (not for Delta tables). If a folder is missing, Spark fails and names it.
    """
    # Rows whose generation is not asked for cost less to read.
    whole: list[str] = []
    named: list[str] = []
    unnamed: dict[int, list[str]] = {}
    lost: dict[int, RangeSet] = {}
    delta = False
    for part in parts:
        if not part.holds:
            continue
        delta = part.files is not None
        if not (part.lost or windows):
            whole += part.paths
            continue
        lost |= part.lost
        generation = part.windows[0].generation
        for path in part.paths:
            if part.files is None or part.compacted or f"/{GENERATION}={generation}/" in path:
                named.append(path)
            else:
                unnamed.setdefault(generation, []).append(path)
    everything = StructType([*schema.fields, *_WINDOW])
    # Delta's folders are named after the column.
    frames = (
        [_with_windows(_read(spark, everything, named, was), schema, GENERATION if delta else "generation")]
        if named
        else []
    )
    # Another program may have put files of a Delta table into other folders.
    frames += [
        _read(spark, everything, some, was).withColumn(GENERATION, F.lit(generation))
        for generation, some in unnamed.items()
    ]
    kept = [without_lost(reduce(DataFrame.unionAll, frames), GENERATION, lost)] if frames else []
    if not windows:
        kept = [one.drop(*WINDOW_COLUMNS) for one in kept]
    if whole:
        kept.append(_read(spark, schema, whole, was))
    return reduce(DataFrame.unionAll, kept) if kept else spark.createDataFrame([], everything if windows else schema)


def _read(spark: SparkSession, schema: StructType, paths: Sequence[str], was: Names) -> DataFrame:
    before = {column.name: was[column.name] for column in schema if column.name in was}
    older = [StructField(old, schema[name].dataType) for name, names in before.items() for old in names]
    # The files have all columns. The names of their folders may differ from window to window.
    files = spark.read.schema(StructType([*schema, *older])).option("recursiveFileLookup", True).parquet(*paths)
    if not before:
        return files
    return files.select(*(F.coalesce(*map(field, (name, *before.get(name, ())))).alias(name) for name in schema.names))


def _with_windows(rows: DataFrame, schema: StructType, generation: str) -> DataFrame:
    """The window of each row: from its columns in a compacted folder, else from the names of its folders."""
    # The last such folders of a path, wherever the base folder is: their values have no slash.
    windows = (
        F.expr(
            f"coalesce({one.name}, cast(substring_index(substring_index(_metadata.file_path, '/{folder}=', -1), '/', 1) as "
            f"{one.dataType.simpleString()}))"
        ).alias(one.name)
        for one, folder in zip(_WINDOW, ("lane", "seq", generation), strict=True)
    )
    return rows.select(*(rows[f"`{name}`"] for name in schema.names), *windows)


def columns_of(spark: SparkSession, part: FolderPart) -> StructType:
    """The columns that the files of a folder have, without those of the window."""
    columns = spark.read.option("recursiveFileLookup", True).parquet(*part.paths).schema
    return StructType([one for one in columns if one.name not in WINDOW_COLUMNS])


def parquet_rows(
    spark: SparkSession, parts: Iterable[FolderPart], fields: Fields, was: Names = NEVER, *, gone: bool = False
) -> DataFrame:
    """The rows of some folders of a Parquet sink that count: coordinate, `_index`, `_tombstone`, `_digest`, and the fields.

    The fields are those of today's stream file; a field that older files lack, under its name and those of `was`, is null.
    With `gone`, a missing folder has no rows, so that the audit finds its rows missing. Without `gone`, Spark fails and names
    the folder.
    """
    there = [part for part in parts if not gone or all(map(exists, part.paths))]
    return rows_of(spark, there, schema_of(fields), was)


def schema_of(fields: Fields) -> StructType:
    """The columns of a sink's files: coordinate, `_index`, `_tombstone`, `_digest`, and the fields with their types."""
    place = f"{AT[0]} string, {AT[1]} int, {AT[2]} int, {COORDINATE[3]} long, {INDEX} int"
    return cast(
        "StructType", StructType.fromDDL(f"{place}, {TOMBSTONE} boolean, {DIGEST} long, {columns_in_ddl(fields)}")
    )


def places_of(
    spark: SparkSession, parts: Iterable[FolderPart], fields: Fields, was: Names = NEVER, within: RangeSet | None = None
) -> DataFrame:
    """The rows of some folders as an audit compares them: with `_counts` and `_found_digest`. Missing folders have no rows.

    With `within`, only folders whose windows cover some of these offsets.
    """
    if within is not None:
        parts = [one for one in parts if any(part.covers & within for part in one.windows)]
    rows = parquet_rows(spark, parts, fields, was, gone=True)
    return rows.withColumns({COUNTS: F.lit(True), FOUND_DIGEST: content_digest(fields)})


def values_of(
    spark: SparkSession,
    parts: Iterable[FolderPart],
    fields: Fields,
    within: RangeSet,
    was: Names = NEVER,
    *,
    own: Collection[str] = (),
) -> DataFrame:
    """The rows of some folders as a comparison takes them: coordinate, `_index`, the fields' text or bytes, `_others`.

    Only of folders whose windows cover some of `within`. `_others` names the columns with a value that today's stream file
    does not have, but for those that the sink adds as its `own`. Missing folders have no rows.
    """
    ours = schema_of(fields)
    known = {*ours.names, *own, *(old for name in fields for old in was.get(name, ()))}
    chosen = [one for one in parts if any(part.covers & within for part in one.windows) and all(map(exists, one.paths))]
    # Folders of one stream file have the same columns: mostly all of them. To ask Spark of each takes a job.
    alike: dict[tuple[str, ...], list[FolderPart]] = {}
    for part in chosen:
        if part.holds:
            beyond = [f"{one.name} {one.type}" for one in schema_of_file(part) if one.name not in known]
            alike.setdefault(tuple(beyond), []).append(part)
    frames = []
    for some in alike.values() or [[]]:
        more = [one for one in columns_of(spark, some[0]) if one.name not in known] if some else []
        others = F.array(*(F.when(F.col(f"`{column.name}`").isNotNull(), F.lit(column.name)) for column in more))
        frames.append(
            rows_of(spark, some, StructType([*ours, *more]), was).select(
                *COORDINATE,
                INDEX,
                *(text(name, kind).alias(f"field_{number}") for number, (name, kind) in enumerate(fields.items())),
                F.array_compact(others.cast("array<string>")).alias(OTHERS),
            )
        )
    return reduce(DataFrame.unionAll, frames)


def shown(rows: DataFrame, fields: Fields, *more: str) -> DataFrame:
    """The rows of `parquet_rows` as people see them, with `more` columns."""
    return rows.select(*COORDINATE, INDEX, TOMBSTONE, *(field(name) for name in fields), *more)
