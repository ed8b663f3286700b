"""The sinks that Spark writes as files or messages: `parquet`, `delta`, `iceberg`, `kafka`, and those with the newest rows.

Their layouts, sweeps and readers are the product's.

What Spark does for them is to write rows: here one Arrow table for a window, or one message after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import pyarrow as pa

from tests.simulation.actors import current, effect, written
from tests.simulation.kafka import Message
from tests.simulation.lake import CATALOG, LAKE, TABLES, write
from tidemark.clients.connections import Connection
from tidemark.errors import Fenced, TidemarkError, Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Acknowledged, Acknowledgements, Count
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.contract import SinkSettings
from tidemark.sinks.delta import publishing as delta
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.aggregates import table as delta_totals
from tidemark.sinks.delta.latest import table as delta_latest
from tidemark.sinks.hbase.keyed import publishing
from tidemark.sinks.kafka.messages import Origin, kafka_messages
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.latest import rows as latest
from tidemark.sinks.latest import table as latest_table
from tidemark.sinks.parquet import files, types
from tidemark.sinks.reading import delta_tables, parquet_tables
from tidemark.sinks.stored_rows import Place as RowPlace
from tidemark.sinks.versions import versions_of

if TYPE_CHECKING:
    from tests.simulation.work import Place, Work

TARGET, TARGET_TOPIC = "targets", "results"
# Where dead letters are copied to.
COPIES_CLUSTER, COPIES = "kafka_default", "dead-orders"
OTHERS: dict[str, dict[str, Any]] = {
    "parquet": {"type": "parquet", "files": LAKE, "folder": "orders"},
    "delta": {"type": "delta", "files": TABLES, "folder": "orders"},
    "iceberg": {
        "type": "iceberg",
        "files": TABLES,
        "folder": "ice",
        "catalog": CATALOG,
        "table": "lake.orders",
    },
    "kafka": {"type": "kafka", "kafka": TARGET, "topic": TARGET_TOPIC, "value": "number", "key": "id"},
}
# With the newest row of each key, which is made when a window is settled.
LAKES: dict[str, dict[str, Any]] = {
    "delta_latest": {"type": "delta_latest", "files": TABLES, "folder": "newest", "key": "id", "buckets": 2},
    "iceberg_latest": {
        "type": "iceberg_latest",
        "files": TABLES,
        "folder": "frozen",
        "key": "id",
        "buckets": 2,
        "catalog": CATALOG,
        "table": "lake.newest",
    },
    "hbase_latest": {
        "type": "hbase_latest",
        "files": TABLES,
        "folder": "by_key",
        "hbase": "hbase_default",
        "table": "by_key",
        "key": "id",
        "buckets": 2,
    },
}
# The one of them that is a table in HBase.
LATEST = "hbase_latest"
# With totals of each key: in HBase, in a Delta table, and in an Iceberg table.
SUMS, LAKE_SUMS, ICE_SUMS = "sums", "lake_sums", "ice_sums"
_TOTALS: dict[str, Any] = {"files": TABLES, "key": "id", "buckets": 2, "values": {"n": "count", "s": {"sum": "number"}}}
TOTALS: dict[str, dict[str, Any]] = {
    SUMS: {
        "type": "hbase_aggregates",
        "name": SUMS,
        "hbase": "hbase_default",
        "table": SUMS,
        "folder": SUMS,
        **_TOTALS,
    },
    LAKE_SUMS: {"type": "delta_aggregates", "name": LAKE_SUMS, "folder": LAKE_SUMS, **_TOTALS},
    ICE_SUMS: {
        "type": "iceberg_aggregates",
        "name": ICE_SUMS,
        "folder": ICE_SUMS,
        "catalog": CATALOG,
        "table": "lake.sums",
        **_TOTALS,
    },
}
WRITTEN = {**OTHERS, **LAKES, **TOTALS}
# Those whose tables follow from a history.
PUBLISHED = (*LAKES, *TOTALS)
PARQUET, DELTA, ICEBERG, KAFKA = "parquet", "delta", "iceberg", "kafka"
FILES = (PARQUET, DELTA, ICEBERG)
# What `tidemark compact` takes.
COMPACTED = (PARQUET, ICEBERG, *PUBLISHED)
_MAX_BYTES = 1 << 30
# Messages of one write.
_AT_ONCE = 3


@dataclass
class Topic:
    """A topic that a sink writes to: (headers, topic, key, value) of each message. Nobody removes any."""

    messages: list[tuple[list[tuple[str, bytes]], str, bytes | None, bytes | None]] = field(default_factory=list)

    away: bool = False

    def take(self, message: tuple[list[tuple[str, bytes]], str, bytes | None, bytes | None]) -> None:
        self._answers()
        self.messages.append(message)

    def read(self) -> Iterator[Any]:
        effect()
        self._answers()
        yield from [*self.messages]

    def _answers(self) -> None:
        if self.away and current() is not None:
            raise Unreachable("Kafka at 127.0.0.1:9093 did not answer")


class Sender:
    """Sends messages to a topic, and returns when each is acknowledged."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def send(self, messages: Iterable[Any]) -> None:
        for one in messages:
            taken = [(name, value or b"") for name, value in one.headers], one.topic, one.key, one.value
            written(lambda taken=taken: self._topic.take(taken), lambda applied: Unreachable("no answer"))

    def close(self) -> None: ...


