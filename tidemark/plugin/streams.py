"""The streams that the page shows: those of the DAGs' stream files."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tidemark.clients import on_one_machine
from tidemark.clients.connections import Connection, connection_from_airflow
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.errors import ConnectionMissing, InvalidStreamFile, WrongUse
from tidemark.ledger.holes import UnreadOffsets
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.plugin.cached_queries import LedgerAnswer
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.schemes.kinds import SchemeWithSchemas
from tidemark.streams.loading import StreamFile, load, name_in, stream_files, stream_folders
from tidemark.streams.model import Stream
from tidemark.views.coverage.bars import BarQuery, Coverage, coverage_bars
from tidemark.views.coverage.times import CoverageInTime, TimeRequest, coverage_times, grid_of
from tidemark.views.coverage.window_index import KnownHoles, WindowIndex
from tidemark.views.event_time.progress import EventTimeNow, progress
from tidemark.views.overview import Overview, overview

# The first failure of a question may be a connection that was closed meanwhile. Retries end after this time.
_PATIENCE_SECONDS = 1.0
# A calendar is asked for day by day, and its hours one by one. All of these use one reading of the history, so long.
_PROGRESS_SECONDS = 30.0
# For how long a wrong file stays wrong while it does not change; and how many times longer than it took to read.
_WRONG_SECONDS = 5.0
_SHARE_OF_LOADING = 20
# Of a long history each takes hundreds of megabytes.
_MAX_PROGRESS = 4


@dataclass(frozen=True)
class InEventTime:
    """A stream as it was seen in event time: `first` is the least timestamp that was read. Times are ms since 1970."""

    ledger: Ledger
    seen: EventTimeNow
    watermark: int | None
    first: int | None
    until: float


@dataclass(frozen=True)
class WrongFile:
    """A stream file that nothing reads, by the name that its stream has or would have; a folder has no name.

    `stream`: of a file that could be used.
    """

    name: str | None
    problem: str
    stream: Stream | None = None


class StreamCache:
    """The stream files. An unchanged file is not read again, since many people may look at the page at once.

    One thread reads files; others are given what was known before, so that a file that takes long holds up nobody.
    """

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._loaded: dict[Path, _Loaded] = {}
        self._known: tuple[dict[str, StreamFile], list[WrongFile]] | None = None

    def now(self) -> tuple[dict[str, StreamFile], list[WrongFile]]:
        """The streams by name, and what is wrong with the files that cannot be read."""
        # Only who comes before the first answer waits for it.
        if not self._reading.acquire(blocking=self._known is None):
            assert self._known is not None  # noqa: S101 - otherwise the lock was waited for
            return self._known
        try:
            self._known = self._read()
            return self._known
        finally:
            self._reading.release()

    def _read(self) -> tuple[dict[str, StreamFile], list[WrongFile]]:
        from airflow.configuration import conf

        dags = Path(conf.get_mandatory_value("core", "dags_folder"))
        files, problems, paths = dict[str, StreamFile](), list[WrongFile](), list[Path]()
        for folder in stream_folders(beside=dags):
            try:
                paths += stream_files(folder)
            except WrongUse as problem:
                problems.append(WrongFile(None, str(problem)))
        self._loaded = {path: known for path, known in self._loaded.items() if path in set(paths)}
        for path in paths:
            file = self._load(path)
            if isinstance(file, str):
                problems.append(WrongFile(name_in(path) or path.stem, file))
            elif (other := files.get(file.stream.name)) is not None:
                said = f"{path}: stream {file.stream.name} is described by {other.path} already"
                problems.append(WrongFile(file.stream.name, said))
            else:
                files[file.stream.name] = file
        return files, problems

    def _load(self, path: Path) -> StreamFile | str:
        """The file, or what is wrong with it."""
        known = self._loaded.get(path)
        try:
            about = path.stat()
        except OSError as problem:
            return f"{path}: cannot be read: {problem.strerror}"
        state, now = (about.st_mtime_ns, about.st_size), time.monotonic()
        if known is not None and known.state == state and now < known.until:
            return known.file
        try:
            file: StreamFile | str = load(path)
        except InvalidStreamFile as problem:
            file = str(problem)
        took = time.monotonic() - now
        # The file of a stream's schema may change too, and one that a wrong file names may be there later.
        lasts = max(_WRONG_SECONDS, _SHARE_OF_LOADING * took) if isinstance(file, str) else float("inf")
        if isinstance(file, StreamFile) and isinstance(file.stream.scheme, SchemeWithSchemas):
            lasts = _SHARE_OF_LOADING * took
        self._loaded[path] = _Loaded(state, file, now + took + lasts)
        return file


@dataclass(frozen=True)
class _Loaded:
    """A file as it was read: a stream, or what is wrong with it. `until`, it is not read again unless it has changed."""

    state: tuple[int, int]
    file: StreamFile | str
    until: float


@dataclass
class _Index:
    """The cached part of a stream's history: its windows once somebody looks at the picture, and what is known to be unread."""

    ledger: Ledger
    windows: WindowIndex = field(default_factory=WindowIndex)
    lock: threading.Lock = field(default_factory=threading.Lock)
    covered: KnownHoles = field(default_factory=KnownHoles)
    looking: threading.Lock = field(default_factory=threading.Lock)
    # None until somebody has looked.
    unread: UnreadOffsets | None = None


