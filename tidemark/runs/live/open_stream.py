"""A stream with its servers. Every program that works on a stream opens it first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tidemark.clients.connections import Connections
from tidemark.clients.environment import from_environment
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.lake import file_system_settings, lake_folder
from tidemark.clients.object_stores import access_of
from tidemark.clients.object_stores import note as note_lakes
from tidemark.commit.protocol import SupportsCompare, Sweeper
from tidemark.errors import ConnectionMissing, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, SinkReceipt
from tidemark.ledger.stores.kind import RequestTimeouts, SupportsLeaders
from tidemark.ledger.stores.kinds import ledger_store
from tidemark.runs.live.one_machine import check_one_machine
from tidemark.schemes.kinds import Fields
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.dead_letters.kinds import dead_letters_of
from tidemark.sinks.kinds import kind_of, publishes
from tidemark.sinks.sweeping import SinkSweeper
from tidemark.streams.loading import StreamFile, load
from tidemark.streams.model import Stream
from tidemark.types.renamed_fields import Names


@dataclass(frozen=True)
class OpenStream:
    """A stream file with its ledger, its Kafka cluster and its connections. Opening it asks no server."""

    file: StreamFile
    ledger: Ledger
    log: KafkaLog
    sweeper: Sweeper
    connections: Connections

    def __post_init__(self) -> None:
        self.ledger.before_draw = self._compare

    def _compare(self, ledger: Ledger) -> None:
        """Look whether the ledger went back, where the stream has a place that can tell."""
        types = (*(sink.type for sink in self.stream.sinks), self.stream.dead_letters.receipts())
        if isinstance(self.sweeper, SupportsCompare) and any(map(publishes, types)):
            # The ledger may have forgotten all windows that wrote where the file says.
            now: list[SinkReceipt] = []
            with suppress(ConnectionMissing):
                now.extend(self.places_now())
            self.sweeper.compare(ledger, now)

    def places_now(self) -> Iterator[SinkReceipt]:
        """Where an attempt would write by today's stream file."""
        for sink in self.stream.sinks:
            if place := kind_of(sink.type).make_admin().place(self, sink, INGEST, 1, 0):
                yield SinkReceipt(name=sink.name, type=sink.type, place=place)
        yield self.stream.dead_letters.receipt(self.connections)
        if (copies := self.stream.dead_letters.copies()) is not None:
            yield copies

    def file_system_settings(self) -> dict[str, str]:
        """Hadoop's settings for the files of a stream. They hold secrets. Raises WrongUse when two connections disagree."""
        names = sorted(self._files())
        settings: dict[str, str] = {}
        for name in names:
            for setting, value in self._settings(name).items():
                if settings.setdefault(setting, value) != value:
                    raise WrongUse(
                        f"the connections {' and '.join(names)} give {setting} different values, and a Spark job has one; "
                        "name the bucket in the setting, as in fs.s3a.bucket.NAME.secret.key"
                    )
        return settings

    def check_lakes(self) -> None:
        """Raises WrongUse for a lake that no job could write to, such as a relative path. Asked before a job starts.

        A connection that is missing is named by whoever opens the sink.
        """
        for name in sorted(self._files()):
            with suppress(ConnectionMissing):
                lake_folder(self.connections(name))

    def _settings(self, name: str) -> dict[str, str]:
        """Hadoop's settings by one connection: those of its bucket, and what it sets itself."""
        connection = self.connections(name)
        access = access_of(connection)
        return {**(access.for_hadoop() if access else {}), **file_system_settings(connection)}

    def file_systems(self) -> set[str]:
        """The file systems that a stream writes to, as `s3a://bucket`; without those of this machine."""
        places = (urlsplit(str(self.connections(name).extra.get("path", ""))) for name in self._files())
        return {f"{place.scheme}://{place.netloc}" for place in places if place.scheme not in ("", "file")}

    def _files(self) -> set[str]:
        return {*files_of(self.stream)}

    @property
    def stream(self) -> Stream:
        return self.file.stream

    @property
    def fields(self) -> Fields:
        """The fields of the result rows and their types."""
        return self.stream.fields

    @property
    def was(self) -> Names:
        """The names that fields had before, by those of today."""
        return self.stream.was

    def dead_letter_table(self) -> DeadLetters:
        """The dead letters, in whatever store the stream file names. Asks no server."""
        return dead_letters_of(self.stream.dead_letters, self.ledger, self.connections)


def files_of(stream: Stream) -> dict[str, list[str]]:
    """The connections of the file systems that a stream writes to, each with the stream's own folders there."""
    by_connection: dict[str, list[str]] = {}
    for store in (*stream.sinks, stream.dead_letters):
        if store.file_system is not None:
            folders = by_connection.setdefault(store.file_system, [])
            if store.own_folder is not None:
                folders.append(store.own_folder)
    return by_connection


def open_stream(
    path: Path,
    connections: Connections = from_environment,
    *,
    waits: RequestTimeouts | None = None,
    log: KafkaLog | None = None,
) -> OpenStream:
    """Open the stream of a file. Raises InvalidStreamFile, ConnectionMissing, and what `check_one_machine` raises.

    `waits`: the ledger's waits, instead of those that suit a job. `log`: a log to use instead of a new one.
    """
    file = load(path)
    stream = file.stream
    check_one_machine(stream, connections)
    log = log or KafkaLog(kafka_endpoint(connections(stream.source.kafka)))
    note_lakes(stream.name, files_of(stream), connections)
    group = stream.source.export_group
    store = ledger_store(stream.ledger, stream.name, connections, waits)
    if isinstance(store, SupportsLeaders):
        store.name_leaders(log.leaders)
    return OpenStream(
        file=file,
        ledger=Ledger(
            store,
            stream.name,
            export=partial(log.commit_group, group) if group else None,
        ),
        log=log,
        sweeper=SinkSweeper(connections, stream.dead_letters),
        connections=connections,
    )
