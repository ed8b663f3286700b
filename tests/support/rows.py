"""Streams and messages for the tests of rows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.support.live_streams import LiveStream
from tests.support.oracle import Example, Outcome, consume
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.reading import no_messages
from tidemark.streams.model import Stream

SINKS = [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}]
GIVEN_BACK = "_topic, _incarnation, _partition, _offset, _index"


def stream_of(**parts: Any) -> Stream:
    return Stream.model_validate(
        {
            "stream": "orders",
            "source": {"topics": ["orders"]},
            "scheme": {"type": "string"},
            "sinks": [{"type": "hbase", "table": "orders"}],
            "dead_letters": {"type": "hbase", "table": "dead"},
            **parts,
        }
    )


def messages_of(spark: SparkSession, values: list[bytes | None], key: bytes | None = b"key") -> DataFrame:
    rows = [("orders", 1, 0, offset, key, value, None, 0, None, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, no_messages(spark).schema)


def batch_messages(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Messages with several orders each, mostly valid."""
    for number in range(first, first + count):
        chance = random.Random(number)
        kind = chance.randrange(12)
        orders = [json.dumps({"id": 10 * number + one, "amount": one / 4}) for one in range(chance.randrange(1, 6))]
        if kind == 0:
            yield b"nothing", b""
        elif kind == 1:
            yield b"tombstone", None
        elif kind == 2:
            yield None, "\n".join([*orders, json.dumps({"id": 1, "amount": -1})]).encode()
        elif kind == 3:
            yield b"x", "\n".join([*orders, "{"]).encode() + b"\n{"
        else:
            yield b"orders", "\n".join(orders).encode() + (b"\n" if kind == 4 else b"")


BATCHES = Example(
    "batches",
    {
        "source": {"topics": []},
        "explode": {"lines": "\n"},
        "scheme": {"type": "json", "fields": {"id": "integer", "amount": "double"}},
        "checks": [{"invalid_when": "amount < 0", "reason": "negative amount"}],
        "sinks": SINKS,
        "dead_letters": {"type": "hbase", "table": "-"},
    },
    ("batches",),
    3,
    batch_messages,
    lambda value: Outcome(None, None),
)


def assert_rows(live: LiveStream, made: Callable[[bytes | None], list[dict[str, str]] | str], *records: Any) -> None:
    """Both sinks, the dead letters, the tallies and the audit agree with `made` for each message.

    `made` gives a message's rows, or why the message is invalid: the reason, and after `; ` the detail, if any.
    """
    results = {
        (topic, partition, offset): made(value)
        for topic, partition, offset, value in consume(live.kafka.settings, live.topics, live.positions())
    }
    rows = {
        (*place, index): fields
        for place, found in results.items()
        if not isinstance(found, str)
        for index, fields in enumerate(found)
    }
    hbase, files = live.independent.hbase(), live.independent.parquet(list(live.opened.stream.fields))
    assert (hbase.twice(), files.twice()) == (0, 0)
    assert hbase.by_place() == rows
    assert files.by_place() == rows
    letters = live.independent.hbase(f"{live.name}_dead").rows
    dead = {
        place[:3]: "; ".join(fields[part] for part in ("reason", "detail") if part in fields)
        for place, fields in letters
    }
    assert dead == {place: found for place, found in results.items() if isinstance(found, str)}

    skipped = sum(found == [] for found in results.values())
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
    assert (report.expected, report.skipped, report.dead_letters) == (len(results), skipped, len(dead))
    if records:
        counted = [tally for record in records for tally in record.tallies]
        assert sum(tally.read.number for tally in counted) == len(results)
        assert sum(tally.skipped.number for tally in counted) == skipped
        assert sum(tally.rows.number for tally in counted) == len(rows)


KEPT = f"SELECT {GIVEN_BACK}, upper(customer) AS customer, id FROM messages WHERE paid"
ORDERS: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {
        "type": "json",
        "fields": {"id": "integer", "customer": "string", "paid": "boolean", "lines": "string"},
        "keep": {"note": "key"},
    },
    "transform": {"sql": KEPT, "fields": {"customer": "string", "id": "integer"}},
    "sinks": SINKS,
    "dead_letters": {"type": "hbase", "table": "-"},
}


def order_messages(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    for number in range(first, first + count):
        order = {"id": number, "customer": f"zoë {number}", "paid": number % 3 == 0, "lines": "a,b,c"[: number % 6]}
        value = {0: None, 1: b"{"}.get(number % 11, json.dumps(order).encode())
        yield f"note {number}".encode(), value


TRANSFORMED = Example("orders", ORDERS, ("orders",), 3, order_messages, lambda value: Outcome(None, None))
