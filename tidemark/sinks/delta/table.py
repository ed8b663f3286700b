"""A Delta table of results, through delta-rs, without Spark.

    BASE/_delta_log/...
    BASE/_generation=GENERATION/part-*.parquet

An attempt writes files and adds them in one commit of the table. The commit's transaction is named after stream and
lane, and its version is the generation. Rows are never updated. Settling deletes rows that no longer count.
"""

from __future__ import annotations

import json
import posixpath
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from tidemark.errors import Conflict, LedgerContradiction, Unreachable, WrongUse
from tidemark.ledger.book import Book
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.owners import check_owner
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.compactions import described, spans
from tidemark.sinks.parquet.parts import FolderPart, parts
from tidemark.sinks.parquet.types import other_type, refuse_other_case, refuse_other_name
from tidemark.sinks.versions import versions_of as versions_of
from tidemark.types.fields import FieldType, arrow_type, joined, of_arrow, text_of
from tidemark.types.renamed_fields import NEVER, Names

TYPE = "delta"
GENERATION = "_generation"
_STREAM, _LEDGER = "tidemark.stream", "tidemark.ledger"
# Features that only Delta readers understand. Tidemark and Spark read the table's files as plain Parquet.
_BEYOND = {"deletionVectors", "columnMapping"}
# Each range is a condition of a delete. Of more ranges than these, the short ones are joined with the table by offset, which
# takes a fraction of the time and of the commits.
_MOST_RANGES = 200
_SHORT = 1_000
# A merge holds files in memory, uncompressed, until it has found a row to delete in them.
_MOST_BYTES = 32 << 20
# The columns that files have statistics of. The table names them: readers such as delta-rs take a column that should have
# statistics, and has none, for one that is null throughout. Not all columns: JSON has no infinity, for one.
_PRUNED = ("_topic", "_incarnation", "_partition", "_offset")
_STATISTICS = {"delta.dataSkippingStatsColumns": ",".join(_PRUNED)}
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
) -> None:
    """Make the table, or check its owner and add the columns that it lacks. `kept`: properties that it is made with.

    Raises what `check_owner` raises. Raises WrongUse for a table that cannot be read as plain files, for a column of
    another type or whose name differs in case, for what delta-rs refuses, and for a place unknown to Arrow.
    """
    folders.path_of(base)
    mark = {_STREAM: stream, _LEDGER: ledger}
    wanted = Schema.from_arrow(schema)
    configuration = {**mark, "delta.enableDeletionVectors": "false", **_STATISTICS, **(kept or {})}

    def checked(table: DeltaTable) -> None:
        if check_owner(base, owner_of(table), stream, ledger):
            _take_over(table, ledger)
        now = table.metadata().configuration
        if beyond := _BEYOND & {*(table.protocol().reader_features or ())}:
            raise WrongUse(
                f"{base}: Tidemark does not read tables with {', '.join(sorted(beyond))}; name another folder"
            )
        there = {field.name: field for field in table.schema().fields}
        _refuse_other_name(base, table, was)
        _refuse_other_case(base, table, (field.name for field in wanted.fields))
        _stored(base, table, {column.name: text_of(of_arrow(column.type)) for column in schema})
        if missing := [field for field in wanted.fields if field.name not in there]:
            table.alter.add_columns(missing)
        if any(now.get(key) != value for key, value in _STATISTICS.items()):
            # Of a table that an earlier version has made.
            table.alter.set_table_properties(_STATISTICS, raise_if_not_exists=False)

    try:
        # "ignore": another program may have made the table first, and then its mark is checked. Where several make it at the
        # same time, it is there even if this one has lost. It must not try again: with the library's own retries, a creation
        # that finds version 0 taken becomes version 1, and replaces the owner's mark.
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
        return _stored(base, opened(base), fields)
    return dict(fields)


