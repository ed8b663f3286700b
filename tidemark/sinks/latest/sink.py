"""The sinks with a row for each key, without Spark. Each says which table a place is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidemark.clients.connections import Connections
from tidemark.ledger.ledger import CommittedSnapshot, Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import Erasing, SinkContext, T
from tidemark.sinks.latest.rows import DELETED, history_of
from tidemark.sinks.latest.settings import HistorySettings, LatestSettings
from tidemark.sinks.parquet.sink import FoldersAdmin
from tidemark.sinks.texts import of_file

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.sinks.latest.table import LatestTable, TableRows
    from tidemark.sinks.parquet.files import Holding

# A table needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


class PublishedAdmin(FoldersAdmin):
    """The windows write a sink `parquet` of its own, the history. A receipt's `base` and `folder` are there.

    The table is made of the history, after the commit.
    """

    rows_by_coordinate = True
    owner_asked = True

    @abstractmethod
    def publish_to(
        self, connections: Connections, place: Mapping[str, str], ledger: Ledger, sink: str, record: Record
    ) -> None:
        """Publish a committed window in the table that a receipt names: see `SinkAdmin.publish`."""

    @abstractmethod
    def take_out_of(self, connections: Connections, place: Mapping[str, str], sink: str, erasing: Erasing) -> None:
        """Take the rows of erased messages out of the table, and bring back what they had overwritten."""

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        """In the history's folder, and in the table."""
        super().take_over(connections, place, stream, ledger)
        self.take_over_table(connections, place, ledger)

    @abstractmethod
    def take_over_table(self, connections: Connections, place: Mapping[str, str], ledger: str) -> None:
        """Write another ledger of its stream into the mark of the table, if it is there."""

    @abstractmethod
    def identity(self, connections: Connections, place: Mapping[str, str]) -> str | None:
        """The mark that tells the table from one that is made in its place; None where there is none. Raises Unreachable."""

    @abstractmethod
    def table_place(self, settings: Any, base: str) -> dict[str, str]:
        """How a receipt names the table."""

    @abstractmethod
    def older(self, opened: SinkContext, sink: str, place: Mapping[str, str], erased: RangeSet) -> str:
        """The files that only older versions of the table name, and that have rows of these offsets, in words."""

    def place(
        self, opened: SinkContext, settings: HistorySettings, lane: str, seq: int, generation: int
    ) -> dict[str, str]:
        from tidemark.sinks.parquet.files import attempt_folder

        base = settings.base(opened.connections)
        history = history_of(base)
        return {
            "base": history,
            "folder": attempt_folder(history, lane, seq, generation),
            **self.table_place(settings, base),
        }

    def publish(self, ledger: Ledger, connections: Connections, place: Mapping[str, str], record: Record) -> None:
        for sink in _names(place, [record]):
            self.publish_to(connections, place, ledger, sink, record)

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        super().erase(connections, place, erasing)
        for sink in _names(place, (one.record for one in erasing.standing.windows)):
            self.take_out_of(connections, place, sink, erasing)

    def remains(self, opened: SinkContext, sink: str, erased: RangeSet) -> str:
        from tidemark.ledger.erasures import places_to_clear

        said = [held] if (held := super().remains(opened, sink, erased)) else []
        # Each attempt has a folder of its own in the one history of a table.
        places = {
            tuple(sorted(_without_folder(one.place.place).items())): one.place.place
            for one in places_to_clear(opened.ledger)
            if (one.place.type, one.place.name) == (self.kind, sink)
        }
        said += filter(None, (self.older(opened, sink, one, erased) for one in places.values()))
        return "; ".join(said)

    def reach(self, connections: Connections, place: Mapping[str, str], standing: CommittedSnapshot) -> None:
        super().reach(connections, place, standing)
        self.check_table(connections, place, (one.record for one in standing.windows))

    def folder_mark(self, connections: Connections, settings: HistorySettings) -> str | None:
        """Of the table and of the folder with its history."""
        from tidemark.sinks.parquet import folders

        mine = self.identity(connections, self.table_place(settings, settings.base(connections)))
        history = folders.mark_of(settings.history(connections).folder)
        return None if mine is None or history is None else f"{mine} {history}"

    def check_mounted(
        self, connections: Connections, settings: HistorySettings, records: Callable[[], Iterable[Record]]
    ) -> None:
        from tidemark.sinks.parquet import folders

        folders.check_there(settings.history(connections).folder, records())
        self.check_table(connections, self.table_place(settings, settings.base(connections)), records())

    @abstractmethod
    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        """Raises Unreachable for a table that is gone, though some of these windows have written there."""