class Servers:
    """The servers of the streams, opened once: one client for each Kafka connection, whatever the number of streams."""

    def __init__(self, question_seconds: float) -> None:
        self._waits = RequestTimeouts(question_seconds, _PATIENCE_SECONDS)
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[Any, OpenStream]] = {}
        self._logs: dict[str, tuple[Connection, KafkaLog]] = {}
        # By its `Ledger`, which is another one once a connection or the stream file has changed.
        self._indices: dict[str, _Index] = {}
        self._seen: OrderedDict[str, InEventTime] = OrderedDict()

    def show(self, file: StreamFile) -> Overview | LedgerAnswer:
        """A stream's overview for the page. Waits for its servers; goes without Kafka if need be. Raises TidemarkError."""
        shown = overview(self.open(file), self._index(file).unread, without_kafka=True)
        return shown if shown.kafka_problem is None else LedgerAnswer(shown, f"Unreachable: {shown.kafka_problem}")

    def look_for_holes(self, file: StreamFile) -> None:
        """Read what was committed since the last time, the first time the whole history, and keep only what is covered.

        Nobody waits for it: until it is done, `show` says nothing of holes. Raises TidemarkError.
        """
        index = self._index(file)
        with index.looking:
            index.covered.refresh(self.open(file).ledger)
            index.unread = index.covered.unread()

    def reach(self, file: StreamFile) -> None:
        """Whether the ledger answers. Raises TidemarkError."""
        self.open(file).ledger.register()

    def index(self, file: StreamFile) -> None:
        """Read the windows that were committed since the last time; the first time, all of them. Raises TidemarkError."""
        index = self._index(file)
        with index.lock:
            index.windows.refresh(self.open(file).ledger)
            index.unread = index.windows.unread()

    def bars(self, file: StreamFile, asked: BarQuery) -> Coverage:
        """The coverage picture, by the windows that `index` has read. Raises TidemarkError."""
        opened = self.open(file)
        index = self._index(file)
        with index.lock:
            return coverage_bars(opened, index.windows, asked)

    def in_time(self, file: StreamFile, asked: TimeRequest) -> CoverageInTime:
        """The coverage picture by event time, by the windows that `index` has read. Raises TidemarkError."""
        opened = self.open(file)
        # Kafka is asked before: a lock is held for no server.
        grid = grid_of(opened, asked)
        index = self._index(file)
        with index.lock:
            return coverage_times(opened, index.windows, grid)

    def look_at_times(self, file: StreamFile) -> None:
        """Read the history for answers in event time, unless that was done just now. Raises TidemarkError."""
        self.in_event_time(file)

    def in_event_time(self, file: StreamFile) -> InEventTime:
        """A stream as it was seen in event time just now, or is seen now. Raises TidemarkError."""
        opened, name = self.open(file), file.stream.name
        with self._lock:
            known = self._seen.get(name)
            if known is not None and known.ledger is opened.ledger and time.monotonic() < known.until:
                self._seen.move_to_end(name)
                return known
        seen = progress(opened)
        made = InEventTime(
            opened.ledger, seen, seen.watermark(), seen.first_message(), time.monotonic() + _PROGRESS_SECONDS
        )
        with self._lock:
            self._seen[name] = made
            self._seen.move_to_end(name)
            while len(self._seen) > _MAX_PROGRESS:
                self._seen.popitem(last=False)
        return made

    def _index(self, file: StreamFile) -> _Index:
        ledger = self.open(file).ledger
        with self._lock:
            known = self._indices.get(file.stream.name)
            if known is None or known.ledger is not ledger:
                known = self._indices[file.stream.name] = _Index(ledger)
            return known

    def open(self, file: StreamFile) -> OpenStream:
        """A stream, to ask its ledger and Kafka. Raises TidemarkError."""
        stream = file.stream
        names = (stream.source.kafka, stream.ledger.connection)
        # Asked for each time, since the connections may have changed in Airflow.
        given = {name: from_airflow(name) for name in names}
        with self._lock:
            known = self._opened.get(stream.name)
            if known is not None and known[0] == (file.digest, given):
                return known[1]
            log = self._log(given[stream.source.kafka])
            opened = open_stream(file.path, partial(_connection, given), waits=self._waits, log=log)
            self._opened[stream.name] = ((file.digest, given), opened)
            return opened

    def _log(self, connection: Connection) -> KafkaLog:
        known = self._logs.get(connection.name)
        if known is not None and known[0] == connection:
            return known[1]
        if known is not None:
            known[1].close()
        log = KafkaLog(kafka_endpoint(connection), round(self._waits.question_seconds * 1000), keep=True)
        self._logs[connection.name] = (connection, log)
        return log


_MISSING = "Airflow has no connection {}"


def _connection(given: Mapping[str, Connection], name: str) -> Connection:
    """A connection of a stream. Dead letters, sinks and the registry may have others than Kafka and the ledger.

    Those are asked for when they are needed: one that is missing takes nothing else from the pages.
    """
    return given[name] if name in given else from_airflow(name)


def from_airflow(name: str) -> Connection:
    """The Airflow Connection of this name, or what stands in for it on one machine. Raises ConnectionMissing."""
    return on_one_machine.connection_or_stand_in(name, _stored, _MISSING.format(name))


def _stored(name: str) -> Connection | None:
    """None when Airflow knows that there is none."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError

    try:
        return connection_from_airflow(name, BaseHook.get_connection(name))
    except AirflowNotFoundException:
        return None
    except AirflowRuntimeError as problem:
        raise ConnectionMissing(_MISSING.format(name)) from problem
