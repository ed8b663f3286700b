"""What should be in the results, computed only from the topic and the messages' form, without Tidemark.

An example is a stream with its own messages and its own oracle. The same tests run on each example.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml
from kafka import KafkaConsumer, TopicPartition

from demo.cdn_lines import messages
from tests.support.covering import REPOSITORY

# (topic, partition, offset, index of the row in its message)
Place = tuple[str, int, int, int]
Fields = dict[str, str]


@dataclass(frozen=True)
class Outcome:
    """What becomes of one message: a row's fields (none for a tombstone), or why it is a dead letter."""

    fields: Fields | None
    reason: str | None


@dataclass(frozen=True)
class Example:
    """A stream file's contents, its topics, its messages, and the right outcome of each message."""

    name: str
    stream: dict[str, Any]
    topics: tuple[str, ...]
    partitions: int
    generate: Callable[[int, int], Iterator[tuple[bytes | None, bytes | None]]]
    outcome: Callable[[bytes | None], Outcome]


@dataclass(frozen=True)
class Expected:
    """The rows that should count, by place, and the reasons of the dead letters, by coordinate."""

    rows: dict[Place, Fields]
    dead: dict[tuple[str, int, int], str]


def expected(
    example: Example, settings: Mapping[str, Any], topics: tuple[str, ...], until: dict[tuple[str, int], int]
) -> Expected:
    """Read the topics up to `until` and say what should be in the results."""
    rows: dict[Place, Fields] = {}
    dead: dict[tuple[str, int, int], str] = {}
    for topic, partition, offset, value in consume(settings, topics, until):
        outcome = example.outcome(value)
        if outcome.reason is not None:
            dead[topic, partition, offset] = outcome.reason
        elif outcome.fields is not None:
            rows[topic, partition, offset, 0] = outcome.fields
    return Expected(rows, dead)


def consume(
    settings: Mapping[str, Any], topics: tuple[str, ...], until: dict[tuple[str, int], int]
) -> Iterator[tuple[str, int, int, bytes | None]]:
    """Every visible message below `until`, by kafka-python."""
    consumer = KafkaConsumer(**settings, enable_auto_commit=False, isolation_level="read_committed", group_id=None)
    try:
        for topic in topics:
            for partition in sorted(consumer.partitions_for_topic(topic) or ()):
                at = TopicPartition(topic, partition)
                consumer.assign([at])
                consumer.seek_to_beginning(at)
                end = until.get((topic, partition), 0)
                while consumer.position(at) < end:
                    for records in consumer.poll(timeout_ms=500).values():
                        for record in records:
                            if record.offset < end:
                                yield topic, partition, record.offset, record.value
    finally:
        consumer.close()


# The example stream of the repository


def cdn_file() -> dict[str, Any]:
    stream: dict[str, Any] = yaml.safe_load((REPOSITORY / "dags" / "streams" / "cdn_logs.yaml").read_text())
    return stream


def _cdn_stream() -> dict[str, Any]:
    """The part of it that most tests need. `test_example_stream.py` has all of it: the transform and four sinks."""
    stream = cdn_file()
    del stream["transform"]
    return {**stream, "sinks": [sink for sink in stream["sinks"] if sink["type"] in ("hbase", "parquet")]}


_WANGSU = re.compile(
    r'(\S+) \S+ \S+ \[([^\]]+)\] "([A-Za-z]+) https?://([^/" ]+)(/[^" ]*) (HTTPS?)/([0-9.]+)" (\d+) (\d+) ([0-9.]+)'
)
_AWS = re.compile(
    r"(\d{4}-\d\d-\d\d\t\d\d:\d\d:\d\d)\t[^\t]*\t(\d+)\t([^\t]+)\t([A-Za-z]+)\t([^\t]+)\t([^\t]+)\t(\d+)\t([0-9.]+)"
    r"\t(HTTPS?)/([0-9.]+)"
)
_CDN_FIELDS = ("clientip", "time", "method", "host", "path", "protocol", "protocol-version", "code", "size", "dltime")


