"""The servers of the simulation are models: here the same random calls go to each model and to the real server."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from kafka import KafkaProducer
from pyarrow import fs

from services.site import Site
from tests.simulation import hbase, lake
from tests.simulation.kafka import Kafka as Model
from tests.simulation.kafka import Log, Message
from tests.simulation.lake import InMemory, Lake
from tests.support.delta_in_memory import add
from tests.support.live_streams import Kafka
from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.stores import Stores
from tests.support.waiting import until
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.tables import ALL_VERSIONS, FOR_EVER, ensure_table
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import READ_COMMITTED, READ_UNCOMMITTED
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.changing import FileChange

CALLS = 500
Call = Callable[[Any], Any]
ROWS = [b"a", b"b", b"c", b"d"]
COLUMNS = [b"d:x", b"d:y", b"d:", b"t:m"]


class Both:
    """The same call of a server's interface, to the model and to the real one."""

    def __init__(self, site: Site) -> None:
        self.cluster = hbase.Cluster()
        self.table = f"model_{secrets.token_hex(4)}"
        self._real = Gateway(HBaseEndpoint("127.0.0.1", site.port("thrift")))
        kept = {"maxVersions": ALL_VERSIONS, "timeToLive": FOR_EVER}
        ensure_table(self._real, self.table, {"d": kept, "t": kept})
        self._model = hbase.Connection(self.cluster)

    def same(self, call: Call) -> None:
        """A call, with the connection: its answer is the same."""
        assert call(self._model) == self._real._repeated("compare", call)


def _cells(cells: list[Any]) -> list[tuple[bytes, int]]:
    return [(one.value, one.timestamp) for one in cells]


def _rows(rows: list[Any]) -> list[tuple[bytes, dict[bytes, tuple[bytes, int]]]]:
    return [(row.row, {name: (one.value, one.timestamp) for name, one in row.columns.items()}) for row in rows]


def _changes(table: bytes, row: bytes, column: bytes, at: int, value: bytes) -> list[tuple[int, Call]]:
    """Each with how often it is made."""
    family = column.partition(b":")[0]

    def put(connection: Any) -> None:
        change = Mutation(isDelete=False, column=column, value=value, writeToWAL=True)
        connection.client.mutateRowsTs(table, [BatchMutation(row=row, mutations=[change])], at, {})

    def delete_family(connection: Any) -> None:
        change = Mutation(isDelete=True, column=family, writeToWAL=True)
        connection.client.mutateRowsTs(table, [BatchMutation(row=row, mutations=[change])], at, {})

    return [(9, put), (2, delete_family)]


def _questions(table: bytes, row: bytes, column: bytes, at: int, some: list[bytes]) -> list[tuple[int, Call]]:
    def get(connection: Any) -> Any:
        client = connection.client
        return [
            _cells(client.get(table, row, column, {})),
            _rows(client.getRowTs(table, row, at, {})),
            _rows(client.getRowsWithColumns(table, ROWS, some, {})),
        ]

    def scan(connection: Any) -> Any:
        options: list[dict[str, Any]] = [
            {},
            {"columns": some},
            {"columns": [b"d"]},
            {"timestamp": at},
            {"row_start": row},
            {"row_stop": row},
        ]
        rows = connection.table(table.decode())
        return [list(rows.scan(include_timestamp=True, **one)) for one in options]

    def backwards(connection: Any) -> Any:
        rows = connection.table(table.decode())
        return list(rows.scan(row_start=b"\xff", row_stop=row, reverse=True, limit=2))

    return [(4, get), (2, scan), (1, backwards)]


def test_the_model_of_hbase_gives_the_answers_of_hbase(site: Site) -> None:
    both, chance = Both(site), random.Random(11)
    table = both.table.encode()
    for number in range(CALLS):
        row, column, at = chance.choice(ROWS), chance.choice(COLUMNS), chance.randrange(1, 40)
        calls = _changes(table, row, column, at, b"%d" % number)
        calls += _questions(table, row, column, at, chance.sample(COLUMNS, 2))
        ((_, call),) = chance.choices(calls, [weight for weight, _ in calls])
        both.same(call)


def _asked_of_a_store(
    model: MemoryStore, key: Key, keys: list[Key], expected: bytes | None, value: bytes
) -> list[Call]:
    record, head = ("history", "ingest", value.decode()), keys[0]
    return [
        lambda store: store.swap(key, expected, value),
        lambda store: store.read(key),
        lambda store: store.read_several(keys),
        lambda store: list(store.scan(("history",))),
        lambda store: list(store.scan(("history", "ingest"))),
        lambda store: store.newest(("history", "ingest"), 2),
        lambda store: store.commit(head, model.values.get(head, b"none"), value, record, value, None),
    ]


