"""Windows to HBase, against three other ways to put the same cells there: Java's client, Spark with happybase, and no Spark.

Rows have four cells: three fields of a CDN line, and one that says which attempt wrote it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import happybase
import yaml
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from bench.pairs import Pairs, in_pairs
from bench.workbench import EXAMPLE, Workbench, window
from services import environment
from services.servers import gateway_command
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.schemes.kinds import RegexScheme
from tidemark.spark.columns import OFFSET, PARTITION, REASON
from tidemark.spark.schemes import parse

_FIELDS = ("clientip", "path", "size")
_BATCH = 1000
_MARK = bytes(40)


def buffered_mutator(bench: Workbench) -> Pairs:
    topic = bench.lines(bench.messages)
    file = bench.site.folder("bench") / "cells"
    with file.open("wb") as out:
        out.write(struct.pack(">i", 1 + len(_FIELDS)))
        for row in _some_rows(bench, topic):
            out.writelines(struct.pack(">i", len(part)) + part for part in row)

    def java() -> float:
        return _write_cells(bench, file)

    return in_pairs(bench.pairs, _ours(bench, topic), java)


def foreach_partition(bench: Workbench) -> Pairs:
    topic = bench.lines(bench.messages)
    port = bench.site.port("thrift")
    scheme = RegexScheme.model_validate(_scheme())

    def spark() -> float:
        table = bench.table()
        began = time.perf_counter()

        def put(rows: Iterable[Any]) -> None:
            # A filter in Spark would match each line a second time.
            valid = (one for one in rows if one[0] is None)
            _put(port, table, ((f"{topic}-{one[1]}-{one[2]}".encode(), one[3:]) for one in valid))

        parsed = parse(bench.source(topic), scheme)
        parsed.select(REASON, PARTITION, OFFSET, *_FIELDS).rdd.foreachPartition(put)
        return time.perf_counter() - began

    return in_pairs(bench.pairs, _ours(bench, topic), spark)


def consumer_loop(bench: Workbench) -> Pairs:
    topic = bench.lines(bench.messages)

    def loop() -> float:
        table = bench.table()
        began = time.perf_counter()
        _put(bench.site.port("thrift"), table, _consumed(bench, topic))
        return time.perf_counter() - began

    return in_pairs(bench.pairs, _ours(bench, topic), loop)


def packed(bench: Workbench) -> Pairs:
    """One cell for all fields of a row, against a cell for each."""
    topic = bench.lines(bench.messages)
    return in_pairs(bench.pairs, _ours(bench, topic, packed=True), _ours(bench, topic))


def two_gateways(bench: Workbench) -> Pairs:
    """Each of Spark's Python workers begins with any of the two."""
    topic = bench.lines(bench.messages)
    with _another_gateway(bench) as port:
        name, known = "AIRFLOW_CONN_HBASE_DEFAULT", environment.connections(bench.site)
        one = json.loads(known[name])
        two = json.dumps({**one, "host": f"127.0.0.1,127.0.0.1:{port}"})

        def both() -> float:
            os.environ[name] = two
            try:
                return run()
            finally:
                os.environ[name] = known[name]

        run = _ours(bench, topic)
        # The first gateway has worked before.
        both()
        return in_pairs(bench.pairs, both, run)


@contextmanager
def _another_gateway(bench: Workbench) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = bench.site.folder("bench") / "gateway.log"
    with log.open("wb") as out:
        process = subprocess.Popen(gateway_command(bench.site, port), stdout=out, stderr=subprocess.STDOUT)
    try:
        for _ in range(60):
            time.sleep(1)
            if process.poll() is not None:
                raise RuntimeError(f"the second gateway has ended: {log.read_text()[-2000:]}")
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
        else:
            raise RuntimeError(f"no second gateway listens: {log.read_text()[-2000:]}")
        yield port
    finally:
        process.kill()
        process.wait()