def check_columns(base: str, fields: Mapping[str, FieldType], was: Names = NEVER) -> None:
    """Raises WrongUse for a field whose column has another type or another name, also in case alone."""
    with suppress(TableNotFoundError):
        table = opened(base)
        _refuse_other_name(base, table, was)
        _refuse_other_case(base, table, fields)
        _stored(base, table, fields)


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


def add(base: str, transaction: str, generation: int, window: str) -> None:
    """Add the files in a generation's folder to the table, in one commit.

    Does nothing when the transaction already has this version or a higher one. Callers that count rows read the table.
    """
    named = [Transaction(transaction, generation)]
    properties = CommitProperties(custom_metadata={"tidemark.window": window}, app_transactions=named)

    def append(table: DeltaTable) -> None:
        if (table.transaction_version(transaction) or 0) < generation:
            actions: list[AddAction | RemoveAction] = [*_actions(base, generation)]
            table.create_write_transaction(
                actions, "append", table.schema(), [GENERATION], commit_properties=properties
            )

    change(base, append)


def remove(base: str, generation: int, window: str) -> bool:
    """Remove a generation that never counts from the table, so that no reader sees it. False if the table does not have it.

    The files stay until a vacuum of the table.
    """
    if generation not in files_of(base):
        return False
    metadata = CommitProperties(custom_metadata={"tidemark.window": window})
    change(base, lambda table: table.delete(f"{GENERATION} = {generation}", commit_properties=metadata))
    return True


