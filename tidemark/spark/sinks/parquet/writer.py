"""Results in Parquet: a folder for each window and attempt, which the receipt names."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.parquet import files as parquet_files
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.compacting import Folders
from tidemark.sinks.parquet.settings import FolderKey
from tidemark.spark.columns import (
    COORDINATE,
    DIGEST,
    INDEX,
    MESSAGE_HASH,
    OFFSET,
    ROW_HASH,
    TOMBSTONE,
    field,
    message_hash,
    row_hash,
)
from tidemark.spark.readers.parquet import schema_of
from tidemark.spark.sinks.acknowledging import held_by
from tidemark.spark.sinks.contract import WriteContext
from tidemark.types.fields import spark_type
from tidemark.types.renamed_fields import NEVER, Names

# Smaller files are read back by the driver, some 10 million rows a second. A cluster reads larger ones back faster.
_FEW_BYTES = 256 << 20
# A folder's name has at most this many characters of a value. With its column and Spark's escapes, the name stays below
# 255 bytes, the most that file systems allow.
_MAX_CHARACTERS = 60
# Spark's folder for null, in small letters: some file systems do not tell it from others.
_OF_NULL = "__hive_default_partition__"
# Options of Parquet. Each row has other values here: Parquet would make a dictionary of them, and then throw it away.
ALL_DIFFER = {f"parquet.enable.dictionary#{name}": "false" for name in (OFFSET, DIGEST)}


class ParquetResults:
    """The sink `parquet`. Its fields keep their types; the coordinate and the digest are columns too."""

    def __init__(self, config: Folders, base: str, fields: Fields, was: Names = NEVER) -> None:
        self._config = config
        self._base = base
        self._fields = fields
        self._was = was

    @property
    def name(self) -> str:
        return self._config.name

    @cached_property
    def _stored(self) -> Fields:
        """The fields as files have them, which may be wider. Known once the sink is prepared."""
        return types.as_stored(self._base, self._fields, self._was)

    def prepare(self, stream: str, ledger: str) -> None:
        parquet_files.own(self._base, stream, ledger, self.name)
        types.keep(self._base, self._fields, self._was)

    def refusal(self, fields: Fields) -> None:
        return None

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        context.fence.check()
        folder = self._folder(context)
        write(as_stored(rows, self._fields, self._stored), self._config, folder)
        types.check_unchanged(self._base, self._stored, self._was)
        return read_back(rows, folder)

    def written(self, spark: SparkSession, context: WriteContext) -> DataFrame:
        return written_rows(spark, schema_of(self._stored), self._folder(context))

    def discard(self, context: WriteContext) -> None:
        parquet_files.delete(self._folder(context))

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = {"base": self._base, "folder": self._folder(context)}
        return SinkReceipt(name=self.name, type=parquet_files.TYPE, place=place)

    def _folder(self, context: WriteContext) -> str:
        return parquet_files.attempt_folder(self._base, context.lane, context.seq, context.generation)


def as_stored(rows: DataFrame, fields: Fields, stored: Fields) -> DataFrame:
    """The columns of files: coordinate, index, tombstone, digest, and the fields in the types that they are stored in."""
    typed = (
        field(name) if stored[name] == kind else field(name).cast(spark_type(stored[name])).alias(name)
        for name, kind in fields.items()
    )
    return rows.select(*COORDINATE, INDEX, TOMBSTONE, DIGEST, *typed)


def read_back(rows: DataFrame, *paths: str) -> Acknowledgements:
    """Count the rows that files hold, by the columns of `rows`: a file system acknowledges no rows."""
    few = parquet_files.held(_FEW_BYTES, *paths)
    if few is not None:
        return few
    schema = rows.select(*COORDINATE, INDEX, DIGEST).schema
    return held_by(rows.sparkSession.read.schema(schema).option("recursiveFileLookup", True).parquet(*paths))


def written_rows(spark: SparkSession, schema: StructType, *paths: str) -> DataFrame:
    """The rows of files that an attempt has written, as its sinks take them."""
    files = spark.read.schema(schema).option("recursiveFileLookup", True)
    rows = files.parquet(*paths) if paths else spark.createDataFrame([], schema)
    return rows.withColumns({MESSAGE_HASH: message_hash(), ROW_HASH: row_hash()})


def write(rows: DataFrame, config: Folders, folder: str) -> None:
    """Write a folder as the stream file says. Spark fails if the folder exists: no folder is written twice."""
    keys = keys_of(config, rows)
    writer = rows.withColumns({key.column: _folder_name(key) for key in keys}).write.mode("errorifexists")
    writer.options(compression=config.compression, **ALL_DIFFER).partitionBy(*(key.column for key in keys)).parquet(
        folder
    )


def keys_of(config: Folders, rows: DataFrame) -> tuple[FolderKey, ...]:
    """The keys that name these rows' folders. Rows of older windows may lack a field, or have another type for it."""
    kinds = dict(rows.dtypes)
    fit = {
        key: (kinds.get(key.field) in ("timestamp", "timestamp_ntz")) == (key.part is not None)
        for key in config.folder_keys()
    }
    return tuple(key for key in config.folder_keys() if key.field in kinds and fit[key])


def _folder_name(key: FolderKey) -> Column:
    """The value in the name of a row's folder, in ASCII, because the names of files depend on a machine's locale.

    Two values may share a folder, since the files have the field itself. Null and empty text share Spark's default
    folder. Long texts with the same beginning share one too.
    """
    if key.part is not None:
        return F.date_format(field(key.field), "yyyy-MM-dd" if key.part == "date" else "yyyy-MM-dd-HH")
    begins = F.substring(field(key.field).cast("string"), 1, _MAX_CHARACTERS)
    name = F.substring(F.url_encode(begins), 1, _MAX_CHARACTERS)
    # A text that is called like the folder of null: a task cannot write two files there. Decoded, it is the same.
    return F.when(F.lower(name) == _OF_NULL, F.concat(F.lit("%5F"), F.substring(name, 2, len(_OF_NULL)))).otherwise(
        name
    )
