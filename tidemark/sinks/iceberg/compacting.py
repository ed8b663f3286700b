"""Compaction of an Iceberg table: small files become large ones, old snapshots expire, and what nobody names is removed.

It needs no Spark: files are copied one after the other, some rows at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots

from tidemark.errors import Conflict, Unreachable
from tidemark.ledger.erasures import erased
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import LaneState
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import CompactionRequest, Replaceable, Replacement, SinkContext
from tidemark.sinks.iceberg import data_files, snapshots
from tidemark.sinks.iceberg.catalog import CatalogTable, LakeIO, located, version_of
from tidemark.sinks.iceberg.catalog import opened as table_now
from tidemark.sinks.iceberg.holding import FilesOfOffsets, HoldingOf, by_rows
from tidemark.sinks.iceberg.lanes import published
from tidemark.sinks.iceberg.live_files import LiveFile, files_of_all, live_files
from tidemark.sinks.iceberg.schema import arrow_schema
from tidemark.sinks.iceberg.settings import IcebergSink, place_of
from tidemark.sinks.iceberg.table import Stage, change, check_there, owner_of
from tidemark.sinks.owners import check_not_replaced
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.compactions import described, spans
from tidemark.sinks.parquet.files import delete, on_disk
from tidemark.sinks.versions import versions_of

T = TypeVar("T")

# So often a compaction begins again when others change the table.
_TIMES = 5
# Files become about so large. One that is half as large is left as it is.
FILE_BYTES = 128 << 20
_RUN, _WINDOWS, _ROWS, _EXPIRED, _MENDED = (
    f"tidemark.compaction.{one}" for one in ("run", "windows", "rows", "expired", "mended")
)
# This many files' names of windows stand in a summary.
_MAX_CHARACTERS = 1_000
# A file that no snapshot names, and no window, may belong to a commit that is on its way.
_ON_ITS_WAY = timedelta(days=1)


@dataclass(frozen=True)
class _FilesToMerge:
    """Files that become one, and the windows whose rows they may hold."""

    files: Sequence[LiveFile]
    windows: Sequence[str]

    @property
    def bytes(self) -> int:
        return sum(one.file.file_size_in_bytes for one in self.files)


class IcebergCompaction:
    """The compaction of the sink `iceberg`."""

    def planned(self, opened: SinkContext, settings: IcebergSink, asked: CompactionRequest) -> Sequence[Replaceable]:
        where = where_of(opened, settings)
        return steadily(where, lambda seen: self._planned(seen.where, opened, settings, asked))

    @staticmethod
    def _planned(
        where: CatalogTable, opened: SinkContext, settings: IcebergSink, asked: CompactionRequest
    ) -> Sequence[Replaceable]:
        table = check_there(where, ())
        if table is None:
            return []
        merged = [
            Replaceable([*one.windows], len(one.files), len(one.files), one.bytes)
            for one in _groups(opened.ledger, settings, table, asked)
        ]
        return [*merged, *expiry_planned(table, settings.keep_hours, opened.ledger)]

    def at_work(self, opened: SinkContext, settings: IcebergSink) -> str | None:
        return None

    def made(self, opened: SinkContext, settings: IcebergSink, run: str) -> Sequence[Replacement]:
        where = where_of(opened, settings)
        table = check_there(where, ())
        replacements = []
        for one in table.snapshots() if table is not None else ():
            said = one.summary.additional_properties if one.summary is not None else {}
            if said.get(_RUN) == run:
                replacements.append(
                    Replacement(said[_WINDOWS].split(", "), int(said[_ROWS]), f"{where.base}/data/compacted")
                )
        return [*replacements, *expired_by(table, run)]


class VersionSeen:
    """The version of a table that some work has seen. Its own changes of that version take it further."""

    def __init__(self, where: CatalogTable) -> None:
        self.where = where
        self._version = self._now()

    def change(self, stage: Stage) -> None:
        made = change(self.where, stage)
        if made is not None and made[0] == self._version:
            self._version = made[1]

    def is_newest(self) -> bool:
        """Whether nobody else has changed the table."""
        return self._now() == self._version

    def _now(self) -> str | None:
        return version_of(table_now(self.where))


def steadily(where: CatalogTable, work: Callable[[VersionSeen], T]) -> T:
    """The result of some work on a table, which begins again if it fails and others have changed the table meanwhile.

    Another compaction may remove files that the newest version named when the work began, and snapshots that it lets expire.
    Raises Conflict when that comes again and again.
    """
    left = _TIMES
    while True:
        left -= 1
        seen = VersionSeen(where)
        try:
            return work(seen)
        except (OSError, ValueError, Unreachable) as problem:
            if seen.is_newest():
                raise
            if not left:
                raise Conflict(f"{where}: others changed it each time while it was compacted: {problem}") from problem


def expiry_planned(
    table: Table | None, keep_hours: int, ledger: Ledger, holding_of: HoldingOf = by_rows
) -> list[Replaceable]:
    """The snapshots that would expire now, with the files that only they name, and what else would be removed."""
    if table is None:
        return []
    planned = []
    if expiring := _expiring(table, keep_hours, ledger.clock(), erased(ledger.committed()), holding_of):
        sizes = [one.file.file_size_in_bytes for one in _only_of(table, expiring)]
        said = number_of(len(expiring), "snapshot", "expires", "expire")
        planned.append(Replaceable([said], 0, len(sizes), sum(sizes)))
    if snapshots.needs_mending(table):
        newest = table.current_snapshot()
        manifests = [] if newest is None else newest.manifests(table.io)
        size = sum(one.manifest_length for one in manifests)
        planned.append(Replaceable([number_of(len(manifests), "manifest")], 0, len(manifests), size))
    if unnamed := len(_old_and_unnamed(table)):
        planned.append(Replaceable([f"{number_of(unnamed, 'file')} that no snapshot names"], 0, unnamed, 0))
    return planned


def expired_by(table: Table | None, run: str) -> list[Replacement]:
    """The snapshots that a run has let expire, if it was the last one."""
    if table is None or table.properties.get(_RUN) != run:
        return []
    return [
        Replacement(
            [number_of(table.properties[_EXPIRED], "snapshot", "expired", "expired")], 0, f"{table.location()}/metadata"
        )
    ]


def expire(ledger: Ledger, where: CatalogTable, keep_hours: int, run: str, holding_of: HoldingOf = by_rows) -> None:
    """Let old snapshots expire, and remove what nobody names. Repeatable; others may go on meanwhile."""
    steadily(where, lambda seen: _expired(ledger, seen, keep_hours, run, holding_of))


def _expired(ledger: Ledger, seen: VersionSeen, keep_hours: int, run: str, holding_of: HoldingOf) -> None:
    table = check_there(seen.where, ())
    if table is None:
        return
    named = named_files(table)
    seen.change(lambda table, transaction, _: snapshots.mend(table, transaction, {_MENDED: run}))
    _expire(seen, keep_hours, run, ledger, holding_of)
    _remove_unnamed(ledger, seen.where, named)


def where_of(opened: SinkContext, settings: IcebergSink) -> CatalogTable:
    return located(opened.connections, place_of(settings, settings.base(opened.connections)))


def compact(opened: SinkContext, settings: IcebergSink, run: str, asked: CompactionRequest) -> None:
    """Merge files, let snapshots expire, and remove what nobody names. Repeatable; others may go on meanwhile."""
    where = where_of(opened, settings)
    steadily(where, lambda seen: _merge_all(seen, opened, settings, run, asked))
    expire(opened.ledger, where, settings.keep_hours, run)


def _merge_all(
    seen: VersionSeen, opened: SinkContext, settings: IcebergSink, run: str, asked: CompactionRequest
) -> None:
    table = check_there(seen.where, ())
    if table is None:
        return
    for group in _groups(opened.ledger, settings, table, asked):
        _merge(seen, table, group, run)


def _groups(ledger: Ledger, settings: IcebergSink, table: Table, asked: CompactionRequest) -> Iterator[_FilesToMerge]:
    """Files of the windows that are asked for, in the order of their generations, as many as make one large file."""
    view = ledger.view(settings.name)
    stored = [one for one in view.windows if any(place.name == settings.name for place in one.record.places)]
    generations = sorted(one.generation for one in stored)
    oldest = sorted(stored, key=lambda one: one.record.committed_at)
    fit = [one for one in oldest if asked.before is None or one.record.committed_at < asked.before]
    chosen = {one.generation: f"{one.record.lane}/{one.record.seq}" for one in fit[: asked.windows]}
    some: list[LiveFile] = []
    size = 0
    for one in sorted(live_files(table), key=lambda one: (one.partition_key, one.generations)):
        compacted = "/data/compacted/" in one.path and not asked.again
        if compacted or one.file.file_size_in_bytes >= FILE_BYTES // 2:
            continue
        if not all(generation in chosen for generation in _held(one, generations)):
            continue
        size += one.file.file_size_in_bytes
        if some and (some[0].partition_key != one.partition_key or size > FILE_BYTES):
            yield from _group(some, chosen)
            some, size = [], one.file.file_size_in_bytes
        some.append(one)
    yield from _group(some, chosen)


def _group(some: Sequence[LiveFile], windows: dict[int, str]) -> Iterator[_FilesToMerge]:
    if len(some) > 1:
        generations = sorted(windows)
        held = sorted({generation for one in some for generation in _held(one, generations)})
        names = [(lane, int(seq)) for lane, _, seq in (windows[g].rpartition("/") for g in held)]
        yield _FilesToMerge(tuple(some), [described([one]) for one in spans(names)])


def _held(one: LiveFile, generations: Sequence[int]) -> Sequence[int]:
    """Which of some generations, in their order, a file may have rows of."""
    least, most = one.generations
    return generations[bisect_left(generations, least) : bisect_right(generations, most)]


def _merge(seen: VersionSeen, table: Table, group: _FilesToMerge, run: str) -> None:
    """Write one file in the place of some. If one of them is gone by the time of the commit, they stay as they are."""
    name = f"{seen.where.base}/data/compacted/{uuid4()}.parquet"
    rows = copied(table, group.files, name)
    first = group.files[0].file
    said = ", ".join(group.windows)
    summary = {_RUN: run, _ROWS: str(rows), _WINDOWS: said[:_MAX_CHARACTERS]}
    named = False

    def stage(newest: Table, transaction: Transaction, made: list[str]) -> bool:
        nonlocal named
        made.append(name)
        there = {one.path: one for one in live_files(newest)}
        named = name in there
        if named or not all(one.path in there for one in group.files):
            return False
        new = data_files.described(newest.metadata, name, first.partition)
        snapshots.replace(
            transaction, [there[one.path].file for one in group.files], [new] if new is not None else [], summary
        )
        named = True
        return True

    seen.change(stage)
    if not named:
        # After a conflict, it is gone already.
        with suppress(FileNotFoundError):
            LakeIO().delete(name)


def copied(table: Table, some: Sequence[LiveFile], name: str) -> int:
    """Copy the rows of some files into one, with the columns that the table has today. Returns their number."""
    plain = arrow_schema(table.schema())
    compression = data_files.compression_of(some[0].path)
    rows = 0
    with (
        folders.naming(name),
        LakeIO().new_output(name).create() as stream,
        pq.ParquetWriter(stream, plain, compression=compression) as writer,
    ):
        for one in some:
            for batch in data_files.batches_of(table.metadata, one.path):
                there = {column: batch.column(column).cast(plain.field(column).type) for column in batch.schema.names}
                missing = {column: pa.nulls(batch.num_rows, plain.field(column).type) for column in plain.names}
                writer.write_batch(pa.RecordBatch.from_pydict({**missing, **there}, schema=plain))
                rows += batch.num_rows
    return rows


def _expiring(table: Table, keep_hours: int, now: int, gone: RangeSet, holding_of: HoldingOf) -> list[Snapshot]:
    """The snapshots that were replaced too long ago, and all that name a file with what is erased (`gone`), or its values.

    But not for a file of the newest snapshot: with that it has come late, and is cleared by the next erasure.
    """
    newest = table.current_snapshot()
    in_turn = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    # A reader may have begun with one until the next one came, however old it was by then.
    replaced = {one.snapshot_id: later.timestamp_ms for one, later in pairwise(in_turn)}
    newest_files = {one.path for one in live_files(table)} if gone else ()
    holding = FilesOfOffsets(table, gone, newest_files, holding_of).snapshots
    before = now - keep_hours * 3_600_000
    kept = {one.snapshot_id for one in table.metadata.refs.values()} | ({newest.snapshot_id} if newest else set())
    return [
        one
        for one in in_turn
        if one.snapshot_id not in kept and (replaced.get(one.snapshot_id, now) < before or one.snapshot_id in holding)
    ]


def _expire(seen: VersionSeen, keep_hours: int, run: str, ledger: Ledger, holding_of: HoldingOf) -> None:
    def stage(table: Table, transaction: Transaction, _: list[str]) -> bool:
        # What is erased is read after the table: by then, it may have taken out what an erasure has committed since.
        expiring = _expiring(table, keep_hours, ledger.clock(), erased(ledger.committed()), holding_of)
        if expiring:
            transaction.set_properties({_RUN: run, _EXPIRED: str(len(expiring))})
            ExpireSnapshots(transaction).by_ids([one.snapshot_id for one in expiring]).commit()
        return bool(expiring)

    seen.change(stage)


def _only_of(table: Table, expiring: Sequence[Snapshot]) -> list[LiveFile]:
    """The data files that only these snapshots name."""
    gone = {one.snapshot_id for one in expiring}
    stay = [one for one in table.snapshots() if one.snapshot_id not in gone]
    manifests = {one.manifest_path for shot in stay for one in shot.manifests(table.io)}
    kept = {one.path for one in files_of_all(table, stay)} if manifests else set()
    return [one for one in files_of_all(table) if one.path not in kept]


def named_files(table: Table) -> set[str]:
    """All files that a version of the metadata names, itself among them."""
    metadata = table.metadata
    names = {table.metadata_location, *(one.metadata_file for one in metadata.metadata_log)}
    # Other programs write statistics.
    names |= {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    for shot in table.snapshots():
        names.add(shot.manifest_list)
        names |= {one.manifest_path for one in shot.manifests(table.io)}
    return names | {one.path for one in files_of_all(table)}


def _old_and_unnamed(table: Table) -> list[str]:
    """The files beside those of attempts that no snapshot names, and have not for a day."""
    named, old = named_files(table), datetime.now(UTC) - _ON_ITS_WAY
    base = table.location()
    there = (*listed(base, "data"), *listed(base, "metadata"))
    return [
        name
        for name, written in there
        if name not in named and written < old and not name.startswith(f"{base}/data/lane=")
    ]


def _remove_unnamed(ledger: Ledger, where: CatalogTable, before: set[str]) -> None:
    """Remove what expired snapshots alone have named (`before`), and what commits and attempts that died have left."""
    written_files = [*listed(where.base, "data"), *listed(where.base, "metadata")]
    attempts = on_disk(f"{where.base}/data")
    # Read after the folders were listed: an attempt is in its head before it makes its folder.
    standing, heads = ledger.standing(), ledger.heads()
    table = check_there(where, ())
    if table is None:
        return
    if (register := ledger.register()) is not None:
        check_not_replaced(str(where), owner_of(table), ledger.stream, register[1].ledger)
    named, versions = named_files(table), versions_of(ledger)
    read_from = {_attempt(name) for name in named}
    old = datetime.now(UTC) - _ON_ITS_WAY
    windows = {one.generation: one for one in standing.windows}
    done = set()
    for one in attempts:
        window = windows.get(one.generation)
        if window is not None and published(table.properties, versions, one.lane) >= one.generation:
            done.add(one.folder)
        head = heads.get(one.lane)
        # A ledger that was restored from a backup does not know the windows after it. Their rows may be all there is.
        known = head is not None and (one.seq <= head.head.seq or head.head.state == LaneState.CLOSED)
        newest = max(windows, default=0)
        if window is None and known and standing.is_dead(one.generation, newest) and one.folder not in read_from:
            delete(one.folder)
    for name, written in written_files:
        below = name.removeprefix(where.base)
        if name in named:
            continue
        of_attempt = below.startswith("/data/lane=")
        gone = _attempt(name) in done if of_attempt else name in before or written < old
        if gone:
            _delete(name)


def _attempt(name: str) -> str:
    """The folder of the attempt that has written a file."""
    above, of, below = name.partition("/generation=")
    return f"{above}{of}{below.partition('/')[0]}"


def _delete(name: str) -> None:
    with folders.opened(name) as (filesystem, path):
        if filesystem.get_file_info(path).type == fs.FileType.File:
            folders.remove(filesystem, path)


def listed(base: str, folder: str) -> Iterable[tuple[str, datetime]]:
    with folders.opened(f"{base}/{folder}") as (filesystem, path):
        for one in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
            if one.type == fs.FileType.File:
                yield f"{base}/{folder}{one.path.removeprefix(path)}", one.mtime or datetime.now(UTC)
