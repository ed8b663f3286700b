"""Whether the folders that a stream writes to are those that it has written before, and stay the same until a commit."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.clients.lake import beside
from tidemark.errors import Unreachable
from tidemark.ledger.book import Book
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.sinks.contract import StoreSettings
from tidemark.sinks.dead_letters.contract import NAME
from tidemark.sinks.dead_letters.parquet.settings import FileDeadLetters
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.iceberg.settings import IcebergSink, place_of
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.latest.settings import LatestSettings
from tidemark.sinks.latest.sink import PlainLatest
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.parquet.settings import FolderSettings, ParquetSink

# Types of sinks that write a folder for each window, also for one without rows.
_ALWAYS = ("parquet", "iceberg", "delta_latest", "iceberg_latest", "hbase_latest")


class Mounts:
    """The folders that a job writes to. Each keeps the mark that it had when the job began, or got when it was prepared.

    A disk that goes away leaves its mount point: an empty folder, which whoever prepares a folder would mark, and where files
    are written and read back. They are gone when the disk is back. So the marks are read before a folder is prepared, then,
    and before each commit. This knows folders by the settings that all sinks of files have, also those of other packages, and
    by the `own_folder` of any store.
    """

    def __init__(self, book: Book, connections: Connections, places: Iterable[Any]) -> None:
        """`places`: the settings of sinks and of dead letters that the job writes. Raises what `check_mounted` raises."""
        self._book, self._connections = book, connections
        self._places = [folder for folder in map(_folder, places) if folder is not None]
        # In this order: a disk that goes away after it was seen has left its mark here.
        self._marks = {self._base(place): mark for place in self._places if (mark := self._mark(place)) is not None}
        check_mounted(book, connections, self._places)

    def prepared(self) -> None:
        """Once all folders are prepared: see that they are those that were there, and note the mark of a new one.

        A folder that its sink leaves without a mark is marked here. Raises Unreachable.
        """
        for place in self._places:
            mark = self._mark(place)
            if (
                mark is None
                and self._base(place) not in self._marks
                and (register := self._book.register()) is not None
            ):
                files.own(self._base(place), self._book.stream, register[1].ledger, place.name)
                mark = self._mark(place)
            self._compare(place, mark)

    def check(self, places: Iterable[SinkReceipt], holding: Container[str]) -> None:
        """Before a commit. `holding`: the names of those places that have got any row.

        Raises Unreachable for a folder without the mark that it had, and for what was written and is not there.
        """
        for one in self._places:
            self._compare(one, self._mark(one))
        bases = tuple(f"{folder}/" for one in self._places for folder in (self._base(one), beside(self._base(one))))
        for place in places:
            folder = place.place.get("folder", "")
            # A sink of another package may make no folder for no rows.
            must = place.type in _ALWAYS or place.name in holding
            if must and folder.startswith(bases) and not files.exists(folder) and not _is_published(place):
                raise Unreachable(f"{folder} was written, and is not there: {folders.MEANWHILE}")

    def _compare(self, settings: FolderSettings, mark: str | None) -> None:
        base = self._base(settings)
        if mark is None or self._marks.setdefault(base, mark) != mark:
            what = "has no mark of its owner" if mark is None else "is another folder than it was"
            raise Unreachable(f"{base} {what}: {folders.MEANWHILE}")

    def _base(self, settings: FolderSettings) -> str:
        return settings.base(self._connections)

    def _mark(self, settings: FolderSettings) -> str | None:
        """The mark that tells a folder from the one that is made in its place; None for one that nobody has prepared."""
        base = self._base(settings)
        match settings:
            case DeltaSink():
                from tidemark.sinks.delta import table

                return table.identity(base)
            case IcebergSink():
                from tidemark.sinks.iceberg.catalog import located, opened

                # The catalog says where the table is, which says itself who it is.
                iceberg = opened(located(self._connections, place_of(settings, base)))
                return None if iceberg is None else str(iceberg.metadata.table_uuid)
            case LatestSettings():
                # The table, and the folder with its history.
                plain = _latest(settings)
                mine = plain.identity(self._connections, plain.table_place(settings, base))
                history = folders.mark_of(settings.history(self._connections).folder)
                return None if mine is None or history is None else f"{mine} {history}"
            case _:
                return folders.mark_of(base)


def _is_published(place: SinkReceipt) -> bool:
    """Whether what was written beside a Delta table is in it by now, as of a window that was committed before."""
    base, folder = place.place.get("base", ""), place.place.get("folder", "")
    if not base or not folder.startswith(f"{beside(base)}/"):
        return False
    from tidemark.sinks.delta.table import files_of

    return int(folder.rpartition("=")[2]) in files_of(base)


def check_mounted(book: Book, connections: Connections, places: Iterable[Any]) -> None:
    """Raises Unreachable for the folder of a sink, or of the dead letters, that has lost its mark although windows wrote there.

    Before a writer makes folder and mark again: with a mark in an empty mount point, everything before would read as deleted.
    """
    for settings in map(_folder, places):
        match settings:
            case DeltaSink():
                from tidemark.sinks.delta import table

                table.check_there(settings.base(connections), _records(book))
            case LatestSettings():
                base = settings.base(connections)
                plain = _latest(settings)
                folders.check_there(settings.history(connections).folder, _records(book))
                plain.check_table(connections, plain.table_place(settings, base), _records(book))
            case IcebergSink():
                from tidemark.sinks.iceberg.catalog import located
                from tidemark.sinks.iceberg.table import check_there as check_table

                check_table(located(connections, place_of(settings, settings.base(connections))), _records(book))
            case ParquetSink():
                folders.check_there(settings.base(connections), _records(book))
            case FolderSettings():
                _check_unknown(book, settings.base(connections))


def _folder(settings: Any) -> FolderSettings | None:
    """The settings of a store's folder; None for a store without one."""
    match settings:
        case FileDeadLetters():
            return settings.sink
        case FolderSettings():
            return settings
        case StoreSettings(own_folder=str(folder), file_system=str(files)):
            # Of another package, whose settings derive from nothing of files.
            return FolderSettings(type=settings.type, name=getattr(settings, "name", NAME), files=files, folder=folder)
        case _:
            return None


def _latest(settings: LatestSettings) -> PlainLatest:
    plain = kind_of(settings.type).without_spark()
    if not isinstance(plain, PlainLatest):
        raise TypeError(f"{settings.type} has no table with the newest rows")
    return plain


def _check_unknown(book: Book, base: str) -> None:
    """As `folders.check_there`, for a type of another package. It may have marked nothing, so its newest folder tells, too."""
    if folders.has_mark(base):
        return
    below = (place.place.get("folder", "") for record in _records(book) for place in record.places)
    last = [one for one in below if one.startswith(f"{base}/")][-1:]
    if last and not files.exists(last[0]):
        raise Unreachable(
            f"{base} has no mark of its owner, and {last[0]} is not there, which has results; its disk may not be mounted"
        )


def _records(book: Book) -> Iterator[Record]:
    """The committed windows, read when somebody asks for them."""
    for window in book.committed():
        yield window.record