def cdn_outcome(value: bytes | None) -> Outcome:
    if value is None:
        return Outcome({}, None)
    try:
        line = value.decode()
    except UnicodeDecodeError:
        return Outcome(None, "not UTF-8")
    matched = _WANGSU.fullmatch(line)
    if matched:
        found = dict(zip(_CDN_FIELDS, matched.groups(), strict=True))
        found["time"] = (
            datetime.strptime(found["time"], "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        )
    else:
        return _aws(line)
    return _checked(found)


def _aws(line: str) -> Outcome:
    matched = _AWS.fullmatch(line)
    if matched is None:
        return Outcome(None, "matches no pattern")
    time, size, client, method, host, path, code, seconds, name, version = matched.groups()
    values = (client, time.replace("\t", " "), method, host, path, name, version, code, size, seconds)
    return _checked(dict(zip(_CDN_FIELDS, values, strict=True)))


def _checked(found: Fields) -> Outcome:
    if int(found["code"]) == 0:
        return Outcome(None, "code is 0")
    # As Spark writes a double: no trailing zeros.
    return Outcome({**found, "dltime": repr(float(found["dltime"]))}, None)


SINCE = datetime(2026, 11, 20, tzinfo=UTC)


def cdn_messages(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    return ((one.key, one.value) for one in messages(count, SINCE, seed=7, first=first))


CDN = Example("cdn", _cdn_stream(), ("cdn-logs",), 4, cdn_messages, cdn_outcome)


# Another stream, which only the tests know: another scheme, two topics, three partitions each


ORDERS_STREAM: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {
        "type": "json",
        "fields": {"id": "integer", "customer": "string", "amount": "double", "paid": "boolean"},
    },
    "checks": [{"invalid_when": "amount < 0", "reason": "negative amount"}],
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}


def orders_messages(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(first, first + count):
        chance = random.Random(number)
        order: dict[str, Any] = {
            "id": number,
            "customer": f"Zoë {number % 9}",
            "amount": number / 4,
            "paid": number % 2 == 0,
        }
        kind = chance.randrange(100)
        key = f"customer-{number % 9}".encode()
        if kind == 0:
            yield key, None
        elif kind == 1:
            yield None, b'{"id": '
        elif kind == 2:
            yield key, json.dumps({**order, "id": "one"}).encode()
        elif kind == 3:
            yield key, json.dumps({**order, "amount": -1.5}).encode()
        elif kind == 4:
            yield key, b"\xff" + json.dumps(order).encode()
        elif kind == 5:
            yield key, json.dumps({"id": number, "more": [1]}).encode()
        else:
            yield key, json.dumps(order, ensure_ascii=False).encode()


def orders_outcome(value: bytes | None) -> Outcome:
    if value is None:
        return Outcome({}, None)
    try:
        order = json.loads(value.decode())
    except UnicodeDecodeError:
        return Outcome(None, "not UTF-8")
    except ValueError:
        return Outcome(None, "not one JSON value, or a key stands twice in it")
    if not isinstance(order.get("id"), int):
        return Outcome(None, "id is not an integer")
    if order.get("amount", 0) < 0:
        return Outcome(None, "negative amount")
    texts = {
        "id": str,
        "customer": str,
        "amount": lambda amount: repr(float(amount)),
        "paid": lambda paid: str(paid).lower(),
    }
    return Outcome({name: text(order[name]) for name, text in texts.items() if name in order}, None)


ORDERS = Example("orders", ORDERS_STREAM, ("orders-eu", "orders-us"), 3, orders_messages, orders_outcome)

EXAMPLES = (CDN, ORDERS)

# One ledger for all streams of the tests, as in production.
LEDGER, OFFSETS = "ledger", "offsets"
LEDGERS: dict[str, dict[str, Any]] = {
    "hbase": {"type": "hbase", "table": LEDGER, "offsets_table": OFFSETS},
    "zookeeper": {"type": "zookeeper"},
}


def stream_of(example: Example, name: str, topics: tuple[str, ...], **changes: Any) -> dict[str, Any]:
    """The example's stream file under another name, with topics, tables and folders of its own."""
    stream = copy.deepcopy(example.stream)
    stream["stream"] = name
    source = {**stream["source"], "topics": list(topics), **changes.pop("source", {})}
    stream["source"] = {key: value for key, value in source.items() if value is not None}
    stream["dead_letters"] = {"type": "hbase", "table": f"{name}_dead"}
    for sink in stream["sinks"]:
        sink["table" if sink["type"] == "hbase" else "folder"] = name
    stream["ledger"] = LEDGERS["hbase"]
    stream.pop("engine", None)
    return {**stream, **changes}