def copied(topic: Topic) -> Iterator[tuple[TopicPartition, int, int]]:
    """Partition, offset and generation of the dead letter that each message is a copy of."""
    for headers, *_ in topic.messages:
        said = {name: value.decode() for name, value in headers}
        of, errors = "__connect.errors.", "tidemark.errors."
        at = TopicPartition(said[f"{of}topic"], int(said[f"{of}partition"]), int(said[f"{errors}incarnation"]))
        yield at, int(said[f"{of}offset"]), int(said[f"{errors}generation"])


def target(name: str = TARGET) -> Connection:
    return Connection(name, extra={"bootstrap.servers": "127.0.0.1:9092"})


class Writer:
    """The work of an attempt on one of these sinks."""

    def __init__(self, work: Work, settings: SinkSettings) -> None:
        self.work, self.settings = work, cast("Any", settings)
        self.name = settings.name

    @property
    def _window(self) -> tuple[str, int]:
        return self.work.lane, self.work.window.seq

    @property
    def _generation(self) -> int:
        return self.work.attempt.generation

    def receipt(self) -> SinkReceipt:
        admin = kind_of(self.settings.type).make_admin()
        place = admin.place(self.work.opened, self.settings, *self._window, self._generation)
        return SinkReceipt(name=self.name, type=self.settings.type, place=place)

    def store(self) -> Acknowledgements:
        store: dict[str, Callable[[], Acknowledgements]] = {
            "parquet": self._store_parquet,
            "delta": self._store_delta,
            "iceberg": self._store_iceberg,
            "kafka": self._store_kafka,
            "delta_latest": self._store_changes,
            "iceberg_latest": self._store_changes,
            LATEST: self._store_changes,
            "hbase_aggregates": self._store_changes,
            "delta_aggregates": self._store_changes,
            "iceberg_aggregates": self._store_changes,
        }
        return store[self.settings.type]()

    def discard(self) -> None:
        """As SparkWork does: what it cannot remove stays."""
        with suppress(TidemarkError, OSError):
            if self.settings.type in FILES:
                files.delete(self.receipt().place["folder"])

    def _store_parquet(self) -> Acknowledgements:
        self.work.fence.check()
        folder = self.receipt().place["folder"]
        write(folder, self._rows())
        return _held(folder)

    def _store_delta(self) -> Acknowledgements:
        """As `DeltaResults`: with `at_most_once`, what comes after the commit is published now."""
        self.work.fence.check()
        place = self.receipt().place
        write(place["folder"], self._rows())
        held = _held(place["folder"])
        ledger = self.work.opened.ledger
        if (record := ledger.record(*self._window)) is not None:
            self.work.fence.check()
            wrote = bool(held)
            if not delta.publish(ledger, place["base"], self.name, record[1], place["folder"], wrote=wrote):
                raise Fenced(f"{place['base']} has a later window of {self.work.lane} already")
        return held

    def _store_iceberg(self) -> Acknowledgements:
        """As `IcebergResults`: with `at_most_once`, what comes after the commit is published now."""
        from tidemark.sinks.iceberg import table
        from tidemark.sinks.iceberg.lanes import forgotten
        from tidemark.sinks.iceberg.schema import GENERATION

        self.work.fence.check()
        folder, rows = self.receipt().place["folder"], self._rows()
        generations = pa.array([self._generation] * rows.num_rows, pa.int64())
        write(folder, rows.append_column(GENERATION, generations))
        ledger, where = self.work.opened.ledger, _iceberg(self.work.opened, self.settings)
        record = ledger.record(*self._window)
        if record is not None:
            self.work.fence.check()
            forget = partial(forgotten, ledger, self.work.lane)
            wrote = bool(rows.num_rows)
            if not table.publish(where, versions_of(ledger), record[1], folder, RangeSet(), forget=forget, wrote=wrote):
                raise Fenced(f"{where} has a later window of {self.work.lane} already")
        return _held(folder)

    def _store_changes(self) -> Acknowledgements:
        """As `LatestResults`: a folder of the history, whose rows have the hash of their key."""
        self.work.fence.check()
        folder, rows = self.receipt().place["folder"], self._rows()
        named = zip(rows.column("_topic").to_pylist(), rows.column("id").to_pylist(), strict=True)
        # Totals are of all topics.
        hashes = [crc32(f"{topic if self.name in LAKES else ''} {key}".encode()) for topic, key in named]
        more = {
            latest.DELETED: pa.array([False] * rows.num_rows, pa.bool_()),
            latest.KEY_HASH: pa.array(hashes, pa.int64()),
            latest.BUCKET: pa.array([one % self.settings.buckets for one in hashes], pa.int32()),
        }
        for name, column in more.items():
            rows = rows.append_column(name, column)
        write(folder, rows)
        return _held(folder)

    def _rows(self) -> pa.Table:
        rows = [
            {
                "_topic": at.topic,
                "_incarnation": at.incarnation,
                "_partition": at.partition,
                "_offset": offset,
                "_index": 0,
                "_tombstone": False,
                "_digest": 0,
                "id": one.key,
                "number": one.number,
            }
            for (at, offset), one in self.work.good.items()
        ]
        schema = delta_table.columns(self.work.opened.fields)
        return pa.Table.from_pylist(rows, schema=schema.remove(schema.get_field_index(delta_table.GENERATION)))

    def _store_kafka(self) -> Acknowledgements:
        found = list(self.work.good.items())
        for at in range(0, len(found), _AT_ONCE):
            self.work.fence.check()
            try:
                self._send(found[at : at + _AT_ONCE])
            except Unreachable:
                # Spark tries a task again, on another machine. What was acknowledged to the first one stands there twice.
                self._send(found[at : at + _AT_ONCE])
        return self.work.counted

    def _send(self, messages: list[tuple[Place, Message]]) -> None:
        for (at, offset), one in messages:
            lane, seq = self._window
            origin = Origin(self.work.opened.ledger.stream, RowPlace(at, offset, 0), self._generation, lane, seq)
            message = (origin.headers(), TARGET_TOPIC, b"%d" % one.key, b"%d" % one.number)
            written(
                lambda message=message: self.work.world.target.take(message),
                lambda applied: Unreachable("no answer"),
            )