def _ours(bench: Workbench, topic: str, *, packed: bool = False) -> Callable[[], float]:
    def run() -> float:
        sink = {"type": "hbase", "packed": packed}
        opened = bench.stream(topic, sink, scheme=_scheme(), checks=[])
        seconds = window(opened)
        with closing(bench.hbase()) as connection:
            # The first row is the table's mark.
            _, (_, cells) = connection.table(opened.stream.sinks[0].model_dump()["table"]).scan(limit=2)
        assert len(cells) == (1 if packed else len(_FIELDS)) + 1, f"a row has the cells {sorted(cells)}"
        return seconds

    return run


def _scheme() -> dict[str, Any]:
    """The example's patterns, which match the same lines, with no other groups than _FIELDS."""
    scheme = yaml.safe_load(EXAMPLE.read_text())["scheme"]
    return {
        **scheme,
        "fields": {name: scheme["fields"][name] for name in _FIELDS},
        "patterns": [
            {
                "name": one["name"],
                "regex": _with_groups(one["regex"], [name in _FIELDS for name in one["fields"]]),
                "fields": [name for name in one["fields"] if name in _FIELDS],
            }
            for one in scheme["patterns"]
        ],
    }


def _with_groups(regex: str, wanted: list[bool]) -> str:
    first, *groups = regex.split("(")
    assert len(groups) == len(wanted), f"{regex} has {len(groups)} groups, expected {len(wanted)}"
    return first + "".join(("(" if one else "(?:") + group for one, group in zip(wanted, groups, strict=True))


def _put(port: int, table: str, rows: Iterable[tuple[bytes, Iterable[Any]]]) -> None:
    names = [f"d:{name}".encode() for name in _FIELDS]
    with (
        closing(happybase.Connection("127.0.0.1", port)) as connection,
        connection.table(table).batch(batch_size=_BATCH) as batch,
    ):
        for key, fields in rows:
            cells = {name: str(value).encode() for name, value in zip(names, fields, strict=True) if value is not None}
            batch.put(key, {**cells, b"d:mark": _MARK})


def _consumed(bench: Workbench, topic: str) -> Iterator[tuple[bytes, list[str]]]:
    """Every line that parses, as one consumer reads them and Python's `re` takes them apart."""
    ranges = {KafkaTopicPartition(topic, one.partition.partition): one.until for one in bench.everything(topic)}
    patterns = [
        (re.compile(one["regex"]), [one["fields"].index(name) + 1 for name in _FIELDS]) for one in _scheme()["patterns"]
    ]
    with closing(KafkaConsumer(bootstrap_servers=bench.servers, isolation_level=READ_COMMITTED)) as consumer:
        consumer.assign(list(ranges))
        consumer.seek_to_beginning(*ranges)
        while any(consumer.position(at) < until for at, until in ranges.items()):
            for records in consumer.poll(1000, max_records=10_000).values():
                for record in records:
                    fields = None if record.value is None else _parsed(record.value, patterns)
                    if fields is not None:
                        yield f"{topic}-{record.partition}-{record.offset}".encode(), fields


def _parsed(value: bytes, patterns: list[tuple[re.Pattern[str], list[int]]]) -> list[str] | None:
    try:
        line = value.decode()
    except UnicodeDecodeError:
        return None
    for pattern, groups in patterns:
        found = pattern.fullmatch(line)
        if found:
            return [found[number] for number in groups]
    return None


def _some_rows(bench: Workbench, topic: str) -> Iterator[list[bytes]]:
    """As many rows as the topic has messages: key, then qualifier and value of each cell, in the sizes that ours have."""
    for number, (_, fields) in enumerate(islice(_consumed(bench, topic), bench.messages)):
        key = struct.pack(">BB14sHIQI", number % 16, 14, topic.encode(), 1, number % 4, number // 4, 0)
        cells = [part for pair in zip(_FIELDS, fields, strict=True) for part in pair]
        yield [key, b"m", _MARK, *(part.encode() for part in cells)]


def _write_cells(bench: Workbench, file: Path) -> float:
    source = Path(__file__).parent / "WriteCells.java"
    jars = bench.site.jars / "hbase" / "*"
    command = ["java", "-Xmx4g", "-cp", str(jars), str(source)]
    done = subprocess.run(
        [*command, str(bench.site.port("zookeeper")), bench.table(), str(file), "2"], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])