@pytest.mark.full
def test_the_model_of_the_ledgers_store_gives_the_answers_of_the_store(stores: Stores) -> None:
    """A swap, a commit and all ways of reading, in any order."""
    real, chance = stores.new(), random.Random(12)
    model = TransactionalStore() if real.commits_records else MemoryStore()
    assert model.commits_records == real.commits_records
    keys: list[Key] = [("head", "ingest"), ("head", "b"), ("register",), ("history", "ingest", "9998")]
    for number in range(CALLS):
        key = chance.choice(keys)
        expected = chance.choice([None, model.values.get(key), model.values.get(key), b"other"])
        call = chance.choice(_asked_of_a_store(model, key, keys, expected, b"%04d" % number))
        assert call(real) == call(model), number


@pytest.fixture
def producers(kafka: Kafka) -> Iterator[list[KafkaProducer]]:
    """Two that can each have one transaction open."""
    names = [f"model-{secrets.token_hex(4)}" for _ in range(2)]
    made = [KafkaProducer(**kafka.settings, transactional_id=name) for name in names]
    for one in made:
        one.init_transactions()
    yield made
    for one in made:
        one.close()


def test_the_model_of_kafka_gives_the_answers_of_kafka(kafka: Kafka, producers: list[KafkaProducer]) -> None:
    """Bounds under both isolation levels, what is at each offset, and the first offset at a time; after each change."""
    topic, chance = f"model-{secrets.token_hex(4)}", random.Random(13)
    # The messages have times near 1970, and no clock is to expire them.
    kafka.create(topic, 1, **{"retention.ms": "-1"})
    real, model = KafkaLog(kafka.endpoint), Model(1)
    log, open_now = model.held["orders"].logs[0], [False, False]
    for number in range(1, CALLS // 5 + 1):
        which = chance.randrange(2)
        match chance.choice(["plain", "plain", "begin", "end", "end", "retain"]):
            case "plain":
                producer = KafkaProducer(**kafka.settings)
                producer.send(topic, b"v", b"%d" % number, partition=0, timestamp_ms=number * 1_000).get(30)
                producer.close()
                log.append(Message(number, number, number * 1_000))
            case "begin" if not open_now[which]:
                open_now[which] = True
                producers[which].begin_transaction()
                producers[which].send(topic, b"v", b"%d" % number, partition=0, timestamp_ms=number * 1_000).get(30)
                log.append(Message(number, number, number * 1_000, transaction=which + 2 * number))
            case "end" if open_now[which]:
                open_now[which], commit = False, chance.random() < 0.5
                end = producers[which].commit_transaction if commit else producers[which].abort_transaction
                end()
                mine = sorted(log.running).index(next(one for one in log.running if one % 2 == which))
                model.end(mine, commit=commit)
            case "retain":
                start = min(log.stable, log.start + 1)
                kafka.delete_records(topic, 0, start)
                model.retain(start - log.start)
        _same_answers(real, model, topic, chance)


def _same_answers(real: KafkaLog, model: Model, topic: str, chance: random.Random) -> None:
    def bounds(log: KafkaLog, name: str, isolation: str) -> tuple[int, int, int]:
        found = log.topics([name], isolation)[name].partitions[0]
        return found.start, found.end, found.written

    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        want = bounds(model, "orders", isolation)
        # The last stable offset follows a moment after the end of a transaction.
        until(lambda want=want, isolation=isolation: bounds(real, topic, isolation) == want, f"{isolation}: {want}")
    log = model.held["orders"].logs[0]
    for offset in {log.start, chance.randrange(log.end + 1), log.end}:
        mine, found = model.slot("orders", 0, offset), real.slot(topic, 0, offset)
        assert mine is not None
        assert found is not None
        assert (found.slot, found.log_start, found.end) == (mine.slot, mine.log_start, mine.end), offset
    # A consumer takes a while to begin.
    if chance.randrange(6) == 0:
        _same_of_readers(real, model, topic, log)
        isolation, time = chance.choice([READ_COMMITTED, READ_UNCOMMITTED]), chance.randrange(CALLS // 5) * 1_000
        assert _steps(real, topic, log, isolation) == _steps(model, "orders", log, isolation), isolation
        mine, found = (
            one.first_at_or_after(one.topics([name], isolation), time, isolation)[name, 0]
            for one, name in ((model, "orders"), (real, topic))
        )
        # A transaction's marker has the time at which it was written, which is long after those of the messages here.
        assert found == mine or (found is not None and log.slots[found] is None and (mine is None or found < mine)), (
            time
        )


def _same_of_readers(real: KafkaLog, model: Model, topic: str, log: Log) -> None:
    """What readers of a log ask that need no isolation level: its end, the end of an epoch, a time, and each key."""
    assert topic in real.names()
    (mine,) = model.high_watermarks(model.topics(["orders"], READ_COMMITTED)).values()
    assert real.high_watermarks(real.topics([topic], READ_COMMITTED)) == {(topic, 0): mine}
    (end,) = model.epoch_ends({("orders", 0): 0}).values()
    assert real.epoch_ends({(topic, 0): 0}) == {(topic, 0): end}
    times = model.timestamps({("orders", 0): (log.start, log.end)})
    assert [*real.timestamps({(topic, 0): (log.start, log.end)}).values()] == [*times.values()]

    def keys(log_: KafkaLog | Model, name: str) -> list[tuple[int, bytes | None]]:
        wanted = RangeSet([OffsetRange(TopicPartition(name, 0), log.start, log.end)])
        return [one for _, messages in log_.messages(wanted) for one in messages]

    assert keys(real, topic) == keys(model, "orders")


def _steps(kafka: KafkaLog | Model, name: str, log: Log, isolation: str) -> list[tuple[int, bytes | None, int | None]]:
    """The messages of a log, read step by step."""
    until_ = log.stable if isolation == READ_COMMITTED else log.end
    with kafka.stepping(isolation) as steps:
        found = [one for step in steps(name, 0, log.start, until_) for one in step.messages]
    return [(at, message.key, message.timestamp) for at, message in found]


def _of_files(base: str, folder: str, contents: bytes) -> Sequence[Callable[[fs.FileSystem], object]]:
    """What the product asks of a file system, with paths below `base`."""
    path = f"{base}/{folder}"

    def listed(files: fs.FileSystem, at: str, *, recursive: bool) -> Any:
        found = files.get_file_info(fs.FileSelector(at, allow_not_found=True, recursive=recursive))
        return sorted((one.path.removeprefix(base), one.type, one.size) for one in found)

    def write(files: fs.FileSystem) -> None:
        files.create_dir(path, recursive=True)
        with files.open_output_stream(f"{path}/part-{len(contents)}") as out:
            out.write(contents)
            # It is there when it is closed.
            assert listed(files, f"{path}/part-{len(contents)}x", recursive=False) == []

    def read(files: fs.FileSystem) -> Any:
        found = [one.path for one in files.get_file_info(fs.FileSelector(path, allow_not_found=True)) if one.is_file]
        return [files.open_input_file(one).read() for one in sorted(found)]

    def delete(files: fs.FileSystem) -> None:
        if files.get_file_info(path).type != fs.FileType.NotFound:
            files.delete_dir(path)

    return [
        write,
        write,
        delete,
        read,
        lambda files: files.get_file_info(path).type,
        lambda files: listed(files, path, recursive=False),
        lambda files: listed(files, base, recursive=True),
    ]


@pytest.mark.full
def test_the_model_of_a_file_system_gives_the_answers_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders within folders, as windows and attempts have them."""
    monkeypatch.setattr(lake, "lake", Lake)
    model, real, chance = InMemory(), fs.LocalFileSystem(), random.Random(14)
    folders = ["a", "a/1", "a/1/x", "a/2/x", "b/1/y"]
    for number in range(CALLS):
        which, folder, contents = chance.randrange(7), chance.choice(folders), bytes(chance.randrange(1, 4))
        mine, theirs = (_of_files(base, folder, contents)[which] for base in ("lake/orders", str(tmp_path / "lake")))
        assert mine(model) == theirs(real), number


@pytest.mark.full
def test_a_table_meets_its_own_commit_as_that_of_another(tmp_path: Path) -> None:
    """As when an answer was lost and the client asks again: the simulation says so of Delta tables."""
    base = f"file://{tmp_path}/table"
    columns = delta_table.columns({"id": "integer"})
    delta_table.prepare(base, columns, "orders", "here")
    folder = Path(delta_table.partition_folder(base, 5).removeprefix("file://"))
    folder.mkdir()
    pq.write_table(
        pa.Table.from_pylist([{"id": 1}], schema=columns.remove(len(columns) - 1)), folder / "part-0.parquet"
    )
    first, second = DeltaTable(base), DeltaTable(base)
    properties = CommitProperties(app_transactions=[Transaction("orders/ingest", 5)])

    def commit(table: DeltaTable) -> None:
        change = FileChange(base)
        change.add("_generation=5/part-0.parquet", 5)
        actions: list[AddAction | RemoveAction] = [*change.added]
        table.create_write_transaction(actions, "append", table.schema(), ["_generation"], commit_properties=properties)

    commit(first)
    version = DeltaTable(base).version()
    with pytest.raises(CommitFailedError):
        commit(second)
    # Whoever looks again finds it, and adds nothing.
    add(base, "orders/ingest", 5, "ingest/1")
    assert DeltaTable(base).version() == version
