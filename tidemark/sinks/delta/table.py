"""A Delta table of results, through delta-rs, without Spark.

    BASE/_delta_log/...
    BASE/_generation=GENERATION/*.parquet       what committed windows have written, see `publishing`
    BESIDE/lane=LANE/seq=NUMBER/generation=GENERATION/part-*.parquet    what an attempt writes, see `attempts`

Rows are never updated. Files are partitioned by the generation of their rows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tidemark.clients.lake import beside
from tidemark.errors import Conflict, Unreachable, WrongUse
from tidemark.ledger.records import Record
from tidemark.sinks.owners import check_owner
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.types import (
    columns_unchanged,
    other_type,
    refuse_other_case,
    refuse_other_name,
    unless_without_rows,
)
from tidemark.sinks.versions import GENERATION_SHOWN, LANE_SHOWN, NOTES_READ
from tidemark.sinks.versions import versions_of as versions_of
from tidemark.types.fields import FieldType, arrow_type, joined, of_arrow, text_of
from tidemark.types.renamed_fields import NEVER, Names

TYPE = "delta"
GENERATION = "_generation"
_STREAM, _LEDGER = "tidemark.stream", "tidemark.ledger"
# Features that only Delta readers understand. Tidemark and Spark read the table's files as plain Parquet.
_BEYOND = {"deletionVectors", "columnMapping"}
# The columns that files have statistics of. The table names them: readers such as delta-rs take a column that should have
# statistics, and has none, for one that is null throughout. Not all columns: JSON has no infinity, for one.
_PRUNED = ("_topic", "_incarnation", "_partition", "_offset")
STATISTICS = {"delta.dataSkippingStatsColumns": ",".join(_PRUNED)}
# Of a table without any of these columns.
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}
# After so many versions, those that are too old are looked for, as `delta.logRetentionDuration` says. delta-rs lists the log
# for that, which takes longer with each version: after 2,000 as long as the commit itself.
_CLEANED_EVERY = 100
# This many conflicts in a row are an error. Between two of them there is a random wait, in seconds at most.
_TIMES, _WAIT = 20, 0.2


def columns(fields: Mapping[str, FieldType]) -> pa.Schema:
    """The table's columns: Tidemark's, the stream's fields, and the generation that the table is partitioned by."""
    ours = [("_topic", pa.string()), ("_incarnation", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64())]
    ours += [("_index", pa.int32()), ("_tombstone", pa.bool_()), ("_digest", pa.int64())]
    return pa.schema([*ours, *((name, arrow_type(kind)) for name, kind in fields.items()), (GENERATION, pa.int64())])