class LakeTableAdmin(PublishedAdmin):
    """Tables of a lake, whatever their rows are."""

    @abstractmethod
    def table(self, connections: Connections, place: Mapping[str, str]) -> LatestTable:
        """The table that a receipt names."""

    def identity(self, connections: Connections, place: Mapping[str, str]) -> str | None:
        return self.table(connections, place).identity()

    def shown(self, ledger: Ledger, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        from tidemark.sinks.latest.table import GENERATION_SHOWN, LANE_SHOWN

        version, register = self.table(connections, place).opened(), ledger.register()
        # Whatever it has shown for a ledger that was restored since, is looked at as a whole when that publishes.
        if version is None or register is None or version.restored != register[1].restored:
            return ()
        said = next((one for one in version.said() if GENERATION_SHOWN in one), {})
        return [(said[LANE_SHOWN], int(said[GENERATION_SHOWN]))] if said else ()

    def publish_to(
        self, connections: Connections, place: Mapping[str, str], ledger: Ledger, sink: str, record: Record
    ) -> None:
        from tidemark.sinks.latest.table import publish

        publish(self.table(connections, place), ledger, sink, record)

    def take_out_of(self, connections: Connections, place: Mapping[str, str], sink: str, erasing: Erasing) -> None:
        from tidemark.sinks.latest.table import take_out
        from tidemark.sinks.versions import ERASES, said_of

        table = self.table(connections, place)
        take_out(table, erasing.standing.ledger, sink, {**said_of(erasing.record), ERASES: "true"})

    def holding(self, opened: SinkContext, sink: str, history: str, wanted: RangeSet) -> Holding:
        """Whether a file of the table has rows of some offsets."""
        from tidemark.sinks.parquet.files import holds

        return lambda name: holds(name, wanted)

    def read(self, opened: SinkContext, settings: HistorySettings, take: Callable[[TableRows], T]) -> T:
        """The result of `take` for the rows of all keys by the ledger."""
        from tidemark.sinks.latest.table import read

        base = settings.base(opened.connections)
        table = self.table(opened.connections, self.table_place(settings, base))
        return read(table, self.shown_by(opened.ledger), settings.name, take)

    def shown_by(self, ledger: Ledger) -> Ledger:
        """The ledger by which readers see the table."""
        return ledger


class LatestRowsAdmin(LakeTableAdmin):
    """Tables of a lake with the newest row of each key."""

    versions_by_order = True

    def rows(self, opened: SinkContext, settings: LatestSettings, limit: int) -> Iterator[dict[str, Any]]:
        """The newest row of each key, and whether it says that the key is gone."""
        yield from self.read(
            opened,
            settings,
            lambda newest: list(islice(_shown(table.slice(0, limit) for table in newest.tables()), limit)),
        )

    def rows_within(
        self,
        opened: SinkContext,
        settings: Any,
        within: OffsetRange,
        take: Callable[[Iterator[dict[str, Any]]], T],
    ) -> T:
        """Of the newest rows of all keys those that were made of messages at these offsets."""
        return self.read(opened, settings, lambda newest: take(_shown(newest.within(within))))


def _shown(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    from tidemark.sinks.column_texts import with_texts

    return ({**of_file(row), "deleted": row[DELETED]} for table in tables for row in with_texts(table).to_pylist())


def _names(place: Mapping[str, str], records: Any) -> list[str]:
    """The names of the sinks under which windows have written to a place, in any of its folders."""
    wanted = _without_folder(place)
    return sorted({one.name for record in records for one in record.places if _without_folder(one.place) == wanted})


def _without_folder(place: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in place.items() if name != "folder"}
