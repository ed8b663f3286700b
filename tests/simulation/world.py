"""The world: the servers of one stream, whose clients are the product's own, and the machines on which its programs run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from thriftpy2.transport import TTransportException

from tests.simulation import hbase, lake
from tests.simulation.actors import Actor, Scheduler, Stop, current, effect
from tests.simulation.clocks import BEGIN, Clocks
from tests.simulation.kafka import SECOND, TOPIC, Kafka, Message
from tests.simulation.lake import CATALOG, LAKE, TABLES, Lake
from tests.simulation.ledger import SimulatedLedger
from tests.simulation.others import COPIES, COPIES_CLUSTER, TARGET, WRITTEN, Sender, Topic, target
from tests.simulation.work import HBASE, LETTERS, ROWS, SUMS, Place
from tests.support.memory import MemoryStore, TransactionalStore
from tidemark.clients.connections import Connection
from tidemark.clients.hbase import gateway
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.kafka import sending
from tidemark.clients.kafka.log import KafkaLog
from tidemark.commit import fence
from tidemark.ledger import selections
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record
from tidemark.ledger.recovery import backup
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.times import in_iso
from tidemark.planning import merging, splitting
from tidemark.runs.live import kafka_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.dead_letters import copies
from tidemark.sinks.delta import table
from tidemark.sinks.kafka import messages
from tidemark.sinks.owners import OWNER_ROW
from tidemark.sinks.sweeping import SinkSweeper
from tidemark.streams.loading import StreamFile
from tidemark.streams.model import Stream

_BOTH = (f"{TOPIC}/0", f"{TOPIC}/1")
_MAX_REDRIVES = 2
# A few offsets in each piece, so that actors die between two of them.
_PIECE_BYTES = 90

SINKS: dict[str, dict[str, Any]] = {
    "hbase": {"type": "hbase", "table": ROWS},
    **WRITTEN,
}


@dataclass(frozen=True)
class Setting:
    """What the stream file says, and which servers there are."""

    most: int = 100
    guarantee: str = "at_least_once"
    isolation: str = "read_committed"
    # Where the ingest begins in the first two partitions; 0 for where each log begins.
    start: int = 0
    sinks: tuple[str, ...] = ("hbase", SUMS)
    partitions: int = 2
    zookeeper: bool = False
    out_of_range: str = "earliest"
    # What becomes of the ledger at the end: it is rebuilt, or restored from a backup, in another place.
    after: str = ""
    # Whether a sink of files takes the rows while they are read.
    one_pass: bool = False
    # Whether an older version of the program is at work, until it is replaced.
    older: bool = False
    # Whether dead letters are copied to a topic.
    copies: bool = False
    # "two" are named, or those count whose names match a "pattern"; without either, there is one topic.
    topics: str = ""
    on_deleted: str = "fail"
    # The ingest begins at a time: so many milliseconds after the beginning of the world.
    since: int | None = None
    if_none: str = "end"


class World:
    """One stream with its servers. Everything that happens in it follows from what is done to it, in order."""

    def __init__(self, setting: Setting) -> None:
        global _now
        self.setting = setting
        self.clocks = Clocks()
        self.kafka = Kafka(setting.partitions, [SECOND] if setting.topics == "two" else [])
        self.kafka.now = self.clocks.now
        self.hbase = hbase.Cluster()
        self.lake = Lake()
        self.lake.is_away = lambda: LAKE in self.away
        self.target, self.copies = Topic(), Topic()
        self.hbase.time = lambda: self.clocks.now
        self.store = TransactionalStore() if setting.zookeeper else MemoryStore()
        self.store.server_time = lambda: self.clocks.now
        self.ledger = SimulatedLedger(self.store)
        self.older = setting.older
        # Whether its ledger has ever moved.
        self.moved = False
        self.scheduler = Scheduler()
        self.actors: list[Actor] = []
        self.isolation = setting.isolation
        # Whether the scheme parses now what it could not parse before, and whether it ever did.
        self.mended = self.was_mended = False
        # Whether the isolation level was ever another one.
        self.other_isolation = False
        # The servers that do not answer now; a lake that is not mounted is an empty folder.
        self.away: set[str] = set()
        self.ever_away = False
        # By generation: what its attempt has read. By cell: of which messages it was made.
        self.read_by: dict[int, dict[Place, Message]] = {}
        self.made_of: dict[tuple[str, bytes, bytes, int], frozenset[Place]] = {}
        # By cell too: who has written it.
        self.made_by: dict[tuple[str, bytes, bytes, int], Actor | None] = {}
        # By lane and number of a window: when it was swept last.
        self.swept_at: dict[tuple[str, int], int] = {}
        self.writes_rows: Callable[..., None] = lambda messages: None
        self.found_by_key: Callable[[int, frozenset[Place]], None] = lambda key, places: None
        self.found_since: Callable[[Any], None] = lambda request: None
        self.audits: Callable[[], Callable[[Any, Any], None]] = lambda: lambda report, within: None
        self.found_letters: Callable[[Any], None] = lambda request: None
        self.answered: Callable[[Any, Mapping[str, RangeSet]], None] = lambda actor, left_out: None
        self.told: Callable[[str, int, str, bool], None] = lambda lane, seq, token, committed: None
        self.accepts: Callable[[Any, RangeSet], None] = lambda request, selection: None
        self.row_stored: Callable[[Place, int], None] = lambda place, generation: None
        self.gateway = Gateway(HBaseEndpoint("host", 1))
        self.mark_tables()
        _now = self
        self.opened = self.open()

    def mark_tables(self, ledger: str = "here") -> None:
        for name in (ROWS, LETTERS):
            self.hbase.put(name, [(OWNER_ROW, b"t:owner", _json({"ledger": ledger}))], 1)

    def open(self) -> OpenStream:
        """The stream, as a program that starts now opens it: with its own memory of the ledger."""
        file = _file(self.setting, self.isolation, self.mended)
        ledger = Ledger(cast("Any", self.ledger), "orders", clock=self.clocks.local)
        return OpenStream(
            file, ledger, cast("Any", self.kafka), _Sweeper(connections, file.stream.dead_letters), connections
        )

    def run(self, act: Callable[[], object], stop: Stop | None, machine: int, name: str) -> Actor:
        """A program does something; it goes on until it ends, dies or sleeps."""
        actor = Actor(act, stop, machine, name)
        actor.opened, actor.older, actor.mended = self.open(), self.older, self.mended
        self.actors.append(actor)
        self.scheduler.run(actor)
        return actor

    def move_ledger(self, values: dict[Key, bytes]) -> MemoryStore:
        """From now on the ledger is in another place; gives the older one. Whoever is at work keeps the way there."""
        older, self.store = self.store, type(self.store)()
        self.store.server_time, self.store.values = older.server_time, values
        self.ledger = SimulatedLedger(self.store)
        self.ledger.away = "ledger" in self.away
        for key in values:
            self.ledger.network.values[key].append((0, values[key]))
        self.opened = self.open()
        return older

    def was_read(self, generation: int, messages: Mapping[Place, Message]) -> None:
        self.read_by[generation] = dict(messages)

    def made(self, places: frozenset[Place], *cell: Any) -> None:
        """The current actor has written a cell of a table, that is made of some messages."""
        table, row, column, version = cell
        self.made_of[table, row, column, version] = places
        self.made_by[table, row, column, version] = current()

    def pass_by(self, milliseconds: int) -> None:
        self.clocks.pass_by(milliseconds)
        self.kafka.now = self.clocks.now


_now: World | None = None


def now() -> World:
    assert _now is not None
    return _now


def opened_here(_: object = None) -> OpenStream:
    """The stream as the program of the current actor has opened it."""
    actor = current()
    return now().opened if actor is None else cast("OpenStream", actor.opened)


def connections(name: str) -> Connection:
    if name in (LAKE, TABLES, CATALOG):
        return now().lake.connection(name)
    if name in (TARGET, COPIES_CLUSTER):
        return target(name)
    assert name == HBASE, f"nothing here needs the connection {name}"
    return Connection(name, "host", 1)


class _Sweeper(SinkSweeper):
    """The product's, and the world notes when it sweeps."""

    def sweep(self, record: Record, covers: RangeSet, *more: Any, **others: Any) -> None:
        name, world = (record.lane, record.seq), now()
        world.swept_at[name] = max(world.clocks.now, world.swept_at.get(name, 0))
        super().sweep(record, covers, *more, **others)


