"""A Delta table with the newest row of each key, through delta-rs.

    BASE/_delta_log/...
    BASE/_bucket=NUMBER/*.parquet     the rows of a bucket's keys
    BASE/_history/...                 what the windows have written, see `tidemark.sinks.latest.history`

A version replaces the files of some buckets. It is committed as the one after the version that it was made from, or not at
all: delta-rs has its own retries switched off.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from tidemark.ledger.ledger import now_ms
from tidemark.sinks.aggregates.states import Values
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.latest.folds import Fold, NewestFold
from tidemark.sinks.latest.history import conformed, rows_of_file
from tidemark.sinks.latest.marks import COMPRESSION, NOTED, RESTORED, check_marks, key_of, marks, values_of
from tidemark.sinks.latest.rows import BUCKET, columns
from tidemark.sinks.latest.table import Stage
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.settings import Compression
from tidemark.sinks.parquet.types import unless_without_rows
from tidemark.sinks.versions import NOTES_READ
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import NEVER, Names

TYPE = "delta_latest"


def prepare(
    base: str,
    fields: Mapping[str, FieldType],
    stream: str,
    ledger: str,
    key: Sequence[str],
    buckets: int,
    compression: Compression,
    was: Names = NEVER,
) -> None:
    """Make the table, or check its owner, its key and its buckets, and add the columns that it lacks.

    Raises what `delta_table.prepare` raises, and WrongUse for a table with another key or number of buckets.
    """
    kept = marks(key, buckets, compression)
    delta_table.prepare(base, columns(fields), stream, ledger, was, BUCKET, kept)
    keep_marks(base, kept)


def keep_marks(base: str, kept: Mapping[str, str], was: Names = NEVER) -> None:
    """Check the marks of the table that is there, and change those that may change. Raises WrongUse as `check_marks` does."""
    there = delta_table.prepared(base).metadata().configuration
    if changed := unless_without_rows([base], lambda: check_marks(base, there, kept, "folder", was), kept):
        properties = dict(changed)
        delta_table.change(base, lambda table: table.alter.set_table_properties(properties, raise_if_not_exists=False))


@dataclass(frozen=True)
class DeltaVersion:
    """A version of the table, with the files of each bucket."""

    base: str
    table: DeltaTable

    @property
    def name(self) -> str:
        return str(self.table.version())

    @cached_property
    def columns(self) -> pa.Schema:
        # Without the views and large types that delta-rs has of its own.
        there = pa.schema(self.table.schema().to_arrow())
        ours = columns({})
        return pa.schema([ours.field(one.name) if one.name in ours.names else one for one in there])

    @property
    def restored(self) -> str:
        return self.table.metadata().configuration.get(RESTORED, "")

    @cached_property
    def noted(self) -> str:
        # What is read of the log may be newer than this version.
        said = (one for one in self.table.history(NOTES_READ) if one["version"] <= self.table.version())
        return next((one[NOTED] for one in said if NOTED in one), "")

    def said(self) -> Iterable[Mapping[str, str]]:
        return self.table.history(NOTES_READ)

    @cached_property
    def key(self) -> tuple[str, ...]:
        return key_of(self.table.metadata().configuration)

    @cached_property
    def values(self) -> Values:
        return values_of(self.table.metadata().configuration)

    @cached_property
    def files(self) -> dict[int, list[str]]:
        """The names of the files, below the base, by bucket."""
        return _by_bucket(self._added, "path")

    @cached_property
    def sizes(self) -> dict[int, int]:
        return {bucket: sum(sizes) for bucket, sizes in _by_bucket(self._added, "size_bytes").items()}

    @property
    def outside(self) -> int:
        if not self._added.num_rows:
            return 0
        rows = zip(
            self._added.column(f"partition.{BUCKET}").to_pylist(),
            self._added.column("num_records").to_pylist(),
            strict=True,
        )
        return sum(number or 1 for bucket, number in rows if bucket is None)

    @cached_property
    def _added(self) -> pa.Table:
        return pa.table(self.table.get_add_actions(flatten=True))

    def paths(self, bucket: int) -> list[str]:
        return [f"{self.base}/{name}" for name in self.files.get(bucket, ())]

    def rows(self, buckets: Collection[int], columns: pa.Schema) -> pa.Table:
        tables = [columns.empty_table()]
        for bucket in buckets:
            for name in self.paths(bucket):
                rows = rows_of_file(name, columns)
                rows = rows.append_column(BUCKET, pa.repeat(pa.scalar(bucket, pa.int32()), rows.num_rows))
                tables.append(conformed(rows, columns))
        return pa.concat_tables(tables)


def _by_bucket(added: pa.Table, column: str) -> dict[int, list]:  # type: ignore[type-arg]
    by_bucket: dict[int, list] = {}  # type: ignore[type-arg]
    if added.num_rows:
        buckets = added.column(f"partition.{BUCKET}").to_pylist()
        for bucket, value in zip(buckets, added.column(column).to_pylist(), strict=True):
            # Rows of no bucket are of another program.
            if bucket is not None:
                by_bucket.setdefault(int(bucket), []).append(value)
    return by_bucket


@dataclass(frozen=True)
class DeltaLatest:
    """Where the table is."""

    base: str
    kind: str = TYPE
    fold: Fold = field(default_factory=NewestFold)

    def opened(self) -> DeltaVersion | None:
        try:
            return DeltaVersion(self.base, delta_table.opened(self.base))
        except TableNotFoundError:
            return None

    def identity(self) -> str | None:
        return delta_table.identity(self.base)

    def change(self, stage: Stage, said: dict[str, str]) -> None:
        def changed(table: DeltaTable) -> None:
            version = DeltaVersion(self.base, table)
            compression = table.metadata().configuration.get(COMPRESSION, "snappy")
            added: dict[str, AddAction] = {}

            def write(bucket: int, rows: pa.Table, mark: str) -> str | None:
                if not rows.num_rows:
                    return None
                action = _written(self.base, bucket, rows, compression, mark)
                added[action.path] = action
                return action.path

            made = stage(version, write)
            actions: list[AddAction | RemoveAction] = [
                RemoveAction(one, True, now_ms(), partition_values=_partition(bucket))
                for bucket in made.files
                for one in version.files.get(bucket, ())
            ]
            actions += [added[name] for name in made.files.values() if name is not None]
            if actions:
                noted = {NOTED: made.noted} if made.noted else {}
                properties = CommitProperties(custom_metadata={**said, **noted}, max_commit_retries=0)
                hooks = delta_table.after_commit(table)
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    [BUCKET],
                    commit_properties=properties,
                    post_commithook_properties=hooks,
                )

            if made.restored != version.restored:
                # After the rows: whoever dies in between leaves a table that is looked at once more.
                mark = {RESTORED: made.restored}
                delta_table.opened(self.base).alter.set_table_properties(mark, raise_if_not_exists=False)

        delta_table.change(self.base, changed)


def _partition(bucket: int) -> dict[str, str | None]:
    return {BUCKET: str(bucket)}


def _written(base: str, bucket: int, rows: pa.Table, compression: str, mark: str) -> AddAction:
    """Write a file of a bucket, and say how a version adds it."""
    made = pa.BufferOutputStream()
    pq.write_table(rows.drop_columns([BUCKET]), made, compression=compression)
    file = made.getvalue()
    name = f"{BUCKET}={bucket}/{mark}{uuid4()}.parquet"
    with folders.opened(f"{base}/{name}") as (filesystem, path):
        # A bucket of an object store has no folders.
        if isinstance(filesystem, fs.LocalFileSystem):
            # Not the table's folder, which is gone if its disk is.
            filesystem.create_dir(path.rpartition("/")[0], recursive=False)
        with filesystem.open_output_stream(path) as stream:
            stream.write(file)
    statistics = json.dumps(delta_table.statistics(pq.read_metadata(pa.BufferReader(file))))
    return AddAction(name, file.size, _partition(bucket), now_ms(), True, statistics)
