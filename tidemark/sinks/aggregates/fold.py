"""Totals of each key as what a bucket of a lake's table is made of: see `tidemark.sinks.latest.folds`.

Unlike a newest row, a sum must not take in a window twice. So each version that changes totals notes, in the same commit,
which windows it has counted that were not settled when it was made. A window counts in a version if it is noted there, or is
settled when that is asked after the version was loaded: its publication came to its end before. So

- a window that reads offsets for the first time is added to a version that does not have it, and to no other;
- all else is computed from the whole history: a replay, an erasure, a window of which some rows count no more, and what a
  restored ledger has forgotten. A maximum has no inverse.

The note names the files that it is about, by a digest. A table that another program has changed, or has set back to an older
version, has other files. Then nothing is added to them, and all totals are computed anew. Until then readers show what is
there, so that an audit finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import Record, Register
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.aggregates.folding import Folding, comparable
from tidemark.sinks.aggregates.states import aggregates_of
from tidemark.sinks.latest.folds import Changed, TableState
from tidemark.sinks.latest.history import BucketFileGone, History, conformed
from tidemark.sinks.latest.merging import TableVersion, by_bucket, together
from tidemark.sinks.latest.rows import BUCKET, GENERATION, history_of
from tidemark.sinks.latest.table import unsettled
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.compactions import WindowName
from tidemark.sinks.parquet.parts import FolderPart

# Lane, number and generation of a window.
_Window = tuple[str, int, int]
_MARK = re.compile(r"erased-([0-9a-f]{16})-")


@dataclass(frozen=True)
class Counted:
    """What a version says of its totals: which windows they have that may not be settled, and what was erased of them."""

    windows: frozenset[_Window]
    erased: str
    restored: str

    @classmethod
    def of(cls, version: TableVersion, register: Register, *, of_any_files: bool = False) -> Counted | None:
        """None where it does not say it of these files and this ledger."""
        if not version.noted:
            return None
        said = json.loads(version.noted)
        if said["restored"] != register.restored:
            return None
        if not of_any_files and said["files"] != _digest(_files(version)):
            return None
        windows = frozenset((lane, seq, generation) for lane, seq, generation in said["windows"])
        return cls(windows, said["erased"], said["restored"])

    def noted(self, names: Iterable[str]) -> str:
        """For a version with these files."""
        return json.dumps(
            {
                "windows": sorted(self.windows),
                "erased": self.erased,
                "restored": self.restored,
                "files": _digest(names),
            }
        )

    @property
    def mark(self) -> str:
        """How the names of files begin: it tells those whose totals have what was erased since."""
        return f"erased-{self.erased}-" if self.erased else ""


@dataclass(frozen=True)
class TotalsFold:
    """The totals of each key, in the table in a folder."""

    base: str

    def has(self, at: TableState, record: Record) -> bool:
        counted = Counted.of(at.version, at.register)
        return counted is not None and (_window(record) in counted.windows or at.ledger.is_settled(record))

    def adds(self, at: TableState, window: Committed) -> bool:
        return not window.record.kind.reads_again and Counted.of(at.version, at.register) is not None

    def added(self, at: TableState, fresh: History, window: Committed) -> Changed:
        counted = Counted.of(at.version, at.register)
        if counted is None:
            raise ValueError(f"{self.base}: a window is added to a version that does not say what it has")
        there = _windows(unsettled(at.ledger, at.register))
        mine = Counted((counted.windows | {_window(window.record)}) & there, counted.erased, counted.restored)
        return Changed(self._added(at.version, fresh, [window.generation]), mine.mark, mine.noted)

    def anew(
        self,
        at: TableState,
        history: History,
        parts: Sequence[FolderPart],
        windows: Collection[WindowName],
        lost: frozenset[int],
    ) -> Changed:
        # Read after the history: what is settled by then is asked for by nobody.
        there = _windows(unsettled(at.ledger, at.ledger.register_of_windows()))
        known = {_window(one.record) for part in parts for one in part.windows}
        counted = Counted(frozenset(known & there), erased_in(parts), at.register.restored)
        return Changed(self._anew(at.version, history, counted), counted.mark, counted.noted)

    def unpublished(
        self,
        at: TableState,
        history: History,
        parts: Sequence[FolderPart],
        windows: Mapping[WindowName, Record],
    ) -> Changed:
        counted = Counted.of(at.version, at.register, of_any_files=True)
        if counted is None:
            return self.anew(at, history, parts, (), frozenset())
        # Whether they are settled is read after the version, and not before.
        pending = {
            name: one
            for name, one in windows.items()
            if one.places and _window(one) not in counted.windows and not at.ledger.is_settled(one)
        }
        generations = {one.attempt.generation for one in pending.values()}
        lost = {generation for part in parts for generation in part.lost}
        if generations & lost or any(one.kind.reads_again for one in windows.values()):
            return self.anew(at, history, parts, (), frozenset())
        return Changed(self._added(at.version, history.only(pending), sorted(generations)) if pending else ())

    def _folding(self, version: TableVersion) -> Folding:
        base = history_of(self.base)
        was, fields = types.names_of(base), types.check(base, {})
        return Folding(fields, tuple(version.key), aggregates_of(version.values, fields, was), (BUCKET,))

    def _named(self, history: History) -> History:
        return History(history.parts, history.authority, history.forgets, types.names_of(history_of(self.base)))

    def _added(
        self, version: TableVersion, fresh: History, generations: Sequence[int]
    ) -> Iterator[tuple[int, pa.Table]]:
        """The buckets of some windows, with the rows of these."""
        new = fresh.sizes()
        if not new:
            return
        folding, fresh = self._folding(version), self._named(fresh)
        columns = pa.schema([*folding.columns, (GENERATION, pa.int64())])
        for some in together(sorted(new), version.sizes, new):
            before = conformed(version.rows(some, version.columns), folding.result)
            # A compaction may have put rows of other windows beside them.
            pieces = (
                one.filter(pc.is_in(one.column(GENERATION), pa.array(generations, pa.int64())))
                for one in fresh.pieces(columns, pc.field(BUCKET).isin(some))
            )
            made = _in_order(folding, folding.folded(pieces, before))
            yield from by_bucket(conformed(made, version.columns), some)

    def _anew(self, version: TableVersion, history: History, counted: Counted) -> Iterator[tuple[int, pa.Table]]:
        """The buckets whose totals differ from those of the history, or whose files may have what was erased."""
        rows = history.sizes()
        if not rows and not version.sizes:
            return
        folding, history = self._folding(version), self._named(history)
        new = {bucket: number for bucket, number in rows.items() if bucket not in version.sizes}
        for some in together(sorted({*rows, *version.sizes}), version.sizes, new):
            folded = folding.folded(history.pieces(folding.columns, pc.field(BUCKET).isin(some)))
            for bucket, made in by_bucket(_in_order(folding, folded), some):
                if self._differs(version, folding, bucket, made, counted.mark):
                    yield bucket, conformed(made, version.columns)

    @staticmethod
    def _differs(version: TableVersion, folding: Folding, bucket: int, made: pa.Table, mark: str) -> bool:
        if any(_mark_of(one) != mark for one in version.paths(bucket)):
            return True
        try:
            there = conformed(version.rows([bucket], version.columns), folding.result)
        except BucketFileGone:
            return True
        return not comparable(made).equals(comparable(_in_order(folding, there)))


def erased_in(parts: Iterable[FolderPart]) -> str:
    """A digest of what was erased of the windows of a history; empty for nothing."""
    gone = RangeSet.union(one.erased for one in parts if one.erased)
    said = sorted(f"{one.partition.incarnation} {one}" for one in gone)
    return xxhash.xxh64_hexdigest("\n".join(said).encode()) if said else ""


def may_hold(name: str, erased: str) -> bool:
    """Whether the totals of a file may have what was erased, by the digest of all that is."""
    return _mark_of(name) != (f"erased-{erased}-" if erased else "")


def _mark_of(name: str) -> str:
    found = _MARK.search(name.rpartition("/")[2])
    return found[0] if found else ""


def _in_order(folding: Folding, rows: pa.Table) -> pa.Table:
    """By their keys, so that the same totals are the same table."""
    rows = conformed(rows, folding.result)
    if not rows.num_rows:
        return rows
    keys = comparable(rows.select([*folding.key]))
    return rows.take(pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]))


def _files(version: TableVersion) -> Iterator[str]:
    return (one for bucket in version.sizes for one in version.paths(bucket))


def _digest(names: Iterable[str]) -> str:
    """Of the names of files, wherever the table is."""
    return xxhash.xxh64_hexdigest("\n".join(sorted(one.rpartition("/")[2] for one in names)).encode())


def _windows(records: Mapping[WindowName, Record]) -> frozenset[_Window]:
    return frozenset(map(_window, records.values()))


def _window(record: Record) -> _Window:
    return record.lane, record.seq, record.attempt.generation
