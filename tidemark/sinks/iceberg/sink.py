"""The sink `iceberg` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemark.clients.connections import Connections
from tidemark.ledger.ledger import CommittedSnapshot, Ledger, LedgerSnapshot
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet
from tidemark.sinks.contract import Erasing, SinkAdmin, SinkContext, T
from tidemark.sinks.iceberg.settings import IcebergSink, place_of
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import of_file
from tidemark.types.renamed_fields import Names, both

if TYPE_CHECKING:
    from tidemark.sinks.iceberg.live_files import LiveFile

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


class IcebergAdmin(SinkAdmin):
    rows_by_coordinate = True
    owner_asked = True
    always_makes_folder = True
    folder_may_go = True

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located

        return table.owner(located(connections, place))

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located

        table.take_over(located(connections, place), ledger)

    def shown(self, ledger: Ledger, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        from tidemark.sinks.iceberg.catalog import located, opened
        from tidemark.sinks.iceberg.lanes import newest_shown
        from tidemark.sinks.versions import versions_of

        table = opened(located(connections, place))
        return () if table is None else newest_shown(table.properties, versions_of(ledger))

    def reach(self, connections: Connections, place: Mapping[str, str], standing: CommittedSnapshot) -> None:
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located

        table.check_there(located(connections, place), (one.record for one in standing.windows))

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        """Remove the files of older attempts at the window, which nobody has published."""
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located

        table.sweep(located(connections, place), record)

    def publish(self, ledger: Ledger, connections: Connections, place: Mapping[str, str], record: Record) -> None:
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located
        from tidemark.sinks.iceberg.lanes import forgotten
        from tidemark.sinks.versions import versions_of, was_restored

        where = located(connections, place)
        table.check_there(where, [record])
        # What an earlier attempt at the window has left was never published. What a ledger has published that was lost since
        # may have any generation.
        lost = was_restored(ledger)
        replaced = ledger.covers(record.window) if record.owes_sweep or lost else RangeSet()
        forget = partial(forgotten, ledger, record.lane)
        counting = partial(_counting, ledger, record, place)
        table.publish(
            where,
            versions_of(ledger),
            record,
            place["folder"],
            replaced,
            any_generation=lost,
            forget=forget,
            counting=counting,
            may_count=partial(_may_count, ledger, record, place),
        )

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located
        from tidemark.sinks.parquet import files

        where = located(connections, place)
        # An attempt may have died before it made the table.
        if table.check_there(where, (one.record for one in erasing.standing.windows)) is not None:
            table.remove(where, erasing.record, erasing.erased)
        files.erase_dead(f"{where.base}/data", erasing)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        from tidemark.sinks.iceberg.catalog import located
        from tidemark.sinks.iceberg.remains import came_late
        from tidemark.sinks.parquet import files

        where = located(connections, place)
        return came_late(where, done) + sum(1 for _ in files.left_by_dead(f"{where.base}/data", done))

    def remains(self, opened: SinkContext, sink: str, erased: RangeSet) -> str:
        from tidemark.ledger.erasures import places_to_clear
        from tidemark.sinks.iceberg.catalog import located
        from tidemark.sinks.iceberg.remains import still_held
        from tidemark.sinks.iceberg.table import TYPE

        tables = (
            located(opened.connections, one.place)
            for one in (cleared.place for cleared in places_to_clear(opened.ledger))
            if (one.name, one.type) == (sink, TYPE)
        )
        return still_held(opened, sink, {*tables}, erased)

    def folder_mark(self, connections: Connections, settings: IcebergSink) -> str | None:
        from tidemark.sinks.iceberg.catalog import located, opened

        # The catalog says where the table is, which says itself who it is.
        table = opened(located(connections, place_of(settings, settings.base(connections))))
        return None if table is None else str(table.metadata.table_uuid)

    def check_mounted(
        self, connections: Connections, settings: IcebergSink, records: Callable[[], Iterable[Record]]
    ) -> None:
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located

        table.check_there(located(connections, place_of(settings, settings.base(connections))), records())

    def check_fields(self, opened: SinkContext, settings: IcebergSink) -> None:
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.catalog import located

        place = place_of(settings, settings.base(opened.connections))
        table.as_stored(located(opened.connections, place), opened.fields, opened.was)

    def place(self, opened: SinkContext, settings: IcebergSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        from tidemark.sinks.parquet.files import attempt_folder

        base = settings.base(opened.connections)
        return {**place_of(settings, base), "folder": attempt_folder(f"{base}/data", lane, seq, generation)}

    def rows_at(
        self, opened: SinkContext, settings: IcebergSink, at: Coordinate, record: Record
    ) -> list[StoredRow] | str:
        from tidemark.sinks.iceberg.catalog import located
        from tidemark.sinks.iceberg.reading import Seen, files_of_window, steadily
        from tidemark.sinks.iceberg.table import names_of
        from tidemark.sinks.parquet.row_lookup import rows_of_message

        place = next((one.place for one in record.places if one.name == settings.name), None)
        if place is None:
            return []
        was = both(names_of(located(opened.connections, place)), opened.was)

        def read(seen: Seen) -> list[StoredRow] | str:
            paths = files_of_window(opened.ledger, record, place, opened.connections, seen)
            return rows_of_message(paths, at, record, compacted=True, was=was)

        return steadily(read)

    def rows(self, opened: SinkContext, settings: IcebergSink, limit: int) -> Iterator[dict[str, Any]]:
        from tidemark.sinks.iceberg.reading import iceberg_rows

        return map(of_file, iceberg_rows(opened.ledger, settings.name, limit, opened.connections))

    def rows_within(
        self,
        opened: SinkContext,
        settings: Any,
        within: OffsetRange,
        take: Callable[[Iterator[dict[str, Any]]], T],
    ) -> T:
        from tidemark.sinks.iceberg.reading import of_parts
        from tidemark.sinks.parquet.row_lookup import rows_within

        def read(parts: list[FolderPart], authority: Authority, was: Names) -> T:
            return take(rows_within(parts, authority, within, was))

        return of_parts(opened.ledger, settings.name, opened.connections, read)


def _counting(ledger: Ledger, record: Record, place: Mapping[str, str]) -> RangeSet:
    """The offsets of a window at which no newer window of the ledger counts."""
    return _view(ledger, record, place).authority.held_by(record.attempt.generation, ledger.covers(record.window))


def _may_count(ledger: Ledger, record: Record, place: Mapping[str, str], one: LiveFile) -> bool:
    """Whether a row that a file may have counts, by the ledger."""
    view = _view(ledger, record, place)
    offsets = view.authority.covered()
    return any(
        one.may_have(view.authority.held_by(window.generation, offsets), MAX_OFFSET)
        for window in view.windows
        if one.may_have_generation(window.generation)
    )


def _view(ledger: Ledger, record: Record, place: Mapping[str, str]) -> LedgerSnapshot:
    return ledger.view(next(one.name for one in record.places if one.place == place))
