"""The same window where much was done before, and where little was: what a window costs must not grow with the stream.

The other side of each pair is the same code on a young stream, so the ratio is 1 where nothing grows.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from kafka import KafkaProducer

from bench.ledger import NoSweeps, NoWork, next_hundred
from bench.pairs import Pairs, in_pairs
from bench.workbench import Workbench, window
from services import control, environment
from tidemark.clients.environment import from_environment
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Run
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, LaneKind, positions
from tidemark.ledger.register import open_lane
from tidemark.ledger.stores.kinds import ledger_store
from tidemark.ledger.stores.settings import SQLLedger
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import open_stream
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.sinks.stored_rows import Mark

# Committed windows before those that are timed.
YOUNG, OLD = 100, 1_000
_AT_A_TIME = 10
_PARTITIONS = [TopicPartition("logs", number) for number in range(20)]
# Dead letters in the table, and those of one window.
FEW, MANY = 10_000, 100_000
_OF_A_WINDOW = 100


def ledger_in_sql(bench: Workbench) -> Pairs:
    """Ten windows in PostgreSQL."""
    control.up(bench.site, ["postgresql"])
    old, young = _Ledger(OLD), _Ledger(YOUNG)
    return in_pairs(bench.pairs, old.windows, young.windows)


class _Ledger:
    """A stream without data, whose windows are all in the ledger."""

    def __init__(self, windows: int) -> None:
        name = f"bench_{uuid.uuid4().hex[:8]}"
        # A table of its own: a database has one index for all streams of a table.
        store = ledger_store(SQLLedger(type="sql", table=name, offsets_table=f"{name}_offsets"), name, from_environment)
        store.prepare()
        self._ledger = Ledger(store, name)
        open_lane(self._ledger, INGEST, LaneKind.INGEST, run="bench", start=positions(dict.fromkeys(_PARTITIONS, 0)))
        for _ in range(windows // _AT_A_TIME):
            self.windows()

    def windows(self) -> None:
        for _ in range(_AT_A_TIME):
            pending = protocol.pin(self._ledger, NoSweeps(), INGEST, next_hundred)
            assert pending is not None
            run = Run(name=f"run {pending.window.seq}", code_version="bench", stream_digest="0" * 64)
            protocol.process(self._ledger, NoSweeps(), NoWork(), unwatched, INGEST, pending.window.seq, run)


def letters_in_postgresql(bench: Workbench) -> Pairs:
    control.up(bench.site, ["postgresql"])
    return _letters(bench, "sql_default")


def letters_in_mariadb(bench: Workbench) -> Pairs:
    control.up(bench.site, ["mariadb"])
    return _letters(bench, "mysql_default")


def _letters(bench: Workbench, connection: str) -> Pairs:
    old, young = _Letters(connection, MANY), _Letters(connection, FEW)
    return in_pairs(bench.pairs, old.windows, young.windows)


class _Letters:
    """A table of dead letters of one partition."""

    def __init__(self, connection: str, number: int) -> None:
        name = f"bench_{uuid.uuid4().hex[:8]}"
        self._store, self._next = letters_in(from_environment, connection, name, name), 0
        self._store.prepare(name, "bench")
        while self._next < number:
            self._write(2_000)

    def windows(self) -> None:
        """What ten windows do there: write, clear what older attempts wrote, and read what counts."""
        for _ in range(_AT_A_TIME):
            wanted = self._write(_OF_A_WINDOW)
            self._store.sweep(RangeSet([wanted]), 7)
            authority = Authority([(7, RangeSet([wanted]))])
            assert sum(row is not None for _, row in self._store.rows(authority, wanted)) == _OF_A_WINDOW

    def _write(self, number: int) -> OffsetRange:
        wanted = OffsetRange(_PARTITIONS[0], self._next, self._next + number)
        said = {"redrives": b"0", "reason": b"not a line", "value": b"x" * 200}
        contents = [said.get(name) for name in FIELDS]
        mark = Mark(7, 1, INGEST, 1)
        self._store.write(
            [self._store.row(wanted.partition, offset, mark, contents) for offset in range(wanted.start, wanted.until)]
        )
        self._next = wanted.until
        return wanted


def parquet_in_a_bucket(bench: Workbench) -> Pairs:
    return _in_a_bucket(bench, "parquet")


def delta_in_a_bucket(bench: Workbench) -> Pairs:
    return _in_a_bucket(bench, "delta")


def _in_a_bucket(bench: Workbench, kind: str) -> Pairs:
    control.up(bench.site, ["postgresql", "s3"])
    os.environ.update(environment.object_store(bench.site))
    old, young = (_InABucket(bench, kind, windows) for windows in (OLD, YOUNG))
    return in_pairs(bench.pairs, old.window, young.window)


class _InABucket:
    """A stream with results and dead letters of one kind in a bucket, and its ledger in PostgreSQL."""

    def __init__(self, bench: Workbench, kind: str, windows: int) -> None:
        self._bench, self._lines = bench, _lines()
        name = f"bench_{uuid.uuid4().hex[:8]}"
        self._topic = bench.create(1)
        place = {"type": kind, "files": "aws_default"}
        stream: dict[str, Any] = {
            "stream": name,
            "source": {"topics": [self._topic], "start": "earliest"},
            "scheme": {"type": "json", "fields": {"number": "integer", "line": "string"}},
            "sinks": [{**place, "folder": f"{name}/rows"}],
            "dead_letters": {**place, "folder": f"{name}/dead"},
            "ledger": {"type": "sql"},
        }
        file = bench.site.folder("bench") / f"{name}.yaml"
        file.write_text(yaml.safe_dump(stream, sort_keys=False))
        self._opened = open_stream(file)
        self._producer = KafkaProducer(bootstrap_servers=bench.servers)
        for _ in range(windows):
            self.window()

    def window(self) -> float:
        for value in next(self._lines):
            self._producer.send(self._topic, value)
        self._producer.flush()
        return window(self._opened)


def _lines() -> Iterator[Iterable[bytes]]:
    """The values of each window: some rows, and a dead letter."""
    number = 0
    while True:
        number += 1
        rows = [json.dumps({"number": number, "line": str(one)}).encode() for one in range(20)]
        yield [*rows, b"no row"]
