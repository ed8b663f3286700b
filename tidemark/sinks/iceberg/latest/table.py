"""An Iceberg table with the newest row of each key.

    BASE/data/bucket-NUMBER-*.parquet     the rows of a bucket's keys
    BASE/metadata/...
    BASE/_history/...                     what the windows have written, see `tidemark.sinks.latest.history`

A snapshot replaces the files of some buckets. It is committed on the version that it was made from, or not at all: the
library's own retries are off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table, Transaction
from pyiceberg.typedef import Record
from pyiceberg.types import BooleanType, IcebergType, IntegerType, LongType

from tidemark.sinks.aggregates.states import Values
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import CatalogTable, LakeIO, opened
from tidemark.sinks.iceberg.live_files import LiveFile, live_files
from tidemark.sinks.iceberg.partitions import IdentityPartition
from tidemark.sinks.iceberg.schema import arrow_schema
from tidemark.sinks.latest.folds import Fold, NewestFold
from tidemark.sinks.latest.history import conformed, rows_of_file
from tidemark.sinks.latest.marks import COMPRESSION, NOTED, RESTORED, check_marks, key_of, marks, values_of
from tidemark.sinks.latest.rows import BUCKET, DELETED, KEY_HASH
from tidemark.sinks.latest.table import Stage
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.settings import Compression
from tidemark.sinks.parquet.types import refuse_other_name, unless_without_rows
from tidemark.sinks.versions import NOTES_READ
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import NEVER, Names

TYPE = "iceberg_latest"
OF_BUCKET: Mapping[str, IcebergType] = {BUCKET: IntegerType()}
PARTITIONS = [IdentityPartition(BUCKET)]
_MORE: Mapping[str, IcebergType] = {DELETED: BooleanType(), KEY_HASH: LongType(), **OF_BUCKET}


def prepare(
    where: CatalogTable,
    fields: Mapping[str, FieldType],
    stream: str,
    ledger: str,
    key: Sequence[str],
    buckets: int,
    compression: Compression,
    was: Names = NEVER,
) -> None:
    """Make the table, or check its owner, its key and its buckets, and add the columns that it lacks.

    Raises what `iceberg_table.prepare` raises, and WrongUse for a table with another key or number of buckets.
    """
    kept = marks(key, buckets, compression)
    as_stored(where, fields, was)
    iceberg_table.prepare(where, fields, stream, ledger, PARTITIONS, more=_MORE, kept=kept)
    keep_marks(where, kept)


def keep_marks(where: CatalogTable, kept: Mapping[str, str], was: Names = NEVER) -> None:
    """Check the marks of the table that is there, and change those that may change. Raises WrongUse as `check_marks` does."""
    iceberg_table.change(where, lambda table, transaction, _: _kept(where, table, transaction, kept, was))


def as_stored(where: CatalogTable, fields: Mapping[str, FieldType], was: Names = NEVER) -> dict[str, FieldType]:
    """As `iceberg_table.as_stored`. Raises WrongUse too for a column that is to have another name."""
    table = opened(where)
    there = [one.name for one in table.schema().fields] if table is not None else []
    why = "the history below the table has the older name"
    unless_without_rows([where.base], lambda: refuse_other_name(where, there, was, why, "table and folder"), None)
    return iceberg_table.as_stored(where, fields)


def _kept(where: CatalogTable, table: Table, transaction: Transaction, kept: Mapping[str, str], was: Names) -> bool:
    changed = unless_without_rows(
        [where.base], lambda: check_marks(where, table.properties, kept, "table and folder", was), kept
    )
    if changed:
        transaction.set_properties(dict(changed))
    return bool(changed)


@dataclass(frozen=True)
class IcebergVersion:
    """A version of the table, with the files of each bucket."""

    table: Table

    @property
    def name(self) -> str:
        return self.table.metadata_location

    @cached_property
    def columns(self) -> pa.Schema:
        return arrow_schema(self.table.schema())

    @property
    def restored(self) -> str:
        return self.table.properties.get(RESTORED, "")

    @property
    def noted(self) -> str:
        return self.table.properties.get(NOTED, "")

    def said(self) -> Iterable[Mapping[str, str]]:
        newest = self.table.current_snapshot()
        for _ in range(NOTES_READ):
            if newest is None:
                return
            yield newest.summary.additional_properties if newest.summary is not None else {}
            parent = newest.parent_snapshot_id
            newest = None if parent is None else self.table.snapshot_by_id(parent)

    @cached_property
    def key(self) -> tuple[str, ...]:
        return key_of(self.table.properties)

    @cached_property
    def values(self) -> Values:
        return values_of(self.table.properties)

    @cached_property
    def files(self) -> dict[int, list[LiveFile]]:
        by_bucket: dict[int, list[LiveFile]] = {}
        for one in self._live:
            # Rows of no bucket are of another program.
            if (bucket := one.file.partition[0]) is not None:
                by_bucket.setdefault(bucket, []).append(one)
        return by_bucket

    @cached_property
    def _live(self) -> list[LiveFile]:
        return live_files(self.table)

    @property
    def outside(self) -> int:
        return sum(one.file.record_count for one in self._live if one.file.partition[0] is None)

    @cached_property
    def sizes(self) -> dict[int, int]:
        return {bucket: sum(one.file.file_size_in_bytes for one in some) for bucket, some in self.files.items()}

    def paths(self, bucket: int) -> list[str]:
        return [one.path for one in self.files.get(bucket, ())]

    def rows(self, buckets: Collection[int], columns: pa.Schema) -> pa.Table:
        names = (path for bucket in buckets for path in self.paths(bucket))
        return pa.concat_tables(
            [columns.empty_table(), *(conformed(rows_of_file(one, columns), columns) for one in names)]
        )


@dataclass(frozen=True)
class IcebergLatest:
    """Where the table is."""

    where: CatalogTable
    kind: str = TYPE
    fold: Fold = field(default_factory=NewestFold)

    @property
    def base(self) -> str:
        return self.where.base

    def opened(self) -> IcebergVersion | None:
        table = opened(self.where)
        return None if table is None else IcebergVersion(table)

    def identity(self) -> str | None:
        table = opened(self.where)
        return None if table is None else str(table.metadata.table_uuid)

    def change(self, stage: Stage, said: dict[str, str]) -> None:
        def staged(table: Table, transaction: Transaction, made: list[str]) -> bool:
            version = IcebergVersion(table)

            def write(bucket: int, rows: pa.Table, mark: str) -> str | None:
                name = f"{self.base}/data/bucket-{bucket}-{mark}{uuid4()}.parquet"
                made.append(name)
                return _written(name, rows, table.properties.get(COMPRESSION, "snappy"))

            done = stage(version, write)
            old = [(one, "") for bucket in done.files for one in version.files.get(bucket, ())]
            described = (
                data_files.described(table.metadata, name, Record(bucket))
                for bucket, name in done.files.items()
                if name is not None
            )
            new = [one for one in described if one is not None]
            if marked := done.restored != version.restored:
                transaction.set_properties({RESTORED: done.restored})
            if done.noted and (old or new):
                transaction.set_properties({NOTED: done.noted})
            if changes := bool(old or new or marked):
                # Also of the mark alone: a REST server compares snapshots, and no properties.
                iceberg_table.snapshot(table, transaction, old, new, said)
            return changes

        iceberg_table.change(self.where, staged)


def _written(name: str, rows: pa.Table, compression: str) -> str | None:
    if not rows.num_rows:
        return None
    with folders.naming(name), LakeIO().new_output(name).create() as stream:
        pq.write_table(rows, stream, compression=compression)
    return name
