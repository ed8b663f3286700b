"""An Iceberg table of results, through pyiceberg, without Spark.

    BASE/data/lane=LANE/seq=NUMBER/generation=GENERATION/part-*.parquet    what an attempt writes
    BASE/data/rewritten/*.parquet                                          copies without rows that count no more
    BASE/metadata/...

An attempt only writes files, which no reader of the table sees. After the window's commit they are published: one snapshot
adds them, and takes out the rows of older attempts that count no more. In the same transaction, a property of the table
says which generation of the lane is there, so an older one never comes after it. The library's own retries are off: they
would not look at that property again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from types import MappingProxyType

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertRefSnapshotId,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.types import IcebergType

from tidemark.errors import Conflict, TidemarkError, Unreachable, WrongUse
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.iceberg import data_files, snapshots
from tidemark.sinks.iceberg.catalog import CatalogTable, answering, create, opened
from tidemark.sinks.iceberg.lanes import Forget, below_property, keep_all, lane_property, published, published_before
from tidemark.sinks.iceberg.live_files import LiveFile, files_of_all, live_files
from tidemark.sinks.iceberg.partitions import AnyKey, check_spec, spec_of
from tidemark.sinks.iceberg.schema import columns, field_type, iceberg_type, older_names, same
from tidemark.sinks.owners import check_owner
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.parquet.rewriting import without_what_is_lost
from tidemark.sinks.parquet.types import columns_unchanged, other_type, refuse_other_case, unless_without_rows
from tidemark.sinks.versions import ERASES, said_of
from tidemark.types.fields import FieldType, joined, leaves, type_of
from tidemark.types.renamed_fields import NEVER, Names

TYPE = "iceberg"
_STREAM, _LEDGER = "tidemark.stream", "tidemark.ledger"
_MAPPING = "schema.name-mapping.default"
_SETTINGS = {
    "commit.retry.num-retries": "0",
    # Each commit adds a manifest. Some hundred of them become one.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
# This many conflicts in a row are an error. Between two of them there is a random wait, in seconds at most.
_TIMES, _WAIT = 20, 0.2
# How often it is looked whether a commit without an answer is there.
_DOUBTS = 3
# A snapshot's summary has this many characters of the offsets.
_MAX_RANGES = 1_000


def attempt_folder(base: str, lane: str, seq: int, generation: int) -> str:
    return files.attempt_folder(f"{base}/data", lane, seq, generation)


def prepare(
    where: CatalogTable,
    fields: Mapping[str, FieldType],
    stream: str,
    ledger: str,
    keys: Sequence[AnyKey] = (),
    was: Names = NEVER,
    more: Mapping[str, IcebergType] = MappingProxyType({}),
    kept: Mapping[str, str] = MappingProxyType({}),
    *,
    of_messages: bool = True,
) -> None:
    """Make the table, or check its owner and add the columns that it lacks.

    A column also takes a wider type, as Iceberg allows it, and another name, if `was` says so. A table without rows gets
    today's columns and partitions, whatever it has. `more`: columns beside the fields; `kept`: properties that the table is
    made with; `of_messages`: as `columns` takes it. Raises what `check_owner` raises. Raises WrongUse for a table elsewhere or
    with other partitions, for a column of another type or whose name differs in case, and for a place that readers of Iceberg
    take for another.
    """
    folders.path_of(where.base)
    if "#" in where.base:
        raise WrongUse(f"{where.base} has a #, at which readers of Iceberg cut a name: name another folder")
    wanted = columns(fields, more, of_messages=of_messages)
    if opened(where) is None:
        mark = {_STREAM: stream, _LEDGER: ledger, _MAPPING: wanted.name_mapping.model_dump_json(), **kept}
        create(where, wanted, spec_of(keys, wanted), {**mark, **_SETTINGS})
    change(where, partial(_prepared, where, fields, stream, ledger, keys, was, wanted))


def _prepared(
    where: CatalogTable,
    fields: Mapping[str, FieldType],
    stream: str,
    ledger: str,
    keys: Sequence[AnyKey],
    was: Names,
    wanted: Schema,
    table: Table,
    made: Transaction,
    _: list[str],
) -> bool:
    earlier = check_owner(str(where), owner_of(table), stream, ledger)
    if table.location() != where.base:
        raise WrongUse(
            f"{where} is in {table.location()}, and the stream file has it in {where.base}: name another table"
        )
    settings = {name: value for name, value in _SETTINGS.items() if table.properties.get(name) != value}
    if earlier:
        settings[_LEDGER] = ledger
    if settings:
        made.set_properties(settings)
    there = {field.name: field.field_type for field in table.schema().fields}
    renamed = {old: name for name, old in _columns(there, fields, was).items() if old != name}

    def checked() -> dict[str, FieldType] | None:
        kinds = _stored(where, table.metadata, fields, was)
        check_spec(where, keys, table.metadata, renamed)
        return kinds

    stored = unless_without_rows([where.base], checked, None)
    if stored is None:
        _replace_columns(table.metadata, made, wanted, keys)
        return True
    return _columns_changed(made, there, stored, renamed) or bool(settings)


def _columns_changed(
    made: Transaction, there: Mapping[str, IcebergType], stored: Mapping[str, FieldType], renamed: Mapping[str, str]
) -> bool:
    """Add the columns that a table lacks, and widen and rename those that it has. Whether there were any."""
    there = {**there, **{name: there[old] for old, name in renamed.items()}}
    missing = {name: kind for name, kind in stored.items() if name not in there}
    wider = {name: kind for name, kind in stored.items() if name in there and not same(there[name], kind)}
    if missing or wider or renamed:
        before = {name: old for old, name in renamed.items()}
        with made.update_schema() as update:
            for name, kind in missing.items():
                update.add_column(name, iceberg_type(kind))
            for name, kind in wider.items():
                for path, leaf in leaves(type_of(kind)).items():
                    update.update_column((before.get(name, name), *path), iceberg_type(leaf))
            for old, name in renamed.items():
                update.rename_column(old, name)
    return bool(missing or wider or renamed)


def owner(where: CatalogTable) -> dict[str, str]:
    """Whose a table is, as `prepare` has marked it; empty while nobody has made it."""
    table = opened(where)
    return {} if table is None else owner_of(table)


def take_over(where: CatalogTable, ledger: str) -> None:
    """Write another ledger of its stream into the mark of a table."""

    def stage(table: Table, transaction: Transaction, _: list[str]) -> bool:
        if owner_of(table)["ledger"] == ledger:
            return False
        transaction.set_properties({_LEDGER: ledger})
        return True

    change(where, stage)


def as_stored(where: CatalogTable, fields: Mapping[str, FieldType], was: Names = NEVER) -> dict[str, FieldType]:
    """The fields with the types that the table's columns have, or get: the wider ones of both.

    Raises WrongUse for a column of another type: its files cannot be read as those of the stream. So it does for a field
    under a name that a column had before, and for two columns that `was` says to be one field.
    """
    table = opened(where)
    metadata = None if table is None else table.metadata
    return unless_without_rows([where.base], lambda: _stored(where, metadata, fields, was), dict(fields))


def check_unchanged(where: CatalogTable, written: Mapping[str, FieldType], was: Names = NEVER) -> None:
    """After an attempt has written: whether the table's columns still have its types. Raises Conflict."""
    table = opened(where)
    with columns_unchanged(where):
        _stored(where, None if table is None else table.metadata, written, was)


