"""The rows of Parquet folders that count, as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tidemark.results.parquet_files import GENERATION, WINDOW_COLUMNS
from tidemark.results.parquet_parts import Part
from tidemark_spark.selecting import without

_WINDOW = tuple(map(StructField, WINDOW_COLUMNS, (StringType(), IntegerType(), LongType())))
# The last of them, wherever the base folder is: the folders below have no slash in their values.
_FOLDER = r"^.*/lane=([^/=]+)/seq=(\d+)/generation=(\d+)/"


def rows_of(spark: SparkSession, parts: Iterable[Part], schema: StructType) -> DataFrame:
    """The rows that count in some folders, in one read as far as no newer window has taken any of theirs.

    Columns: those of `schema`, null where a file does not have one, and the window and generation that wrote the row (not to
    be asked for of a Delta table).
    Spark fails where a folder is missing, and names it.
    """

    def read(*folders: str) -> DataFrame:
        # The files have all columns: what their folders are named by may differ from window to window.
        rows = spark.read.schema(schema).option("recursiveFileLookup", True).parquet(*folders)
        path = F.col("_metadata.file_path")
        named = (F.regexp_extract(path, _FOLDER, number) for number in (1, 2, 3))
        return rows.select(
            *(rows[f"`{name}`"] for name in schema.names),
            *(one.cast(kind.dataType).alias(kind.name) for one, kind in zip(named, _WINDOW, strict=True)),
        )

    whole: list[str] = []
    found: list[DataFrame] = []
    for part in parts:
        if not part.holds:
            continue
        if part.compacted:
            found += _of_compacted(spark, part, schema)
        elif part.lost:
            found += [without(read(*part.paths), lost) for lost in part.lost.values()]
        else:
            whole += part.paths
    if whole:
        found.append(read(*whole))
    everything = StructType([*schema.fields, *_WINDOW])
    return reduce(DataFrame.unionAll, found) if found else spark.createDataFrame([], everything)


def _of_compacted(spark: SparkSession, part: Part, schema: StructType) -> list[DataFrame]:
    everything = StructType([*schema.fields, *_WINDOW])
    rows = spark.read.schema(everything).option("recursiveFileLookup", True).parquet(part.folder)
    kept = [rows.where(~F.col(GENERATION).isin([*part.lost]))] if part.lost else [rows]
    for window in part.windows:
        lost = part.lost.get(window.generation)
        if lost and lost != window.covers:
            kept.append(without(rows.where(F.col(GENERATION) == window.generation), lost))
    return kept


def columns_of(spark: SparkSession, part: Part) -> StructType:
    """The columns that the files of a folder have, but for those of the window."""
    found = spark.read.option("recursiveFileLookup", True).parquet(part.folder).schema
    return StructType([one for one in found if one.name not in WINDOW_COLUMNS])