def prepare(
    base: str,
    schema: pa.Schema,
    stream: str,
    ledger: str,
    was: Names = NEVER,
    partition: str = GENERATION,
    kept: Mapping[str, str] | None = None,
    statistics: Mapping[str, str] = STATISTICS,
) -> None:
    """Make the table, or check its owner and add the columns that it lacks. `kept`: properties that it is made with.

    `statistics`: the property that says which columns its files have them of.

    A table without rows gets today's columns, whatever it has. Raises what `check_owner` raises. Raises WrongUse for a table
    that cannot be read as plain files, for a column of another type or whose name differs in case, for what delta-rs
    refuses, and for a place unknown to Arrow.
    """
    folders.path_of(base)
    mark = {_STREAM: stream, _LEDGER: ledger}
    wanted = Schema.from_arrow(schema)
    configuration = {**mark, "delta.enableDeletionVectors": "false", **statistics, **(kept or {})}

    def checked(table: DeltaTable) -> None:
        if check_owner(base, owner_of(table), stream, ledger):
            _take_over(table, ledger)
        now = table.metadata().configuration
        if beyond := _BEYOND & {*(table.protocol().reader_features or ())}:
            raise WrongUse(
                f"{base}: Tidemark does not read tables with {', '.join(sorted(beyond))}; name another folder"
            )
        there = {field.name: field for field in table.schema().fields}
        kinds = {column.name: text_of(of_arrow(column.type)) for column in schema}
        if _columns_kept(base, table, kinds, was) is None:
            # In two versions: what a new type asks of a table's readers, only the adding of columns says.
            same = Schema([field for field in wanted.fields if there.get(field.name) == field])
            once = CommitProperties(max_commit_retries=0)
            table.create_write_transaction([], "overwrite", same, [partition], commit_properties=once)
            table = prepared(base)
            there = {field.name: field for field in same.fields}
        if missing := [field for field in wanted.fields if field.name not in there]:
            table.alter.add_columns(missing)
        if any(now.get(key) != value for key, value in statistics.items()):
            # Of a table that an earlier version has made.
            table.alter.set_table_properties(dict(statistics), raise_if_not_exists=False)

    try:
        if not exists(base):
            folders.check_new(base)
            # "ignore": another program may have made the table first, and then its mark is checked. Where several make it at
            # the same time, it is there even if this one has lost. It must not try again: with the library's own retries, a
            # creation that finds version 0 taken becomes version 1, and replaces the owner's mark.
            with suppress(CommitFailedError), folders.naming(base):
                DeltaTable.create(
                    folders.escaped(base),
                    wanted,
                    mode="ignore",
                    partition_by=[partition],
                    configuration=configuration,
                    storage_options=folders.options(base),
                    raise_if_key_not_exists=False,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
        change(base, checked)
    except TableNotFoundError as problem:
        raise folders.refusal(base, problem) from problem
    except DeltaError as problem:
        raise WrongUse(
            f"{base}: Delta refuses the table or its new columns: {problem}. Name another folder"
        ) from problem


def owner(base: str) -> dict[str, str]:
    """Whose a table is, as `prepare` has marked it; empty while nobody has made it."""
    with suppress(TableNotFoundError):
        return owner_of(opened(base))
    return {}


def owner_of(table: DeltaTable) -> dict[str, str]:
    configuration = table.metadata().configuration
    return {"stream": configuration.get(_STREAM, "nobody"), "ledger": configuration.get(_LEDGER, "none")}


def take_over(base: str, ledger: str) -> None:
    """Write another ledger of its stream into the mark of a table."""
    change(base, lambda table: _take_over(table, ledger))


def _take_over(table: DeltaTable, ledger: str) -> None:
    table.alter.set_table_properties({_LEDGER: ledger}, raise_if_not_exists=False)


def as_stored(base: str, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """The fields with the types of the table's columns, which may be wider. Delta has no way to widen a column.

    Raises WrongUse for a column of another type: its files cannot be read as those of the stream.
    """
    with suppress(TableNotFoundError):
        table = opened(base)
        return unless_without_rows(_folders(base), lambda: _stored(base, table, fields), dict(fields))
    return dict(fields)


def check_unchanged(base: str, written: Mapping[str, FieldType]) -> None:
    """After an attempt has written: whether the table's columns still have its types. Raises Conflict."""
    with columns_unchanged(base):
        _stored(base, prepared(base), written)


def check_columns(base: str, fields: Mapping[str, FieldType], was: Names = NEVER) -> None:
    """Raises WrongUse for a field whose column has another type or another name, also in case alone."""
    with suppress(TableNotFoundError):
        _columns_kept(base, opened(base), fields, was)


def _columns_kept(
    base: str, table: DeltaTable, fields: Mapping[str, FieldType], was: Names
) -> dict[str, FieldType] | None:
    """As `_stored`; None for a table without rows that would have to be another. Raises WrongUse as `check_columns` does."""

    def check() -> dict[str, FieldType] | None:
        _refuse_other_name(base, table, was)
        _refuse_other_case(base, table, fields)
        return _stored(base, table, fields)

    return unless_without_rows(_folders(base), check, None)


def _folders(base: str) -> tuple[str, str]:
    """Where rows of a table may be: in its folder, and in what attempts have written beside it."""
    return base, beside(base)


def _refuse_other_name(base: str, table: DeltaTable, was: Names) -> None:
    refuse_other_name(
        base, [one.name for one in table.schema().fields], was, "delta-rs cannot rename a column", "folder"
    )


def _refuse_other_case(base: str, table: DeltaTable, wanted: Iterable[str]) -> None:
    there = [field.name for field in table.schema().fields]
    refuse_other_case(f"{base} has the column", there, wanted, "for Delta both are one column", "folder")


def _stored(base: str, table: DeltaTable, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
    columns = {column.name: column.type for column in pa.schema(table.schema().to_arrow())}
    return {
        name: _as_column(base, name, columns[name], kind) if name in columns else kind for name, kind in fields.items()
    }


def _as_column(base: str, name: str, column: pa.DataType, kind: FieldType) -> FieldType:
    """The type of a field whose column is there. Raises WrongUse as `as_stored` does."""
    try:
        there = text_of(of_arrow(column))
    except ValueError:
        there = str(column)
        wider = None
    else:
        wider = joined(there, kind)
    if wider != there:
        why = ", and Delta cannot widen it" if wider == kind else ""
        raise other_type(f"{base} has the column {name}", there, kind, "folder", why)
    return there


def opened(base: str) -> DeltaTable:
    """The newest version of a table. Raises TableNotFoundError, Unreachable."""
    with folders.naming(base):
        return DeltaTable(folders.escaped(base), storage_options=folders.options(base))


def prepared(base: str) -> DeltaTable:
    """As `_opened`, of a table that was made before: where it is not there, its disk has gone away. Raises Unreachable."""
    try:
        return opened(base)
    except TableNotFoundError as problem:
        raise Unreachable(f"{base}: the table is not there any more; its disk may not be mounted") from problem


def newest_shown(base: str, versions: str) -> list[tuple[str, int]]:
    """Lane and generation of the window that a table has published last for a ledger, by the name of its versions.

    Only among the newest versions. Empty for none, and where the table is not there.
    """
    try:
        table = opened(base)
    except TableNotFoundError:
        return []
    for said in table.history(NOTES_READ):
        if (lane := said.get(LANE_SHOWN)) is not None:
            generation = int(said[GENERATION_SHOWN])
            # What an erasure has taken out, or a ledger that was lost has published, has no such transaction.
            if table.transaction_version(f"{versions}/{lane}") == generation:
                return [(lane, generation)]
    return []


def after_commit(table: DeltaTable) -> PostCommitHookProperties:
    """What delta-rs does once it has made the next version: see `_CLEANED_EVERY`. Checkpoints are made as the table says."""
    cleans = (table.version() + 1) % _CLEANED_EVERY == 0
    return PostCommitHookProperties(cleanup_expired_logs=None if cleans else False)


def change(base: str, changes: Callable[[DeltaTable], object]) -> None:
    """Change the newest version of the table. Try again when a commit of another program conflicts.

    Raises Conflict when that goes on, and Unreachable.
    """
    for left in reversed(range(_TIMES)):
        table = prepared(base)
        version = table.version()
        try:
            with folders.naming(base):
                changes(table)
            return
        except CommitFailedError as problem:
            # It may be no conflict, as for a table to which rows may only be added.
            if prepared(base).version() == version:
                raise
            if not left:
                raise Conflict(f"{base}: other programs changed the table before each commit: {problem}") from problem
        time.sleep(random.uniform(0, _WAIT))  # noqa: S311


def partition_folder(base: str, generation: int) -> str:
    return f"{base}/{GENERATION}={generation}"


def statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Statistics by which a delete or a reader skips a file: the bounds of its coordinates."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for number in range(metadata.num_columns):
        # The whole path: what lies within a field may be called as a column of ours.
        name = metadata.schema.column(number).path
        if name not in _PRUNED:
            continue
        columns = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        if columns and all(column is not None and column.has_min_max for column in columns):
            least[name] = min(column.min for column in columns)
            most[name] = max(column.max for column in columns)
    return {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": {}}


def check_there(base: str, records: Iterable[Record], named: str = "base") -> None:
    """As `folders.check_there`: the table has the mark."""
    folders.check_there(base, records, exists, named)


def exists(base: str) -> bool:
    with folders.naming(base):
        return DeltaTable.is_deltatable(folders.escaped(base), storage_options=folders.options(base))


def identity(base: str) -> str | None:
    """The mark that tells a table from one that is made in its place; None where there is none. Raises Unreachable."""
    try:
        return str(opened(base).metadata().id)
    except TableNotFoundError:
        return None
    except DeltaError as problem:
        # A commit that went to a mount point has nothing of the table before it.
        raise Unreachable(f"{base} is no whole table; its disk may not be mounted: {problem}") from problem


def files_of(base: str) -> dict[int, list[str]]:
    """The files of a table by generation, as paths that Spark and Arrow take; empty if the table does not exist."""
    try:
        added = opened(base).get_add_actions(flatten=True)
    except TableNotFoundError:
        return {}
    by_generation: dict[int, list[str]] = {}
    table = pa.table(added)
    for path, generation in zip(
        table.column("path").to_pylist(), table.column(f"partition.{GENERATION}").to_pylist(), strict=True
    ):
        by_generation.setdefault(generation, []).append(f"{base}/{path}")
    return by_generation
