"""The data files of a table's snapshots, with what the manifests say of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType

from tidemark.errors import WrongUse
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.iceberg.schema import GENERATION

# The bounds of a file without statistics: it may hold any row.
_ANY = (0, MAX_OFFSET - 1)


@dataclass(frozen=True)
class LiveFile:
    """A data file: the least and most of its rows' generations and offsets."""

    file: DataFile
    generations: tuple[int, int]
    offsets: tuple[int, int]

    @property
    def path(self) -> str:
        return self.file.file_path

    @property
    def partition_key(self) -> tuple[int, str]:
        """Files with one key lie in one partition."""
        return self.file.spec_id, repr(self.file.partition)

    def may_have(self, wanted: RangeSet, below: int) -> bool:
        """Whether it may hold rows of a generation below that one, at some of these offsets."""
        if self.generations[0] >= below:
            return False
        first, last = self.offsets
        return any((offset := wanted.at_or_above(at, first)) is not None and offset <= last for at in wanted.partitions)

    def may_have_generation(self, generation: int) -> bool:
        return self.generations[0] <= generation <= self.generations[1]


def files_of(table: Table, snapshot: Snapshot | None) -> list[LiveFile]:
    """The files of a snapshot. Raises WrongUse for a table in which another program has marked rows as deleted."""
    return [] if snapshot is None else list(_of_manifests(table, snapshot.manifests(table.io)))


def live_files(table: Table) -> list[LiveFile]:
    """The files of the newest snapshot, which readers see."""
    return files_of(table, table.current_snapshot())


def files_of_all(table: Table, snapshots: Iterable[Snapshot] | None = None) -> Sequence[LiveFile]:
    """The files of some snapshots, or of all that have not expired, each once."""
    chosen = table.snapshots() if snapshots is None else snapshots
    manifests = {manifest.manifest_path: manifest for shot in chosen for manifest in shot.manifests(table.io)}
    return list({manifest.path: manifest for manifest in _of_manifests(table, manifests.values())}.values())


def _of_manifests(table: Table, manifests: Iterable[ManifestFile]) -> Iterator[LiveFile]:
    schema = table.schema()
    for manifest in manifests:
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield of_entry(table, schema, entry)


def of_entry(table: Table, schema: Schema, entry: ManifestEntry) -> LiveFile:
    """The file of an entry. Raises WrongUse as `files_of`."""
    if entry.data_file.content != DataFileContent.DATA:
        raise WrongUse(
            f"{table.location()}: another program has deleted rows by delete files, which Tidemark does not read. Have it "
            "rewrite the table's data files, or name another table and fill it by a replay"
        )
    return LiveFile(
        entry.data_file, _bounds(schema, entry.data_file, GENERATION), _bounds(schema, entry.data_file, "_offset")
    )


def _bounds(schema: Schema, file: DataFile, name: str) -> tuple[int, int]:
    try:
        column = schema.find_field(name).field_id
    except ValueError:
        # A row of totals is of no message.
        return _ANY
    least, most = ((bounds or {}).get(column) for bounds in (file.lower_bounds, file.upper_bounds))
    if least is None or most is None:
        return _ANY
    return int(from_bytes(LongType(), least)), int(from_bytes(LongType(), most))


def nulls(schema: Schema, file: DataFile, name: str) -> int | None:
    """How many rows of a file have no value in a column; None where its manifest does not say."""
    return (file.null_value_counts or {}).get(schema.find_field(name).field_id)
