"""Where an Iceberg table has what is erased: the data files with its rows, and the manifests that say what its values were."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg.live_files import of_entry
from tidemark.sinks.iceberg.snapshots import has_bounds
from tidemark.sinks.parquet.files import Holding

_MANIFEST = ".avro"
# How the names of pyiceberg's manifest lists begin, which say nothing of rows.
_LIST = "snap-"
# How a data file is asked for some offsets.
HoldingOf = Callable[[RangeSet], Holding]


def by_rows(wanted: RangeSet) -> Holding:
    """Whether a data file has rows of some offsets."""
    return partial(data_files.hold_if_there, wanted=wanted)


@dataclass(frozen=True)
class HeldFile:
    """A file with rows of some offsets or with their values, and the snapshots that name it."""

    path: str
    snapshots: frozenset[int]


@dataclass(frozen=True)
class FilesOfOffsets:
    """The files of a table's snapshots that have some offsets. `apart`: data files that are left out."""

    table: Table
    wanted: RangeSet
    apart: Collection[str] = ()
    holding_of: HoldingOf = by_rows

    @cached_property
    def _holds(self) -> Holding:
        return self.holding_of(self.wanted)

    @cached_property
    def files(self) -> list[HeldFile]:
        manifests: dict[str, ManifestFile] = {}
        snapshots: dict[str, set[int]] = {}
        for shot in self.table.snapshots() if self.wanted else ():
            for one in shot.manifests(self.table.io):
                manifests[one.manifest_path] = one
                snapshots.setdefault(one.manifest_path, set()).add(shot.snapshot_id)
        held: dict[str, set[int]] = {}
        asked: dict[str, bool | None] = {}
        for path, manifest in manifests.items():
            for name in self.of_manifest(manifest, asked):
                held.setdefault(name, set()).update(snapshots[path])
        return [HeldFile(path, frozenset(some)) for path, some in sorted(held.items())]

    @cached_property
    def snapshots(self) -> frozenset[int]:
        """The snapshots that name any of them."""
        return frozenset().union(*(one.snapshots for one in self.files))

    def of_manifest(self, manifest: ManifestFile, asked: dict[str, bool | None]) -> Iterator[str]:
        """The data files with the offsets that a manifest names, and itself if it says anything of their values.

        `asked`: whether data files have the offsets, as far as that was asked before.
        """
        schema, says = self.table.schema(), False
        for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False):
            one = of_entry(self.table, schema, entry)
            if one.path in self.apart or not one.may_have(self.wanted, MAX_OFFSET):
                continue
            if entry.status != ManifestEntryStatus.DELETED:
                if one.path not in asked:
                    asked[one.path] = self._holds(one.path)
                if asked[one.path]:
                    yield one.path
            # Of a file that is gone, its bounds are all that can be asked.
            says |= has_bounds(one.file) and asked.get(one.path) is not False
        if says:
            yield manifest.manifest_path


def unnamed_holds(table: Table, name: str, wanted: RangeSet, holds: Holding) -> bool:
    """Whether a file that no snapshot names has some offsets. It may not have been written to its end."""
    try:
        if not name.endswith(_MANIFEST):
            return bool(holds(name))
        if name.rpartition("/")[2].startswith(_LIST):
            return False
        manifest = ManifestFile.from_args(
            manifest_path=name, manifest_length=0, partition_spec_id=0, content=ManifestContent.DATA, sequence_number=0
        )
        return any(True for _ in FilesOfOffsets(table, wanted, (), lambda _: holds).of_manifest(manifest, {}))
    except (pa.ArrowInvalid, ValueError, EOFError):
        return True