class _Time:
    """The module `time`, of the world that is now."""

    def monotonic(self) -> float:
        return _clocks().monotonic()

    def time(self) -> float:
        return _clocks().time()

    def sleep(self, seconds: float) -> None:
        _clocks().sleep(seconds)


def _clocks() -> Any:
    # A test before this one may have left a real connection, and the timer that closes it.
    return time if isinstance(threading.current_thread(), threading.Timer) else now().clocks


@contextmanager
def simulated() -> Iterator[None]:
    """While the block runs, the product's clients reach the servers of the world that was made last."""
    clock = _Time()
    with ExitStack() as stack:
        stack.enter_context(lake.stored(lambda: now().lake))
        stack.enter_context(patch.object(sending, "Sender", lambda *_, **__: Sender(now().copies)))
        stack.enter_context(patch.object(copies.Copies, "check", lambda self: effect()))
        stack.enter_context(patch.object(KafkaLog, "message_limits", lambda self, topics: {}))
        stack.enter_context(patch.object(messages, "_messages", lambda *_: now().target.read()))
        stack.enter_context(patch.object(messages, "_newest", lambda *_: (one[0] for one in now().target.read())))
        for module in (doubt, kafka_now, fence, gateway, table):
            stack.enter_context(patch.object(module, "time", clock))
        stack.enter_context(patch.object(selections, "PIECE_BYTES", _PIECE_BYTES))
        # A log of some tens of messages is read in several reads.
        stack.enter_context(patch.object(merging, "_RANGE_MICROSECONDS", 2.0))
        stack.enter_context(patch.object(splitting, "_SHORT", 3))
        stack.enter_context(patch.object(splitting, "_MAX_RANGES", 2))
        stack.enter_context(patch.object(Gateway, "_dial", staticmethod(_dialled)))
        # Nothing is kept open: what would close it is a timer, and so a thread, which no seed decides.
        stack.enter_context(patch.object(Gateway, "_take", lambda self: gateway._Held(self._dial("host", 1, 1), 0, 0)))
        stack.enter_context(patch.object(Gateway, "_give_back", lambda self, one: None))
        # No other process reads a backup, so none has to reach a disk.
        stack.enter_context(patch.object(backup, "os", SimpleNamespace(fsync=lambda number: None)))
        yield


