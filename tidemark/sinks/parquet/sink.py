"""The sink `parquet` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

from tidemark.clients.connections import Connections
from tidemark.ledger.erasures import erased as erased_of
from tidemark.ledger.erasures import places_to_clear
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import SinkContext, T
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.attempts import InFolders
from tidemark.sinks.parquet.compactions import WindowSpan, described, spans
from tidemark.sinks.parquet.parts import TYPE, FolderPart, steady
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.sinks.reading import parquet_rows
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import of_file


class FoldersAdmin(InFolders):
    """The behaviour of all sinks with a folder for each attempt, which a compaction may put together."""

    # The type that receipts give.
    kind: ClassVar[str] = TYPE
    always_makes_folder = True

    def remains(self, opened: SinkContext, sink: str, erased: RangeSet) -> str:
        from tidemark.sinks.parquet import folders
        from tidemark.sinks.parquet.files import holds_erased

        named: set[str] = set()

        def read(parts: list[FolderPart], _: Authority) -> list[WindowSpan]:
            named.update(folders.path_of(part.folder) for part in parts)
            # In a dry run, nothing is erased yet.
            wanted = (replace(part, erased=erased & RangeSet(_covered(part))) for part in parts)
            return [span for part in wanted if holds_erased(part) for span in spans(part.names)]

        compact = f"tidemark compact {opened.ledger.stream} --sink {sink}"
        held = steady(opened.ledger, sink, read, self.kind)
        said = [f"no reader of Tidemark shows it; files of {described(held)} hold it until: {compact}"] if held else []
        return "; ".join((*said, *self._left_beside(opened, sink, erased, named)))

    def _left_beside(self, opened: SinkContext, sink: str, wanted: RangeSet, named: set[str]) -> Iterator[str]:
        """The folders with erased rows that no window names: of attempts without a commit or receipt, and of compactions.

        Windows of a sink with another name, below the same base, name theirs: the name may have changed.

        An erasure that is still to come removes those of dead attempts.
        """
        from tidemark.sinks.parquet import files, folders

        written = [
            cleared
            for cleared in places_to_clear(opened.ledger)
            if (cleared.place.type, cleared.place.name) == (self.kind, sink)
        ]
        if not written:
            return
        standing = written[0].standing
        gone = wanted & erased_of(standing.windows)
        named |= {
            folders.path_of(place.place["folder"])
            for window in standing.windows
            for place in window.record.places
            if place.type == self.kind and place.name != sink
        }
        made = compactions.of_all_sinks(opened.ledger)
        named |= {folders.path_of(folder.folder) for value in made for folder in value.folders}
        compacting = {value.claim.generation for value in made if value.claim is not None}
        committed = {window.generation for window in standing.windows}
        for base in sorted({cleared.place.place["base"] for cleared in written}):
            for attempt in files.on_disk(base):
                if folders.path_of(attempt.folder) in named:
                    continue
                if attempt.generation in committed:
                    if files.holds(attempt.folder, wanted):
                        yield f"plain readers see it in {attempt.folder}, which has no receipt: remove this folder"
                elif attempt.compacted and attempt.generation not in compacting:
                    if files.holds(attempt.folder, gone):
                        compact = f"tidemark compact {opened.ledger.stream} --sink {sink}"
                        yield f"plain readers see it in {attempt.folder} until: {compact}"
                elif standing.is_dead(attempt.generation, max(committed, default=0)) and files.holds(
                    attempt.folder, gone
                ):
                    yield f"plain readers see it in {attempt.folder}, which an attempt has left: remove this folder"

    def rows_at(self, opened: SinkContext, settings: Any, at: Coordinate, record: Record) -> list[StoredRow] | str:
        from tidemark.sinks.parquet.row_lookup import rows_of_message

        place = next((one.place for one in record.places if one.name == settings.name), None)
        if place is None:
            return []
        from tidemark.sinks.parquet.folders import check_there
        from tidemark.sinks.parquet.types import names_of

        check_there(place["base"], [record])
        was = names_of(place["base"], opened.was)
        while True:
            # A compaction removes the folders that it has replaced.
            known = compactions.find(opened.ledger, settings.name)
            folder = known.value.located().get((record.lane, record.seq)) if known else None
            paths = [place["folder"] if folder is None else folder.folder]
            try:
                return rows_of_message(paths, at, record, compacted=folder is not None, was=was)
            except Exception:
                if known == compactions.find(opened.ledger, settings.name):
                    raise

    def rows_within(
        self,
        opened: SinkContext,
        settings: Any,
        within: OffsetRange,
        take: Callable[[Iterator[dict[str, Any]]], T],
    ) -> T:
        from tidemark.sinks.parquet.row_lookup import rows_within

        return steady(
            opened.ledger,
            settings.name,
            lambda parts, authority: take(rows_within(parts, authority, within)),
            self.kind,
        )


def _covered(part: FolderPart) -> Iterator[OffsetRange]:
    return (range_ for window in part.windows for range_ in window.covers)


class ParquetAdmin(FoldersAdmin):
    rows_by_coordinate = True

    def place(self, opened: SinkContext, settings: ParquetSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        from tidemark.sinks.parquet import files

        base = settings.base(opened.connections)
        return {"base": base, "folder": files.attempt_folder(base, lane, seq, generation)}

    def folder_mark(self, connections: Connections, settings: ParquetSink) -> str | None:
        from tidemark.sinks.parquet import folders

        return folders.mark_of(settings.base(connections))

    def check_mounted(
        self, connections: Connections, settings: ParquetSink, records: Callable[[], Iterable[Record]]
    ) -> None:
        from tidemark.sinks.parquet import folders

        folders.check_there(settings.base(connections), records())

    def check_fields(self, opened: SinkContext, settings: ParquetSink) -> None:
        from tidemark.sinks.parquet import types

        types.check(settings.base(opened.connections), opened.fields, opened.was)

    def rows(self, opened: SinkContext, settings: ParquetSink, limit: int) -> Iterator[dict[str, Any]]:
        return map(of_file, parquet_rows(opened.ledger, settings.name, limit))
