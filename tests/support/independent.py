"""The results, read without Tidemark's readers: with other code for parsing the ledger, rows and files.

Slow and naive on purpose: one dictionary from offsets to generations, and one read for each covered row.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import happybase
import psycopg
import pyarrow.parquet as pq
import pymysql
from kazoo.client import KazooClient

from services.site import Site
from tests.support.oracle import LEDGER
from tests.support.stores import zookeeper_at

Place = tuple[str, int, int, int]


def _login(connection: str) -> tuple[str, dict[str, Any]]:
    """The name of a database, and how to get in."""
    at = json.loads(os.environ[f"AIRFLOW_CONN_{connection}"])
    return at["schema"], {"host": at["host"], "port": at["port"], "user": at["login"], "password": at["password"]}


@dataclass(frozen=True)
class Counting:
    """The rows that count, each as often as it is stored, and the number of other rows."""

    rows: list[tuple[Place, dict[str, str]]]
    debris: int

    def twice(self) -> int:
        return sum(number - 1 for number in Counter(place for place, _ in self.rows).values())

    def by_place(self) -> dict[Place, dict[str, str]]:
        return dict(self.rows)


class Independent:
    """Reads one stream's ledger, tables and files."""

    def __init__(self, site: Site, name: str) -> None:
        self._site = site
        self._name = name

    def records(self) -> list[dict[str, Any]]:
        """Every committed window, from the heads and the history, as plain JSON."""
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for path, stored in self._ledger().items():
            kind = path.split("/")[0]
            if kind in ("head", "history"):
                value = json.loads(stored)
                value = value["last"] if kind == "head" else value
                if value is not None:
                    found[value["lane"], value["window"]["seq"]] = value
        return [found[place] for place in sorted(found)]

    def _ledger(self) -> dict[str, bytes]:
        """All values of the stream in its ledger, wherever it is, by path."""
        connection = self._connection()
        there = LEDGER.encode() in connection.tables()
        rows = connection.table(LEDGER).scan(row_prefix=f"{self._name}/".encode()) if there else ()
        found = {key.decode().removeprefix(f"{self._name}/"): cells[b"l:v"] for key, cells in rows}
        connection.close()
        return found or self._nodes() or self._rows()

    def _nodes(self) -> dict[str, bytes]:
        at = zookeeper_at(self._site.port("zookeeper"))
        client = KazooClient(hosts=at.hosts, auth_data=[("digest", f"{at.login}:{at.password}")])
        client.start()
        found, base = {}, f"/tidemark/{self._name}"
        waiting = [base] if client.exists(base) else []
        while waiting:
            path = waiting.pop()
            value, _ = client.get(path)
            if value:
                found[path.removeprefix(f"{base}/")] = value
            waiting += [f"{path}/{child}" for child in client.get_children(path)]
        client.stop()
        client.close()
        return found

    def _rows(self) -> dict[str, bytes]:
        """Those of a ledger in SQL: in the file of the connection, if there is one, in PostgreSQL, or in MariaDB."""
        question, stream = "SELECT l.key, l.value FROM tidemark_ledger l WHERE l.stream = ", self._name.encode()
        if file := json.loads(os.environ.get("AIRFLOW_CONN_SQLITE_DEFAULT", "{}")).get("host"):
            with closing(sqlite3.connect(file)) as database:
                return {key.decode(): value for key, value in database.execute(f"{question}?", [stream])}
        found: dict[str, bytes] = {}
        at, login = _login("SQL_DEFAULT")
        with suppress(psycopg.OperationalError), psycopg.connect(dbname=at, **login) as connection:
            for key, value in connection.execute(f"{question}%s", [stream]):
                found[bytes(key).decode()] = bytes(value)
        if not found:
            at, login = _login("MYSQL_DEFAULT")
            with pymysql.connect(database=at, **login) as other, other.cursor() as cursor:
                cursor.execute(f"{question}%s", [stream])
                found = {bytes(key).decode(): bytes(value) for key, value in cursor.fetchall()}
        return found

    def generations(self, sink: str | None = None) -> dict[tuple[str, int, int], int]:
        """(topic, partition, offset) to the generation that counts there, in a sink. None: in the dead letters."""
        counting: dict[tuple[str, int, int], int] = {}
        for record in self.records():
            alone = record["window"].get("sinks")
            if alone is not None and sink not in alone:
                continue
            generation = record["attempt"]["generation"]
            chosen = self._selection(record["window"].get("selection"))
            for one in record["window"]["ranges"]:
                for offset in range(one["from"], one["until"]):
                    place = (one["topic"], one["partition"], offset)
                    if chosen is None or place in chosen:
                        counting[place] = max(generation, counting.get(place, 0))
        return counting

    def _selection(self, ref: dict[str, Any] | None) -> set[tuple[str, int, int]] | None:
        if ref is None:
            return None
        ledger = self._ledger()
        stored = json.loads(ledger[f"selection/{ref['digest']}"])
        pieces = [json.loads(ledger[f"selection/{digest}"]) for *_, digest in stored["pieces"]]
        return {
            (topic, partition, offset)
            for one in pieces or [stored]
            for topic, _, partition, intervals in one["partitions"]
            for start, until in intervals
            for offset in range(start, until)
        }

    def hbase(self, table: str | None = None, sink: str | None = None) -> Counting:
        """The rows of an HBase table; fields are text. `sink`: whose table it is, if windows may have written it alone."""
        generations = self.generations(sink)
        connection = self._connection()
        source = connection.table(table or self._name)
        rows, debris = [], 0
        for key, newest in source.scan(include_timestamp=True):
            if key.startswith(b"\xff\xff"):
                continue
            place = _place(key)
            generation = generations.get(place[:3])
            cells = newest
            if generation is not None and max(stamp for _, stamp in newest.values()) > generation:
                cells = source.row(key, timestamp=generation + 1, include_timestamp=True)
            mark = cells.get(b"t:m")
            if generation is None or mark is None or mark[1] != generation:
                debris += 1
                continue
            assert struct.unpack_from(">Q", mark[0], 2) == (generation,)
            fields = {
                column[2:].decode(): value.decode(errors="surrogateescape")
                for column, (value, stamp) in cells.items()
                if column.startswith(b"d:") and stamp == generation
            }
            rows.append((place, fields))
        connection.close()
        return Counting(rows, debris)

    def cells(self, table: str) -> dict[bytes, dict[bytes, tuple[bytes, int]]]:
        """Every row of a table with the newest cells and their timestamps, whether it counts or not."""
        connection = self._connection()
        found = dict(connection.table(table).scan(include_timestamp=True))
        connection.close()
        return found

    def parquet(self, fields: list[str], only: str | None = None) -> Counting:
        """The rows in the Parquet files of committed windows, or in their compacted folders; fields as in HBase.

        Of all sinks of that type, or of one `only`.
        """
        generations, compacted = self.generations(only), self._compacted()
        rows, debris, tables = [], 0, {}
        for record in self.records():
            receipt = record["receipt"] or self._late_receipt(record["attempt"]["token"])
            window = (record["lane"], record["window"]["seq"])
            for sink in receipt["sinks"]:
                if sink["type"] != "parquet" or only not in (None, sink["name"]):
                    continue
                if not any(tally["rows"][0] for tally in receipt["tallies"]):
                    continue
                other = compacted.get((sink["name"], *window))
                folder = (other or sink["place"]["folder"]).removeprefix("file://")
                if folder not in tables:
                    tables[folder] = pq.read_table(folder, partitioning=None).to_pylist()
                for row in tables[folder]:
                    if other and (row["_lane"], row["_seq"]) != window:
                        continue
                    assert not other or row["_generation"] == record["attempt"]["generation"]
                    coordinate = (row["_topic"], row["_partition"], row["_offset"])
                    if generations[coordinate] != record["attempt"]["generation"]:
                        debris += 1
                        continue
                    texts = {name: _text(row[name]) for name in fields if row[name] is not None}
                    rows.append(((*coordinate, row["_index"]), texts))
        return Counting(rows, debris)

    def _compacted(self) -> dict[tuple[str, str, int], str]:
        """(sink, lane, number) to the folder that has replaced a window's own."""
        values = [json.loads(stored) for path, stored in self._ledger().items() if path.startswith("compacted/")]
        return {
            (value["sink"], lane, seq): one["folder"]
            for value in values
            for one in value["folders"]
            for lane, start, until in one["windows"]
            for seq in range(start, until)
        }

    def _late_receipt(self, token: str) -> dict[str, Any]:
        """The receipt of a window that was committed before it was read; empty if its attempt did not finish."""
        stored = [
            value for path, value in self._ledger().items() if path.startswith("receipt/") and path.endswith(token)
        ]
        return json.loads(stored[0])["receipt"] if stored else {"sinks": (), "tallies": ()}

    def _connection(self) -> happybase.Connection:
        return happybase.Connection("127.0.0.1", self._site.port("thrift"), timeout=60_000)


def _place(key: bytes) -> Place:
    length = key[1]
    topic = key[2 : 2 + length].decode()
    incarnation, partition, offset, index = struct.unpack(">HIQI", key[2 + length :])
    assert incarnation == 1
    return topic, partition, offset, index


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "strftime"):
        # As Spark writes times: with a fraction of a second only if there is one.
        return str(value.strftime("%Y-%m-%d %H:%M:%S.%f")).rstrip("0").rstrip(".")
    return repr(value) if isinstance(value, float) else str(value)