def _dialled(*_: object) -> hbase.Connection:
    if is_away(HBASE):
        raise TTransportException(message="connection refused")
    return hbase.Connection(now().hbase)


def is_away(server: str) -> bool:
    """Whether a server does not answer the current actor. The oracle looks at everything."""
    return current() is not None and server in now().away


@cache
def _file(setting: Setting, isolation: str, mended: bool) -> StreamFile:
    """The stream file, without the text: reading YAML would take longer than most programs."""
    stream = Stream.model_validate(
        {
            "stream": "orders",
            "source": {
                **({"pattern": f"{TOPIC}.*"} if setting.topics == "pattern" else {}),
                **({"topics": [TOPIC, *([SECOND] if setting.topics else [])]} if setting.topics != "pattern" else {}),
                "start": _start(setting),
                "isolation": isolation,
                "on_recreated": "accept",
                "on_truncated": "accept",
                "on_out_of_range": setting.out_of_range,
                "on_deleted": setting.on_deleted,
            },
            "limits": {"max_records": setting.most},
            "scheme": {"type": "json", "fields": {"id": "integer", "number": "integer"}},
            "guarantee": setting.guarantee,
            "sinks": [SINKS[one] for one in setting.sinks],
            "dead_letters": {
                "type": "hbase",
                "table": LETTERS,
                "max_redrives": _MAX_REDRIVES,
                **({"copy_to_topic": COPIES} if setting.copies else {}),
            },
        }
    )
    return StreamFile(Path("orders.yaml"), f"{setting} {isolation} {mended}", stream)


def _start(setting: Setting) -> Any:
    if setting.since is not None:
        return {"time": in_iso(BEGIN + setting.since), "if_none": setting.if_none}
    return "earliest" if setting.start == 0 else {"offsets": dict.fromkeys(_BOTH, setting.start)}


def _json(more: Mapping[str, Any]) -> bytes:
    import json

    return json.dumps({"stream": "orders", **more}).encode()
