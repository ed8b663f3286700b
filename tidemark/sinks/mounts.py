"""Whether the folders that a stream writes to are those that it has written before, and stay the same until a commit."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.clients.lake import beside
from tidemark.errors import Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.sinks.contract import StoreSettings, SupportsMounts
from tidemark.sinks.dead_letters.contract import NAME, DeadLetterSettings
from tidemark.sinks.kinds import KINDS, admin_or_default, kind_of
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.parquet.settings import FolderSettings


class FolderMarks:
    """The folders that a job writes to. Each keeps the mark that it had when the job began, or got when it was prepared.

    A disk that goes away leaves its mount point: an empty folder, which whoever prepares a folder would mark, and where files
    are written and read back. They are gone when the disk is back. So the marks are read before a folder is prepared, then,
    and before each commit. This knows folders by the settings that all sinks of files have, also those of other packages, and
    by the `own_folder` of any store.
    """

    def __init__(self, ledger: Ledger, connections: Connections, places: Iterable[Any]) -> None:
        """`places`: the settings of sinks and of dead letters that the job writes. Raises what `check_mounted` raises."""
        self._ledger, self._connections = ledger, connections
        self._places = [folder for folder in map(_folder, places) if folder is not None]
        # In this order: a disk that goes away after it was seen has left its mark here.
        self._marks = {self._base(place): mark for place in self._places if (mark := self._mark(place)) is not None}
        check_mounted(ledger, connections, self._places)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Within this, all folders are prepared. Sees that they are those that were there, and notes the mark of a new one.

        A folder that its sink leaves without a mark is marked here. Raises Unreachable.
        """
        with folders.keeping_marks(self._marks):
            yield
        for place in self._places:
            mark = self._mark(place)
            if (
                mark is None
                and self._base(place) not in self._marks
                and (register := self._ledger.register()) is not None
            ):
                files.own(self._base(place), self._ledger.stream, register[1].ledger, place.name)
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
            if not folder.startswith(bases) or files.exists(folder):
                continue
            admin = admin_or_default(place.type)
            must = admin.always_makes_folder or place.name in holding
            if must and not (admin.folder_may_go and self._is_committed(folder)):
                raise Unreachable(f"{folder} was written, and is not there: {folders.MEANWHILE}")

    def _is_committed(self, folder: str) -> bool:
        """Whether an attempt's folder is of a committed window: its files may be published already, and gone from here.

        Whoever publishes has seen that it was there, and needs the folder no more: other windows may count at all its offsets.
        """
        attempt = files.attempt_of(folder)
        committed = None if attempt is None else self._ledger.record(attempt.lane, attempt.seq)
        return attempt is not None and committed is not None and committed[1].attempt.generation == attempt.generation

    def _compare(self, settings: FolderSettings, mark: str | None) -> None:
        base = self._base(settings)
        if mark is None or self._marks.setdefault(base, mark) != mark:
            what = "has no mark of its owner" if mark is None else "is another folder than it was"
            raise Unreachable(f"{base} {what}: {folders.MEANWHILE}")

    def _base(self, settings: FolderSettings) -> str:
        return settings.base(self._connections)

    def _mark(self, settings: FolderSettings) -> str | None:
        """The mark that tells the folder from the one that is made in its place; None for one that nobody has prepared."""
        admin = _admin(settings)
        return (
            folders.mark_of(self._base(settings)) if admin is None else admin.folder_mark(self._connections, settings)
        )


def check_mounted(ledger: Ledger, connections: Connections, places: Iterable[Any]) -> None:
    """Raises Unreachable for the folder of a sink, or of the dead letters, that has lost its mark although windows wrote there.

    Before a writer makes folder and mark again: with a mark in an empty mount point, everything before would read as deleted.
    """
    for settings in filter(None, map(_folder, places)):
        if (admin := _admin(settings)) is None:
            _check_unknown(ledger, settings.base(connections))
        else:
            admin.check_mounted(connections, settings, partial(_records, ledger))


def _folder(settings: Any) -> FolderSettings | None:
    """The settings of a store's folder; None for a store without one."""
    match settings:
        case DeadLetterSettings(sink=FolderSettings() as sink):
            return sink
        case FolderSettings():
            return settings
        case StoreSettings(own_folder=str(folder), file_system=str(files)):
            # Of another package, whose settings derive from nothing of files.
            return FolderSettings(type=settings.type, name=getattr(settings, "name", NAME), files=files, folder=folder)
        case _:
            return None


def _admin(settings: FolderSettings) -> SupportsMounts | None:
    """What the type of sink says of its folders; None for a type of another package that says nothing of them."""
    if settings.type not in KINDS:
        # A store of dead letters of another package.
        return None
    admin = kind_of(settings.type).make_admin()
    return admin if isinstance(admin, SupportsMounts) else None


def _check_unknown(ledger: Ledger, base: str) -> None:
    """As `folders.check_there`, for a type of another package. It may have marked nothing, so its newest folder tells, too."""
    if folders.has_mark(base):
        return
    below = (place.place.get("folder", "") for record in _records(ledger) for place in record.places)
    last = [one for one in below if one.startswith(f"{base}/")][-1:]
    if last and not files.exists(last[0]):
        raise Unreachable(
            f"{base} has no mark of its owner, and {last[0]} is not there, which has results; its disk may not be mounted"
        )


def _records(ledger: Ledger) -> Iterator[Record]:
    """The committed windows, read when somebody asks for them."""
    for window in ledger.committed():
        yield window.record
