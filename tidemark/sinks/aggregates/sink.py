"""Sinks with totals of each key, without Spark: what their readers show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidemark.ledger.erasures import erased as erased_by
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.lookup import CoveringWindows
from tidemark.offsets.ranges import RangeSet
from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.contract import Columns, KeyedRowFound, SinkContext
from tidemark.sinks.latest.sink import LakeTableAdmin, PublishedAdmin
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import text, value_text
from tidemark.types.renamed_fields import Names

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.sinks.parquet.files import Holding


class TotalsAdmin(PublishedAdmin):
    """Of any format."""

    def in_columns(
        self, settings: AggregatesSettings, fields: Sequence[str], rows: Sequence[dict[str, Any]]
    ) -> Columns:
        return Columns(
            (*settings.key, *settings.values), [[*one["key"].values(), *one["values"].values()] for one in rows]
        )


def shown(settings: AggregatesSettings, row: Mapping[str, str | None]) -> dict[str, Any]:
    """Key and values of each key, without a coordinate."""
    return {
        "key": {name: row.get(name) for name in settings.key},
        "values": {name: row.get(name) for name in settings.values},
    }


def under(
    settings: AggregatesSettings, key: Mapping[str, bytes | None], total: Mapping[str, bytes] | None
) -> KeyedRowFound:
    """The total of a message's key, as another sink's row shows it. Nulls are absent in `total`; None for no row."""
    if total is None:
        return KeyedRowFound(key, "no row of its key counts", {})
    return KeyedRowFound(key, "the total of its key", {name: total[name] for name in settings.values if name in total})


class LakeTotalsAdmin(TotalsAdmin, LakeTableAdmin):
    """Tables of a lake with totals of each key."""

    def shown_by(self, ledger: Ledger) -> Ledger:
        """What another stream has erased counts until it is erased here, too."""
        return ledger.showing_all()

    def rows(self, opened: SinkContext, settings: AggregatesSettings, limit: int) -> Iterator[dict[str, Any]]:
        """Key and values of each key, without a coordinate."""
        yield from self.read(
            opened,
            settings,
            lambda found: [
                shown(settings, row) for row in islice(_texts(one.slice(0, limit) for one in found.tables()), limit)
            ],
        )

    def under_key(
        self, opened: SinkContext, settings: AggregatesSettings, row: StoredRow, windows: CoveringWindows
    ) -> KeyedRowFound | None:
        """The total of the message's key."""
        key = {name: row.fields.get(name) for name in settings.key}
        # As everywhere, -0.0 is the key 0.0.
        floats = {name for name in key if opened.fields[name] in ("double", "float")}
        wanted = {name: "0.0" if name in floats and one == b"-0.0" else text(one) for name, one in key.items()}

        def of_key(row: Mapping[str, str | None]) -> bool:
            return all(row[name] == one for name, one in wanted.items())

        total = self.read(opened, settings, lambda found: next(filter(of_key, _texts(found.tables())), None))
        there = {name: one.encode() for name, one in total.items() if one is not None} if total is not None else None
        return under(settings, key, there)

    @abstractmethod
    def check_key(self, opened: SinkContext, settings: Any, key: Fields, was: Names) -> None:
        """Raises WrongUse for a field of the key whose column is another one. `was`: their older names."""

    def check_fields(self, opened: SinkContext, settings: AggregatesSettings) -> None:
        """Of the key the table has columns, of all fields the history."""
        from tidemark.sinks.parquet import types

        key = {name: opened.fields[name] for name in settings.key}
        was = {name: older for name, older in opened.was.items() if name in key}
        self.check_key(opened, settings, key, was)
        types.check(settings.history(opened.connections).folder, opened.fields, opened.was)

    def holding(self, opened: SinkContext, sink: str, history: str, wanted: RangeSet) -> Holding:
        """Whether the totals of a file may have counted rows of some offsets. Nothing in it says of which rows they are."""
        from tidemark.sinks.aggregates.fold import erased_in, may_hold
        from tidemark.sinks.parquet.files import exists
        from tidemark.sinks.parquet.parts import steady

        if wanted - erased_by(opened.ledger.committed()):
            # They are about to be erased.
            return lambda name: exists(name) or None
        mine = steady(
            opened.ledger,
            sink,
            lambda parts, _: erased_in(one for one in parts if one.base == history),
            self.kind,
        )
        # A version may name a file that was removed since.
        return lambda name: may_hold(name, mine) and (exists(name) or None)


def _texts(tables: Iterable[pa.Table]) -> Iterator[dict[str, str | None]]:
    """The rows with the texts that HBase has for their values."""
    from tidemark.sinks.column_texts import with_texts

    for table in tables:
        for row in with_texts(table).to_pylist():
            yield {name: None if one is None else value_text(one) for name, one in row.items()}
