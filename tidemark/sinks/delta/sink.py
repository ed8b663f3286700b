"""The sink `delta` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tidemark.clients.connections import Connections
from tidemark.clients.lake import beside
from tidemark.ledger.erasures import places_to_clear
from tidemark.ledger.ledger import CommittedSnapshot, Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.counting import named_few, number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import Erasing, SinkAdmin, SinkContext, T
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.reading import delta_rows
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import of_file
from tidemark.sinks.versions import versions_of
from tidemark.types.renamed_fields import NEVER

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


class DeltaAdmin(SinkAdmin):
    rows_by_coordinate = True
    owner_asked = True
    folder_may_go = True
    # The type that receipts give.
    kind: ClassVar[str] = "delta"

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        from tidemark.sinks.delta import table

        return table.owner(place["base"])

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        from tidemark.sinks.delta import table

        table.take_over(place["base"], ledger)

    def shown(self, ledger: Ledger, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        from tidemark.sinks.delta import table

        return table.newest_shown(place["base"], versions_of(ledger))

    def reach(self, connections: Connections, place: Mapping[str, str], standing: CommittedSnapshot) -> None:
        from tidemark.sinks.delta import table

        table.check_there(place["base"], (one.record for one in standing.windows))

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        """Remove the folders of older attempts at the window, which nobody has published."""
        from tidemark.sinks.delta import table
        from tidemark.sinks.parquet import files

        table.check_there(place["base"], [record])
        files.sweep(beside(place["base"]), record)

    def publish(self, ledger: Ledger, connections: Connections, place: Mapping[str, str], record: Record) -> None:
        from tidemark.sinks.delta.publishing import publish

        publish(ledger, place["base"], self.sink_of(record, place), record, place["folder"])

    def sink_of(self, record: Record, place: Mapping[str, str]) -> str | None:
        """The name of the sink that a place of a receipt is of; None for that of the dead letters."""
        return next(one.name for one in record.places if one.type == self.kind and one.place == place)

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        from tidemark.sinks.delta import remains, table
        from tidemark.sinks.delta.publishing import take_out

        self.reach(connections, place, erasing.standing)
        # An attempt may have died before it made the table.
        if table.exists(place["base"]):
            take_out(place["base"], erasing.record, erasing.erased)
        remains.clear(place["base"], erasing)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        from tidemark.sinks.delta.remains import came_late

        return came_late(place["base"], done)

    def remains(self, opened: SinkContext, sink: str, erased: RangeSet) -> str:
        from tidemark.sinks.delta.remains import only_in_older

        written = (one.place for one in places_to_clear(opened.ledger))
        bases = {one.place["base"] for one in written if (one.type, one.name) == (self.kind, sink)}
        older = sorted(name for base in bases for name in only_in_older(base, erased))
        if not older:
            return ""
        hold = number_of(len(older), "file", "of older versions holds", "of older versions hold")
        return f"no reader of the newest version sees it; {hold} it until the table is vacuumed ({named_few(older)})"

    def folder_mark(self, connections: Connections, settings: DeltaSink) -> str | None:
        from tidemark.sinks.delta import table

        return table.identity(settings.base(connections))

    def check_mounted(
        self, connections: Connections, settings: DeltaSink, records: Callable[[], Iterable[Record]]
    ) -> None:
        from tidemark.sinks.delta import table

        table.check_there(settings.base(connections), records())

    def check_fields(self, opened: SinkContext, settings: DeltaSink) -> None:
        from tidemark.sinks.delta import table

        table.check_columns(settings.base(opened.connections), opened.fields, opened.was)

    def place(self, opened: SinkContext, settings: DeltaSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        from tidemark.sinks.delta.attempts import attempt_folder

        base = settings.base(opened.connections)
        return {"base": base, "folder": attempt_folder(base, lane, seq, generation)}

    def rows_at(
        self, opened: SinkContext, settings: DeltaSink, at: Coordinate, record: Record
    ) -> list[StoredRow] | str:
        from tidemark.sinks.delta.reading import files_of_window
        from tidemark.sinks.parquet.row_lookup import rows_of_message

        place = next((one.place for one in record.places if one.name == settings.name), None)
        if place is None:
            return []
        # What no longer counts is taken out, so a window may have no file left. A file is removed by a vacuum alone.
        return files_of_window(record, place, lambda paths: rows_of_message(paths, at, record, compacted=False))

    def rows(self, opened: SinkContext, settings: DeltaSink, limit: int) -> Iterator[dict[str, Any]]:
        return map(of_file, delta_rows(opened.ledger, settings.name, limit))

    def rows_within(
        self,
        opened: SinkContext,
        settings: Any,
        within: OffsetRange,
        take: Callable[[Iterator[dict[str, Any]]], T],
    ) -> T:
        from tidemark.sinks.delta.reading import of_parts
        from tidemark.sinks.parquet.row_lookup import rows_within

        def read(parts: list[FolderPart], authority: Authority) -> T:
            return take(rows_within(parts, authority, within, NEVER))

        return of_parts(opened.ledger, settings.name, read)


class DeltaLetters(DeltaAdmin):
    """Dead letters in a Delta table."""

    kind = "delta_dead_letters"

    def sink_of(self, record: Record, place: Mapping[str, str]) -> None:
        return None