def prepare(opened: OpenStream, settings: Any) -> None:
    """As each sink's writer, before its first window."""
    register = opened.ledger.register()
    assert register is not None
    if settings.type == "parquet":
        base = settings.base(opened.connections)
        files.own(base, opened.ledger.stream, register[1].ledger, settings.name)
        types.keep(base, opened.fields)
    elif settings.type == "delta":
        columns = delta_table.columns(opened.fields)
        delta_table.prepare(settings.base(opened.connections), columns, opened.ledger.stream, register[1].ledger)
    elif settings.type == ICEBERG:
        from tidemark.sinks.iceberg import table as iceberg_table

        owner = opened.ledger.stream, register[1].ledger
        iceberg_table.prepare(_iceberg(opened, settings), opened.fields, *owner, settings.partition_keys(), opened.was)
    elif settings.name in PUBLISHED:
        base, owner = settings.base(opened.connections), (opened.ledger.stream, register[1].ledger)
        files.own(latest.history_of(base), *owner, settings.name)
        if settings.name in (LATEST, SUMS):
            types.keep(latest.history_of(base), opened.fields)
            values = None if settings.name == LATEST else settings.described(opened.fields)
            hbase_table(opened, settings).table.prepare(*owner, settings.key, settings.buckets, values=values)
            return
        if settings.name == LAKE_SUMS:
            types.keep(latest.history_of(base), opened.fields)
            delta_totals.prepare(base, settings, opened.fields, *owner, opened.was)
            return
        table = _table(opened, settings)
        if settings.name == ICE_SUMS:
            from tidemark.sinks.iceberg.aggregates import table as iceberg_totals

            types.keep(latest.history_of(base), opened.fields)
            iceberg_totals.prepare(table.where, settings, opened.fields, *owner, opened.was)
            return
        made_with = settings.key, settings.buckets, settings.compression
        if isinstance(table, delta_latest.DeltaLatest):
            delta_latest.prepare(base, opened.fields, *owner, *made_with, opened.was)
        else:
            from tidemark.sinks.iceberg.latest import table as iceberg_latest

            iceberg_latest.prepare(table.where, opened.fields, *owner, *made_with, opened.was)