def _actions(base: str, generation: int) -> Iterator[AddAction]:
    with folders.opened(partition_folder(base, generation)) as (filesystem, path):
        for entry in filesystem.get_file_info(fs.FileSelector(path)):
            if not folders.is_read(entry):
                continue
            with filesystem.open_input_file(entry.path) as file:
                numbers = json.dumps(statistics(pq.read_metadata(file)))
            name = posixpath.join(f"{GENERATION}={generation}", entry.base_name)
            values = {GENERATION: str(generation)}
            yield AddAction(name, entry.size, values, int(entry.mtime_ns // 1_000_000), True, numbers)


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


def sweep(base: str, record: Record, covers: RangeSet) -> None:
    """Delete the rows of lower generations at the offsets that a committed window covers."""
    many = len(list(covers)) > _MOST_RANGES
    scattered = RangeSet(range_ for range_ in covers if many and len(range_) <= _SHORT)
    ranges = list(covers - scattered)
    generation = record.attempt.generation
    commit = CommitProperties(custom_metadata={"tidemark.window": f"{record.lane}/{record.seq}"})
    for start in range(0, len(ranges), _MOST_RANGES):
        places = " or ".join(map(_condition, ranges[start : start + _MOST_RANGES]))
        lower = f"{GENERATION} < {generation} and ({places})"
        change(base, partial(DeltaTable.delete, predicate=lower, commit_properties=commit))
    if scattered:
        _sweep_scattered(base, generation, scattered, commit)


def _sweep_scattered(base: str, generation: int, covers: RangeSet, commit: CommitProperties) -> None:
    """As `sweep`, by joining the covered offsets with the table: one partition, and some files, at a time."""
    files = [file for file in _files(prepared(base)) if file.generation < generation]
    for at in covers.partitions:
        for some in _together(file for file in files if file.may_have(at, covers)):
            offsets = covers & RangeSet([OffsetRange(at, some[0].first, max(file.last for file in some) + 1)])
            generations = sorted({file.generation for file in some})
            change(base, partial(_delete_joined, at=at, generations=generations, offsets=offsets, commit=commit))


def _delete_joined(
    table: DeltaTable, at: TopicPartition, generations: list[int], offsets: RangeSet, commit: CommitProperties
) -> None:
    named = ", ".join(map(str, generations))
    table.merge(
        pa.table({"_offset": np.concatenate([np.arange(*interval) for interval in offsets.of(at)])}),
        f"mine.{GENERATION} in ({named}) and {_is('mine.', at)} and mine._offset = swept._offset",
        source_alias="swept",
        target_alias="mine",
        # The offsets are known, so files without any of them are not read.
        streamed_exec=False,
        commit_properties=commit,
    ).when_matched_delete().execute()


class _DataFile(NamedTuple):
    """A file of a table: its size in bytes, and the least and most that its statistics give for columns of its rows."""

    generation: int
    size: int
    first: int
    last: int
    places: tuple[tuple[Any, Any], ...]

    def may_have(self, at: TopicPartition, covers: RangeSet) -> bool:
        wanted = (at.topic, at.incarnation, at.partition)
        if any(
            not least <= one <= most
            for one, (least, most) in zip(wanted, self.places, strict=True)
            if least is not None
        ):
            return False
        offset = covers.at_or_above(at, self.first)
        return offset is not None and offset <= self.last


def _files(table: DeltaTable) -> list[_DataFile]:
    """The files of a table by their first offset. One without statistics may have any row."""
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    bounds = ([(row.get(f"min.{column}"), row.get(f"max.{column}")) for column in _PRUNED] for row in rows)
    files = [
        _DataFile(
            row[f"partition.{GENERATION}"],
            row["size_bytes"],
            0 if first is None else first,
            MAX_OFFSET - 1 if last is None else last,
            tuple(places),
        )
        for row, (*places, (first, last)) in zip(rows, bounds, strict=True)
    ]
    return sorted(files, key=attrgetter("first"))


def _together(files: Iterable[_DataFile]) -> Iterator[list[_DataFile]]:
    """Files in turn, as many as a merge may hold in memory; at least one."""
    some: list[_DataFile] = []
    size = 0
    for file in files:
        if some and size + file.size > _MOST_BYTES:
            yield some
            some, size = [], 0
        some.append(file)
        size += file.size
    if some:
        yield some


def _condition(one: OffsetRange) -> str:
    return f"({_is('', one.partition)} and _offset >= {one.start} and _offset < {one.until})"


def _is(table: str, at: TopicPartition) -> str:
    """The condition that a row is of a partition; `table` stands before the names of columns."""
    return f"{table}_topic = '{at.topic}' and {table}_incarnation = {at.incarnation} and {table}_partition = {at.partition}"


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


def parts_that_count(book: Book, sink: str, *, gone: bool = False) -> tuple[Authority, list[FolderPart]]:
    """The files of each window of a sink, and the authority that goes with them.

    A commit's sweep may have deleted rows that counted when the heads were read. So the heads are read again after the
    table, and the table too if something here counts no more; what is committed beside it disturbs nobody. After a delete,
    the files stay until a vacuum of the table. Raises LedgerContradiction when a window is not in its table; with `gone`,
    skips that window.
    """
    view = book.view(sink)
    while True:
        listed = parts(view.windows, view.authority, sink, kind=TYPE)
        for part in listed:
            check_there(part.base, (window.record for window in part.windows))
        files = {base: files_of(base) for base in {one.base for one in listed}}
        if not book.changed_since(view) or view.authority.holds_in((newer := book.view(sink)).authority):
            break
        view = newer
    known = [with_files(one, files[one.base]) for one in listed]
    for part in known:
        # A window may have lost exactly those offsets that had rows: then it is no error that it has no files. Nor where
        # nobody knows whether it had any, as in a ledger that was rebuilt from the results.
        if part.holds and part.windows[0].record.tallies and not part.files and not part.lost and not gone:
            raise LedgerContradiction(
                f"the table {part.base} has nothing of {described(spans(part.names))}, whose results are there. "
                "Replay their offsets to write them again."
            )
    return view.authority, [part for part in known if part.files]


def with_files(part: FolderPart, files: Mapping[int, list[str]]) -> FolderPart:
    """A window's part with its files, as `files_of` returns them."""
    return replace(part, files=tuple(files.get(part.windows[0].generation, ())))
