"""Values at the edges of their types, on the whole way: from a message through each sink to each reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.support.edges import FIELDS, SCHEMA, SCHEMES, WRITTEN, edges_of
from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tidemark.cli.commands.results import read_rows
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.double_texts import double_text
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results


def example(scheme: dict[str, Any]) -> Example:
    stream = {"source": {"topics": []}, "scheme": scheme, "sinks": [], "dead_letters": {"type": "hbase", "table": "-"}}
    return Example("edges", stream, ("edges",), 1, lambda count, first: iter(()), lambda value: Outcome(None, None))


def of_kafka(value: str) -> dict[str, str]:
    """The fields of a message of the sink kafka, as HBase has them."""
    found = {name: one for name, one in json.loads(value).items() if one is not None}
    made = {}
    for name, one in found.items():
        made[name] = double_text(float(one)) if FIELDS[name] == "double" else str(one)
        if FIELDS[name] == "boolean":
            made[name] = str(one).lower()
        if FIELDS[name] == "timestamp":
            head, _, fraction = str(one).removesuffix("Z").replace("T", " ").partition(".")
            made[name] = f"{head}.{fraction}".rstrip("0").rstrip(".")
    return made


@pytest.mark.full
@pytest.mark.covers("S7")
@pytest.mark.parametrize(
    "name", [*(pytest.param(one, marks=pytest.mark.full) for one in ("json", "avro")), "delimited"]
)
def test_values_are_the_same_in_all_sinks_and_for_all_readers(make: Make, spark: SparkSession, name: str) -> None:
    live = make(example(SCHEMES[name]))
    target = f"{live.name}-values"
    live.kafka.create(target, 1)
    sinks: list[dict[str, Any]] = [
        {"type": "hbase", "table": live.name},
        {"type": "hbase", "name": "packed", "table": f"{live.name}_packed", "packed": True},
        {"type": "parquet", "folder": f"{live.name}_lake", "partition_by": ["s", "i", "b", "hour(t)"]},
        {"type": "delta", "folder": f"{live.name}_delta"},
        {"type": "kafka", "topic": target},
    ]
    live.rewrite(sinks=sinks)
    (live.file.parent / "edges.avsc").write_text(json.dumps(SCHEMA))
    given = edges_of(name)
    live.kafka.send((live.topics[0], 0, None, WRITTEN[name](one)) for one in given)
    (record,) = live.ingest()
    refused = [number for number, (_, _, stored) in enumerate(given) if stored is None]
    opened = live.opened
    dead = {
        int(str(row["coordinate"]).rpartition("@")[2]) for row in read_rows(opened, opened.stream.dead_letters, 1_000)
    }
    assert sorted(dead) == refused, [given[number] for number in dead ^ set(refused)]
    wanted = {number: {edge[0]: edge[2]} for number, edge in enumerate(given) if edge[2] is not None}
    for sink in opened.stream.sinks:
        found = {}
        for row in read_rows(opened, sink, 1_000):
            offset = int(str(row["coordinate"]).rpartition("@")[2])
            found[offset] = of_kafka(row["value"]) if sink.type == "kafka" else row["fields"]
        assert {at: (found.get(at), one) for at, one in wanted.items() if found.get(at) != one} == {}, sink.name
        assert len(found) == len(wanted)
    # With Spark, each value as a text of Spark's.
    for of in ("hbase", "packed", "parquet", "delta"):
        rows = results(spark, opened, of)
        texts = rows.select("_offset", *(rows[one].cast("string").alias(one) for one in FIELDS)).collect()
        found = {row["_offset"]: {one: row[one] for one in FIELDS if row[one] is not None} for row in texts}
        assert {at: (found.get(at), one) for at, one in wanted.items() if found.get(at) != one} == {}, of
    # A reader of Delta that filters by what the file says of its columns finds each value.
    (delta,) = (one for one in opened.stream.sinks if isinstance(one, DeltaSink))
    table = DeltaTable(delta.base(opened.connections)).to_pyarrow_dataset()
    for at, fields in wanted.items():
        ((field, text),) = fields.items()
        if field != "t" and text != "NaN":
            value: Any = {"i": int, "d": float, "b": (lambda one: one == "true"), "s": str}[field](text)
            kept = table.to_table(filter=_equal(field, value)).column("_offset").to_pylist()
            assert at in kept, (field, text[:50])
    report = audit(opened, "an audit")
    assert report.clean, report.sentence()
    (tally,) = record.tallies
    assert (tally.stored.number, tally.invalid.number) == (len(wanted), len(refused))


def _equal(field: str, value: Any) -> Any:
    import pyarrow.compute as pc

    return pc.field(field) == value