def _held(*paths: str) -> Acknowledgements:
    """Read back. The counts of rows have hashes of their own; here each message has one row, and counts for it."""
    found = files.held(_MAX_BYTES, *paths)
    assert found is not None
    return {at: Acknowledged(one.messages, _same(one), "0" * 16) for at, one in found.items()}


def _same(one: Acknowledged) -> Count:
    assert one.messages.number == one.rows.number, "a message stands twice in the files of one attempt"
    return one.messages


def rows(opened: OpenStream, ledger: Ledger, settings: Any) -> list[tuple[TopicPartition, int, int, int]]:
    """Partition, offset, key and number of each row that counts, as the product's reader gives them."""
    if settings.type == "kafka":
        found = kafka_messages(ledger, cast("Any", None), settings.targets(), settings.name)
        return [
            (one.origin.place.partition, one.origin.place.offset, int(one.key or b"-1"), int(one.value or b"-1"))
            for one in found
        ]
    tables = _tables_of(opened, ledger, settings)
    return [
        (
            TopicPartition(row["_topic"], row["_partition"], row["_incarnation"]),
            row["_offset"],
            row["id"],
            row["number"],
        )
        for table in tables
        for row in table.to_pylist()
    ]


def _tables_of(opened: OpenStream, ledger: Ledger, settings: Any) -> Iterable[pa.Table]:
    if settings.type == ICEBERG:
        from tidemark.sinks.iceberg.reading import iceberg_tables

        return iceberg_tables(ledger, settings.name, opened.connections)
    return (parquet_tables if settings.type == PARQUET else delta_tables)(ledger, settings.name)


