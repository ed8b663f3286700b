"""The newest row of each key, when windows have been committed: which buckets of the table change, and what they become.

A table follows from the history alone: of each key it has the newest row that counts. Whoever changes it takes these steps:

1. loads the newest version of the table;
2. reads the ledger;
3. takes out rows that count no more, and brings back what they had overwritten, from the history;
4. adds the newer rows of the window that is to be seen;
5. commits the version after the one that it has loaded, or else begins again.

So a process that wakes up late does no harm. Either the table has another version by now, and it begins again; or its ledger
was read after all that the table shows, and rows that count no more are in none of its steps. What is done once more changes
nothing, and makes no version.

Rows stop counting only where a later window covers their offsets, and that window's own publication takes them out. So a
window of offsets that were read for the first time needs no third step, and no history: only its own rows, if no newer window
covers them.

A bucket of which a file is gone is made again of all rows of the history.

Where the ledger was restored, a replay that it has forgotten may have taken out rows that count again: then all that count
are compared with the table, once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemark.ledger.ordering import Epochs
from tidemark.sinks.aggregates.states import Values
from tidemark.sinks.latest.history import History
from tidemark.sinks.latest.rows import BUCKET, KEY_HASH, newest

# The most bytes of files of buckets that are read together, and the most new rows.
_MAX_BYTES, _MAX_ROWS = 16 << 20, 200_000

_COORDINATE = ("_topic", "_incarnation", "_partition", "_offset", "_generation")


class TableVersion(Protocol):
    """One version of a table with a row for each key."""

    @property
    def name(self) -> str:
        """The mark that tells it from all others of its table."""
        ...

    @property
    def key(self) -> Sequence[str]: ...

    @property
    def values(self) -> Values:
        """What its columns of totals are; empty for a table that has none."""
        ...

    @property
    def columns(self) -> pa.Schema: ...

    @property
    def restored(self) -> str:
        """The `restored` of the register that it was made from: see `Register.restored`."""
        ...

    @property
    def noted(self) -> str:
        """What the last version says that changed buckets: see `Changed.noted`."""
        ...

    def said(self) -> Iterable[Mapping[str, str]]:
        """What is noted in the newest versions, one after the other from this one back: see `LatestTable.change`."""
        ...

    @property
    def sizes(self) -> dict[int, int]:
        """The buckets that have rows, each with the bytes of its files."""
        ...

    @property
    def outside(self) -> int:
        """How many rows other programs have added, which are in no bucket: no reader of Tidemark takes them."""
        ...

    def paths(self, bucket: int) -> Sequence[str]:
        """The files of a bucket, by the names that receipts give."""
        ...

    def rows(self, buckets: Collection[int], columns: pa.Schema) -> pa.Table:
        """The rows of some buckets."""
        ...


def coordinates(version: TableVersion, buckets: Collection[int]) -> pa.Table:
    """Where the rows of some buckets come from: their coordinates, generations and buckets."""
    return version.rows(buckets, pa.schema([version.columns.field(name) for name in (*_COORDINATE, BUCKET)]))


@dataclass(frozen=True)
class Merge:
    """The changes to a version of a table, by the ledger as it was read after the version.

    `fresh` has the rows of the windows that are to be seen, or all where the table may lack some that count. `history`, if rows
    of the table may count no more, or a bucket is `lost`: all that count. A lost bucket is made of these alone.
    """

    version: TableVersion
    fresh: History
    epochs: Epochs
    history: History | None = None
    lost: frozenset[int] = frozenset()

    def changed(self) -> Iterator[tuple[int, pa.Table]]:
        """The buckets that change, each with all its rows."""
        new = self.fresh.sizes()
        stale = self._stale(self.history) if self.history is not None else set()
        for some in self._together(sorted({*new, *stale} - self.lost), new):
            yield from self._merged(some)
        if self.history is not None:
            for some in self._together(sorted(self.lost), new):
                yield from by_bucket(
                    self.history.newest(self.version.columns, some, self.version.key, self.epochs), some
                )

    def _stale(self, history: History) -> set[int]:
        """The buckets with rows that count no more."""
        buckets = set()
        for some in self._together(sorted({*self.version.sizes} - self.lost), {}):
            rows = coordinates(self.version, some)
            buckets |= {*rows.filter(pa.array(~history.count(rows))).column(BUCKET).to_pylist()}
        return buckets

    def _merged(self, some: Collection[int]) -> Iterator[tuple[int, pa.Table]]:
        columns = self.version.columns
        kept = self.version.rows(some, columns)
        lost = kept.slice(0, 0)
        if self.history is not None:
            counting = self.history.count(kept)
            kept, lost = kept.filter(pa.array(counting)), kept.filter(pa.array(~counting))
        made = [kept, self.fresh.newest(columns, some, self.version.key, self.epochs)]
        if self.history is not None and lost.num_rows:
            # What these rows had overwritten. Rows of another key with the same hash do no harm: they are not the newest.
            made.append(self.history.rows(columns, some, np.unique(lost.column(KEY_HASH).to_numpy())))
        rows = pa.concat_tables(made)
        chosen = newest(rows, self.version.key, self.epochs)
        # A bucket of which no row has gone, and none has come, stays as it is.
        differ = {*lost.column(BUCKET).to_pylist()}
        differ |= {*rows.column(BUCKET).take(pa.array(chosen[chosen >= kept.num_rows])).to_pylist()}
        yield from by_bucket(rows.take(pa.array(chosen)), differ)

    def _together(self, buckets: Iterable[int], new: dict[int, int]) -> Iterator[list[int]]:
        return together(buckets, self.version.sizes, new)


def together(buckets: Iterable[int], sizes: Mapping[int, int], rows: Mapping[int, int]) -> Iterator[list[int]]:
    """Buckets in turn, as many as may be in memory; at least one. By the bytes of their files, and by their new rows."""
    some: list[int] = []
    size, number = 0, 0
    for one in buckets:
        more, count = sizes.get(one, 0), rows.get(one, 0)
        if some and (size + more > _MAX_BYTES or number + count > _MAX_ROWS):
            yield some
            some, size, number = [], 0, 0
        some.append(one)
        size, number = size + more, number + count
    if some:
        yield some


def by_bucket(rows: pa.Table, buckets: Iterable[int]) -> Iterator[tuple[int, pa.Table]]:
    of = rows.column(BUCKET).to_numpy()
    for bucket in sorted(buckets):
        yield bucket, rows.filter(pa.array(of == bucket))
