"""The snapshots of an Iceberg table: what they take out leaves nothing in the table's metadata.

pyiceberg's own overwrite carries on manifests without any file, for ever, and merges none. And for each file that it takes
out, it writes down what the file's values were: the bounds of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles

# As `commit.manifest.target-size-bytes` and `commit.manifest.min-count-to-merge` say by default.
_MANIFEST_BYTES, _MANIFESTS = 8 << 20, 100
# Where an entry of a manifest says what the values of a file are.
_BOUNDS = [
    number
    for number, one in enumerate(DATA_FILE_TYPE[DEFAULT_READ_VERSION].fields)
    if one.name in {"lower_bounds", "upper_bounds"}
]


class _Replacement(_OverwriteFiles):
    """Takes files out of a table and adds others. `mends`: also rewrites manifests that name files which are no more."""

    mends = False

    def _existing_manifests(self) -> list[ManifestFile]:
        # The library reads each manifest, to see whether it names a file that is taken out.
        there = super()._existing_manifests() if self._deleted_data_files else self._newest_manifests()
        there = [one for one in there if has_files(one)]
        return [self._mended(one) if self.mends and one.deleted_files_count != 0 else one for one in there]

    def _mended(self, manifest: ManifestFile) -> ManifestFile:
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True):
                writer.existing(entry)
        return writer.to_manifest_file()

    def _newest_manifests(self) -> list[ManifestFile]:
        newest = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        return [] if newest is None else newest.manifests(self._io)

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [_without_bounds(one) for one in super()._deleted_entries()] if self._deleted_data_files else []

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        data = [one for one in manifests if one.content == ManifestContent.DATA]
        deletes = [one for one in manifests if one.content != ManifestContent.DATA]
        least = 2 if self.mends else _MANIFESTS
        merging = _ManifestMergeManager(_MANIFEST_BYTES, least, merge_enabled=True, snapshot_producer=self)
        made = merging.merge_manifests(data) + deletes
        # What was merged at once is named by nobody, and would keep what it says of values.
        for name in {*self._written_manifests}.difference(one.manifest_path for one in made):
            self._io.delete(name)
            self._written_manifests.remove(name)
        return made


def _without_bounds(entry: ManifestEntry) -> ManifestEntry:
    file = deepcopy(entry.data_file)
    for number in _BOUNDS:
        file[number] = None
    return ManifestEntry.from_args(
        status=entry.status,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=file,
    )


def has_bounds(file: DataFile) -> bool:
    """Whether the entry of a file says what its values are."""
    return bool(file.lower_bounds or file.upper_bounds)


def replace(
    transaction: Transaction, gone: Iterable[DataFile], added: Iterable[DataFile], summary: Mapping[str, str]
) -> None:
    """Make a snapshot that lacks some files of the newest one, and has others."""
    _commit(transaction, gone, added, summary)


def mend(table: Table, transaction: Transaction, summary: Mapping[str, str]) -> bool:
    """Make a snapshot with the same files, if manifests of the newest one name files that are no more.

    Those of files that the newest snapshot itself has taken out stay: by these, other programs follow the changes of a table.
    """
    if needs_mending(table):
        _commit(transaction, (), (), summary, mends=True)
        return True
    return False


def needs_mending(table: Table) -> bool:
    """Whether manifests of the newest snapshot name files that are no more, or are small and many."""
    newest = table.current_snapshot()
    manifests = [] if newest is None else newest.manifests(table.io)
    if sum(one.manifest_length < _MANIFEST_BYTES // 2 for one in manifests) > _MANIFESTS:
        return True
    return newest is not None and any(
        _is_left(one, newest.snapshot_id) or any(True for _ in former(table, one)) for one in manifests
    )


def _commit(
    transaction: Transaction,
    gone: Iterable[DataFile],
    added: Iterable[DataFile],
    summary: Mapping[str, str],
    *,
    mends: bool = False,
) -> None:
    table = transaction._table  # noqa: SLF001
    gone = list(gone)
    replaces = mends or bool(gone)
    made = _Replacement(
        operation=Operation.OVERWRITE if replaces else Operation.APPEND,
        transaction=transaction,
        io=table.io,
        snapshot_properties=dict(summary),
    )
    made.mends = mends
    with made:
        for one in gone:
            made.delete_data_file(one)
        for one in added:
            made.append_data_file(one)


def has_files(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()


def _is_left(manifest: ManifestFile, newest: int) -> bool:
    """Whether a manifest has no file any more, and tells nobody of a change either."""
    return not has_files(manifest) and manifest.added_snapshot_id != newest


def former(table: Table, manifest: ManifestFile) -> Iterator[DataFile]:
    """The files that a manifest names as taken out, of which it says the values."""
    if manifest.deleted_files_count == 0:
        return
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
        if entry.status == ManifestEntryStatus.DELETED and has_bounds(entry.data_file):
            yield entry.data_file