def _iceberg(opened: OpenStream, settings: Any) -> Any:
    from tidemark.sinks.iceberg.compacting import where_of

    return where_of(opened, settings)


def iceberg_files(opened: OpenStream, settings: Any) -> Iterator[str]:
    """The data files of the newest snapshot."""
    from tidemark.sinks.iceberg import catalog
    from tidemark.sinks.iceberg.live_files import live_files

    table = catalog.opened(_iceberg(opened, settings))
    yield from (one.path for one in live_files(table)) if table is not None else ()


def _table(opened: OpenStream, settings: Any) -> Any:
    admin = cast("Any", kind_of(settings.type).make_admin())
    return admin.table(opened.connections, admin.table_place(settings, settings.base(opened.connections)))


def hbase_table(opened: OpenStream, settings: Any) -> publishing.PublishedTable:
    admin = cast("Any", kind_of(settings.type).make_admin())
    place = admin.table_place(settings, settings.base(opened.connections))
    return admin.place_of_table(opened.connections, place)


def newest(opened: OpenStream, ledger: Ledger, settings: Any) -> dict[tuple[str, int], int]:
    """The number of the newest row of each topic and key, as the product's reader gives it."""
    if settings.type == LATEST:

        def by_key(found: publishing.RowsByKey) -> list[tuple[tuple[str, int], int]]:
            return [
                ((row.place.partition.topic, int(row.fields["id"])), int(row.fields["number"])) for row in found.rows()
            ]

        there = publishing.read(hbase_table(opened, settings), ledger, settings.name, by_key)
        assert len(dict(there)) == len(there), f"a key has two rows: {there}"
        return dict(there)

    def taken(found: latest_table.TableRows) -> list[dict[str, Any]]:
        return [row for table in found.tables() for row in table.to_pylist()]

    rows = latest_table.read(_table(opened, settings), ledger, settings.name, taken)
    assert len({(row["_topic"], row["id"]) for row in rows}) == len(rows), f"a key has two rows: {rows}"
    return {(row["_topic"], row["id"]): row["number"] for row in rows}


def totals_seen(opened: OpenStream, settings: Any) -> dict[int, tuple[int, int]]:
    """By key the number of rows and their sum, as others see them."""
    if settings.name == SUMS:
        rows: list[Any] = [row.fields for row in hbase_table(opened, settings).table.all_rows()]
    else:
        version = _table(opened, settings).opened()
        rows = version.rows([*version.sizes], version.columns).to_pylist() if version is not None else []
    found = {int(row["id"]): (int(row["n"]), int(row["s"])) for row in rows}
    assert len(found) == len(rows), f"a key has two rows: {rows}"
    return found


def newest_at(opened: OpenStream, settings: Any) -> set[Place]:
    """The messages of the rows in the newest version of a table, as others see it."""
    if settings.type == LATEST:
        return {(row.place.partition, row.place.offset) for row in hbase_table(opened, settings).table.all_rows()}
    version = _table(opened, settings).opened()
    rows = version.rows([*version.sizes], version.columns) if version is not None else None
    return {*everything(rows)} if rows is not None else set()


def generations_at(opened: OpenStream, settings: Any) -> dict[Place, int]:
    """Of which attempt each row in the newest version of a table is, by its message."""
    if settings.type == LATEST:
        there = hbase_table(opened, settings).table.all_rows()
        return {(row.place.partition, row.place.offset): row.mark.generation for row in there}
    version = _table(opened, settings).opened()
    if version is None:
        return {}
    rows = version.rows([*version.sizes], version.columns)
    return dict(zip(everything(rows), rows.column("_generation").to_pylist(), strict=True))


def everything(rows: pa.Table) -> Iterator[tuple[TopicPartition, int]]:
    """The message of each row of a file."""
    names = ("_topic", "_partition", "_incarnation", "_offset")
    for topic, partition, incarnation, offset in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
        yield TopicPartition(topic, partition, incarnation), offset
