"""The newest row of each key, when windows have been committed: which buckets of the table change, and what they become.

A table follows from the history alone: of each key it has the newest row that counts. Whoever changes it takes these steps:

1. loads the newest version of the table;
2. reads the ledger;
3. takes out rows that count no more, and brings back what they had overwritten, from the history;
4. adds the newer rows of the windows that are to be seen;
5. commits the version after the one that it has loaded, or else begins again.

So a process that wakes up late does no harm. Either the table has another version by now, and it begins again; or its ledger
was read after all that the table shows, and rows that count no more are in none of its steps. Nothing has to be noted in the
table: what is done once more changes nothing, and makes no version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemark.ledger.ordering import Epochs
from tidemark.sinks.latest.history import History
from tidemark.sinks.latest.rows import BUCKET, KEY_HASH, newest
from tidemark.sinks.parquet.compactions import WindowName

# Buckets are read together as long as their files have so many bytes, and the new rows are so many.
_MOST_BYTES, _MOST_ROWS = 64 << 20, 200_000

_COORDINATE = ("_topic", "_incarnation", "_partition", "_offset", "_generation")


class Version(Protocol):
    """One version of a table with the newest row of each key."""

    @property
    def key(self) -> Sequence[str]: ...

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def sizes(self) -> dict[int, int]:
        """The buckets that have rows, each with the bytes of its files."""
        ...

    def paths(self, bucket: int) -> Sequence[str]:
        """The files of a bucket, by the names that receipts give."""
        ...

    def rows(self, buckets: Collection[int], columns: pa.Schema) -> pa.Table:
        """The rows of some buckets."""
        ...


@dataclass(frozen=True)
class Merge:
    """The ledger as it was read after the version, the history, and the order of its messages."""

    version: Version
    history: History
    epochs: Epochs

    def changed(self, windows: Collection[WindowName], *, replaced: bool) -> Iterator[tuple[int, pa.Table]]:
        """The buckets that change when some committed windows are to be seen, each with all its rows.

        `replaced`: rows that are there may count no more, wherever they are. Else nobody looks for them in other buckets than
        those of the windows.
        """
        fresh = self.history.only(windows)
        new = fresh.sizes()
        stale = self._stale() if replaced else set()
        for some in self._together(sorted({*new, *stale}), new):
            yield from self._merged(some, fresh)

    def _stale(self) -> set[int]:
        """The buckets with rows that count no more."""
        found = set()
        for some in self._together(sorted(self.version.sizes), {}):
            columns = pa.schema([self.version.columns.field(name) for name in (*_COORDINATE, BUCKET)])
            rows = self.version.rows(some, columns)
            found |= {*rows.filter(pa.array(~self.history.count(rows))).column(BUCKET).to_pylist()}
        return found

    def _merged(self, some: Collection[int], fresh: History) -> Iterator[tuple[int, pa.Table]]:
        columns = self.version.columns
        current = self.version.rows(some, columns)
        counting = self.history.count(current)
        kept = current.filter(pa.array(counting))
        made = [kept, fresh.rows(columns, some)]
        lost = current.filter(pa.array(~counting))
        if lost.num_rows:
            # What these rows had overwritten. Rows of another key with the same hash do no harm: they are not the newest.
            made.append(self.history.rows(columns, some, np.unique(lost.column(KEY_HASH).to_numpy())))
        rows = pa.concat_tables(made)
        chosen = newest(rows, self.version.key, self.epochs)
        # A bucket of which no row has gone, and none has come, stays as it is.
        differ = {*lost.column(BUCKET).to_pylist()}
        differ |= {*rows.column(BUCKET).take(pa.array(chosen[chosen >= kept.num_rows])).to_pylist()}
        after = rows.take(pa.array(chosen))
        buckets = after.column(BUCKET).to_numpy()
        for bucket in sorted(differ):
            yield bucket, after.filter(pa.array(buckets == bucket))

    def _together(self, buckets: Iterable[int], new: dict[int, int]) -> Iterator[list[int]]:
        """Buckets in turn, as many as may be in memory; at least one."""
        some: list[int] = []
        size, rows = 0, 0
        for one in buckets:
            more, count = self.version.sizes.get(one, 0), new.get(one, 0)
            if some and (size + more > _MOST_BYTES or rows + count > _MOST_ROWS):
                yield some
                some, size, rows = [], 0, 0
            some.append(one)
            size, rows = size + more, rows + count
        if some:
            yield some