def _replace_columns(metadata: TableMetadata, made: Transaction, wanted: Schema, keys: Sequence[AnyKey]) -> None:
    """Give a table without rows other columns and partitions. Their ids are new, as the format asks."""
    columns_ids, fields_ids = count(metadata.last_column_id + 1), count((metadata.last_partition_id or 999) + 1)
    fresh = assign_fresh_schema_ids(wanted, lambda: next(columns_ids))
    schema = Schema(*fresh.fields, schema_id=max(one.schema_id for one in metadata.schemas) + 1)
    spec_id = max(one.spec_id for one in metadata.partition_specs) + 1
    spec = PartitionSpec(*spec_of(keys, schema, fields_ids).fields, spec_id=spec_id)
    mapping = schema.name_mapping.model_dump_json()
    updates = (
        AddSchemaUpdate.model_validate({"schema": schema}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
        AddPartitionSpecUpdate(spec=spec),
        SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
        SetPropertiesUpdate(updates={_MAPPING: mapping}),
    )
    made._apply(updates)  # noqa: SLF001


def names_of(where: CatalogTable) -> Names:
    """The names that columns had before, by those of today."""
    table = opened(where)
    return {} if table is None else older_names(table.metadata)


def _columns(there: Mapping[str, object], fields: Mapping[str, FieldType], was: Names) -> dict[str, str]:
    """The column of each field that has one, under today's name or an older one."""
    named = ((name, next((one for one in (name, *was.get(name, ())) if one in there), None)) for name in fields)
    return {name: column for name, column in named if column is not None}


def _stored(
    where: CatalogTable, metadata: TableMetadata | None, fields: Mapping[str, FieldType], was: Names
) -> dict[str, FieldType]:
    there = {} if metadata is None else {field.name: field.field_type for field in metadata.schema().fields}
    for name, earlier in ({} if metadata is None else older_names(metadata)).items():
        if reused := [old for old in earlier if old in fields]:
            raise WrongUse(
                f"{where} has under the name {name} what was {reused[0]} before, and the stream file has a field {reused[0]}: "
                f"name the field {name}, or with another name if it is another one, or name another table"
            )
    for name, before in was.items():
        if name in there and (two := [old for old in before if old in there]):
            raise WrongUse(
                f"{where} has the columns {name} and {two[0]}, and the stream file says that one was the other: leave `was` "
                "out, or name another table"
            )
    columns_there = _columns(there, fields, was)
    refuse_other_case(f"{where} has the column", there, fields, "most readers take both for one column", "table")
    kinds = {}
    for name, kind in fields.items():
        # Iceberg has no integers of less than 32 bits.
        mine = field_type(iceberg_type(kind)) or kind
        column = columns_there.get(name)
        known = mine if column is None else field_type(there[column])
        wider = None if known is None else joined(known, mine)
        if wider is None:
            raise other_type(f"{where} has the column {column}", known or there[column or name], kind, "table")
        kinds[name] = wider
    return kinds


def owner_of(table: Table) -> dict[str, str]:
    return {"stream": table.properties.get(_STREAM, "nobody"), "ledger": table.properties.get(_LEDGER, "none")}


def check_there(where: CatalogTable, records: Iterable[Record], named: str = "base") -> Table | None:
    """The table; None before anything was written. Raises Unreachable for a table that is gone, though windows are in it.

    A disk that is not mounted looks like this, and a new database, too. So nobody may begin a new table. The places
    of `records` have its folder under the name `named`.
    """
    there = opened(where)
    named_by_windows = there is None and any(
        place.place.get(named) == where.base and place.place.get("table") == where.table
        for record in records
        for place in record.places
    )
    # Another run may have made the table, and committed, while the records were read.
    if named_by_windows and (there := opened(where)) is None:
        raise Unreachable(
            f"{where} is not there, and windows have their results in it: its database may be another one, or its disk may "
            "not be mounted"
        )
    return there


Stage = Callable[[Table, Transaction, list[str]], bool]
# Whether a row that a file may have counts, by the ledger.
MayCount = Callable[[LiveFile], bool]


def change(where: CatalogTable, stage: Stage) -> tuple[str, str] | None:
    """Change the newest version of a table in one transaction. Try again when a commit of another program was first.

    `stage` puts the changes into the transaction, and the names of data files that it writes into the list. It returns False
    where there is nothing to change, as when an earlier try was answered by nobody and is there. Returns the metadata of the
    version that was changed and of the one that was made; None if none was made. Raises Conflict when others are first again
    and again, and Unreachable.
    """
    left, doubts = _TIMES, 0
    # The snapshot that each was made from, and its files. It may be there after all, where nobody has answered, or where
    # something between here and the catalog has asked twice.
    tries: list[tuple[int | None, list[str]]] = []
    while True:
        left -= 1
        table = opened(where)
        if table is None:
            raise Unreachable(f"{where} is not there")
        # The library changes the table that a commit began with.
        made, before = list[str](), table.metadata_location
        transaction = table.transaction()
        # What is said in properties alone was found in this version, too. The library asks for it with a snapshot only.
        newest = _newest(table)
        asked = {"ref": MAIN_BRANCH, "snapshot-id": newest}
        requirement = AssertRefSnapshotId.model_validate(asked)
        transaction._apply((), (requirement,))  # noqa: SLF001
        try:
            with answering(where):
                with _leaving_no_copies(made, tries):
                    changes = stage(table, transaction, made)
                if not changes:
                    _remove_of_tries(table, tries)
                    return None
                done = transaction.commit_transaction()
            _remove_of_tries(done, tries)
            return before, done.metadata_location
        except (CommitFailedException, ValidationException) as problem:
            tries.append((newest, made))
            if not left:
                _remove_of_tries(opened(where), tries)
                raise Conflict(f"{where}: other programs changed it before each commit: {problem}") from problem
        except Unreachable:
            tries.append((newest, made))
            doubts += 1
            if doubts == _DOUBTS:
                raise
        time.sleep(random.uniform(0, _WAIT))  # noqa: S311


@contextmanager
def _leaving_no_copies(made: list[str], tries: Sequence[tuple[int | None, list[str]]]) -> Iterator[None]:
    """Where a stage fails, as on a full disk, remove what it has written: no commit names it, unless an earlier try does."""
    try:
        yield
    except Exception:
        _remove({*made}.difference(*(names for _, names in tries)))
        raise


def _newest(table: Table) -> int | None:
    newest = table.current_snapshot()
    return newest.snapshot_id if newest is not None else None


def _remove_of_tries(table: Table | None, tries: Sequence[tuple[int | None, list[str]]]) -> None:
    """Remove the files of commits that are not there: they would hold rows that may be erased later.

    Such a commit may still be on its way, as long as the snapshot that it was made from is the newest.
    """
    gone = {name for made_from, names in tries if table is not None and made_from != _newest(table) for name in names}
    if table is None or not gone:
        return
    with suppress(OSError, TidemarkError):
        gone -= {one.path for one in files_of_all(table)}
        _remove(gone)


def _remove(names: Iterable[str]) -> None:
    """Remove files as far as that can be done now. A later sweep removes those that stay."""
    for name in names:
        with suppress(OSError, TidemarkError), folders.opened(name) as (filesystem, path):
            filesystem.delete_file(path)


def publish(
    where: CatalogTable,
    versions: str,
    record: Record,
    folder: str,
    replaced: RangeSet,
    *,
    any_generation: bool = False,
    forget: Forget = keep_all,
    counting: Callable[[], RangeSet] | None = None,
    may_count: MayCount = lambda one: True,
    wrote: bool = False,
) -> bool:
    """Let readers see a committed window: add its files, and take out rows of lower generations at the offsets `replaced`.

    With `whatever`, of any generation. One snapshot has both. `forget` says of the table's properties which lanes it may
    forget. Repeatable: does nothing when the table has this generation of the lane, or a higher one. Returns False if it had a
    higher one before: then only an earlier call can have published this one.

    The table may have shown the window before the ledger was restored. Then the rows of a newer one may be there instead: with
    `counting`, only rows at the offsets that it gives are added or taken out. `may_count`: see `without_what_is_lost`.
    `wrote`: the attempt has just written rows there, of which the record of a window that was committed first says nothing.
    """
    generation = record.attempt.generation
    tried = overtaken = False

    def stage(table: Table, transaction: Transaction, made: list[str]) -> bool:
        nonlocal tried, overtaken
        there = published(table.properties, versions, record.lane)
        if there >= generation:
            # A commit that nobody has answered may be there all the same.
            overtaken = there > generation and not (tried and _has_generation(table, generation))
            return False
        before = published_before(table.properties, record.lane, generation)
        if before and _has_generation(table, generation):
            return False
        others = replaced - counting() if before and counting is not None else RangeSet()
        if others and others == replaced:
            return False
        tried = True
        below = MAX_OFFSET if any_generation else generation
        old = _without(where, table, replaced - others, below, made, may_count)
        written = data_files.in_folder(folder)
        new = _described(where, table.metadata, written, others, made)
        if not written and (wrote or any(tally.rows.number for tally in record.tallies)):
            if wrote or not before:
                raise Unreachable(f"{folder} is not there; its disk may have been unmounted just now")
            # A compaction has removed it, and what was there is erased, or was read again by a window that is lost.
            check_there(where, [record])
        if not old and not new:
            return False
        transaction.set_properties({lane_property(versions, record.lane): str(generation)})
        if (gone := forget(table.properties)) is not None:
            transaction.set_properties({below_property(versions): str(gone.below)})
            transaction.remove_properties(*gone.properties)
        summary = {**said_of(record), "tidemark.ranges": _ranges(record)}
        snapshot(table, transaction, old, new, summary)
        return True

    change(where, stage)
    return not overtaken


def _described(
    where: CatalogTable, metadata: TableMetadata, written: Sequence[str], unwanted: RangeSet, made: list[str]
) -> list[DataFile]:
    """The files of a folder as a snapshot names them: copies of those that have rows at some offsets, without these."""
    described = []
    for name in written:
        copy = data_files.without(where.base, metadata, name, unwanted, MAX_OFFSET) if unwanted else None
        made += [copy] if copy else []
        kept = name if copy is None else copy
        if kept and (one := data_files.described(metadata, kept)) is not None:
            described.append(one)
    return described


def _has_generation(table: Table, generation: int) -> bool:
    may = (file for file in live_files(table) if file.may_have_generation(generation))
    return any(
        one.generations == (generation, generation) or generation in data_files.generations(one.path) for one in may
    )


def sweep(where: CatalogTable, record: Record) -> None:
    """Remove the files of older attempts at a window, unless readers see one of them: its rows have to be taken out first.

    They do if a ledger was restored that does not know that window.
    """
    table = opened(where)
    folder = attempt_folder(where.base, record.lane, record.window.seq, 0).rpartition("/")[0]
    if not any(one.path.startswith(f"{folder}/") for one in (live_files(table) if table is not None else ())):
        files.sweep(f"{where.base}/data", record)


def remove(where: CatalogTable, record: Record, wanted: RangeSet) -> None:
    """Take out the rows of some offsets with generations below that of a window which has erased them."""
    generation = record.attempt.generation

    def stage(table: Table, transaction: Transaction, made: list[str]) -> bool:
        old = _without(where, table, wanted, generation, made)
        if old:
            snapshot(table, transaction, old, [], {**said_of(record), ERASES: "true"})
        return bool(old)

    change(where, stage)


def _without(
    where: CatalogTable,
    table: Table,
    wanted: RangeSet,
    below: int,
    made: list[str],
    may_count: MayCount = lambda one: True,
) -> list[tuple[LiveFile, str]]:
    """The files that have rows of lower generations at some offsets, each with a copy without them; empty for no rows."""

    def is_newest() -> bool:
        newest = opened(where)
        if newest is not None and newest.metadata_location != table.metadata_location:
            raise CommitFailedException("the table was changed meanwhile, and a file removed")
        return newest is not None

    copies = []
    for one in live_files(table) if wanted else ():
        if one.may_have(wanted, below):
            copied = partial(data_files.without, where.base, table.metadata, one.path, wanted, below)
            copy = without_what_is_lost(one.path, copied, is_newest=is_newest, may_count=partial(may_count, one))
            if copy is not None:
                copies.append((one, copy))
                made += [copy] if copy else []
    return copies


def snapshot(
    table: Table,
    transaction: Transaction,
    old: Sequence[tuple[LiveFile, str]],
    new: Sequence[DataFile],
    summary: Mapping[str, str],
) -> None:
    """Replace some files by copies, if they have any, and add others."""
    kept = (data_files.described(table.metadata, copy, one.file.partition) for one, copy in old if copy)
    added = [*filter(None, kept), *new]
    snapshots.replace(transaction, [one.file for one, _ in old], added, summary)


def _ranges(record: Record) -> str:
    window = record.window
    said = " ".join(f"{range_.topic}/{range_.partition}@{range_.start}-{range_.until}" for range_ in window.ranges)
    return said if len(said) <= _MAX_RANGES else f"{said[:_MAX_RANGES]}..."
