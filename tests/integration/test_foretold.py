"""What `tidemark init` foretells of a topic's messages is what the first run makes of them: the same ones are rows."""

from __future__ import annotations

import io
import json
from datetime import date
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.support.registry import serving
from tests.support.rows import messages_of
from tidemark.clients.connections import Connection
from tidemark.clients.schema_registry import RegistryEndpoint, SchemaRegistry
from tidemark.drafts.drafting import outcome
from tidemark.drafts.drafting import text_of as file_of
from tidemark.drafts.recognising import format_of
from tidemark.drafts.sampling import SampledMessage
from tidemark.spark.columns import OFFSET, REASON
from tidemark.spark.rows.pipeline import rows_of
from tidemark.streams.loading import load

_NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(["9007199254740993", "1e400", "1e-400", "0.10", "9.90", "1" * 45, "0.1234567890123456789012"]),
)
_TEXTS = st.one_of(
    st.text(max_size=5),
    st.sampled_from(["2026-11-21T07:10:00Z", "2026-11-21 07:10:00.1234567", "2026-02-30", "2026-11-21", "true", "007"]),
)
_LITERALS = st.one_of(st.just("null"), st.just("true"), _NUMBERS, _TEXTS.map(json.dumps))
_VALUES = st.one_of(
    _LITERALS,
    st.lists(_LITERALS, max_size=2).map(lambda parts: f"[{','.join(parts)}]"),
    st.dictionaries(st.sampled_from(["k", "K", "a b"]), _LITERALS, max_size=2).map(
        lambda parts: "{" + ",".join(f"{json.dumps(name)}:{part}" for name, part in parts.items()) + "}"
    ),
)
_KEYS = st.sampled_from(["id", "ID", "_id", "@t", "unknown", "größe", "_topic", "a.b", "", "1"])
_OBJECTS = st.dictionaries(_KEYS, _VALUES, max_size=4).map(
    lambda parts: ("{" + ",".join(f"{json.dumps(name)}:{part}" for name, part in parts.items()) + "}").encode()
)
_CELLS = st.one_of(_NUMBERS, st.sampled_from(["", "a", '"x, y"', '"a\nb"', '"', " 5 ", "TRUE", "2026-11-21 07:10:00"]))
_LINES = st.lists(_CELLS, min_size=2, max_size=3).map(lambda cells: ",".join(cells).encode())


def topics(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """A few messages, each of which comes several times, and others among them."""
    some = st.lists(values, min_size=1, max_size=4).map(lambda few: few * 25)
    return st.tuples(some, st.lists(st.one_of(values, st.binary(max_size=6)), max_size=2)).map(
        lambda parts: [*parts[0], *parts[1]]
    )


def check(spark: SparkSession, folder: Path, values: list[bytes], registry: tuple[str, str] | None = None) -> None:
    known = None if registry is None else (registry[0], SchemaRegistry(RegistryEndpoint(registry[1])))
    draft = format_of(values, known)
    made = outcome(draft, [SampledMessage(str(offset), value) for offset, value in enumerate(values)])
    path = folder / "orders.yaml"
    path.write_text(file_of("orders", "orders", "kafka_default", draft, made, date(2026, 11, 27)))
    stream = load(path).stream
    connections = {} if registry is None else {registry[0]: Connection(registry[0], registry[1])}
    rows = rows_of(messages_of(spark, [*values]), stream, connections=connections.__getitem__)
    found = {
        row[OFFSET]: row[REASON] for row in rows.frame.where(f"{REASON} IS NOT NULL").select(OFFSET, REASON).collect()
    }
    rows.close()
    foretold = {int(message.at): why for message, why in made.dead}
    assert found.keys() == foretold.keys(), (found, foretold, path.read_text())


_FEW = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[*HealthCheck],
)


@pytest.mark.covers("N70")
@_FEW
@given(values=st.one_of(topics(_OBJECTS), topics(_LINES)))
@example(values=[b'{"id": 9007199254740993, "@t": 1}', b'{"id": 0.5}'] * 25 + [b'{"id": "x"}'])
@example(values=[b'1,"a\nb",0.50', b"2,c,10.25"] * 25 + [b'3,"d', b"x,e,1", b"4,f"])
@example(values=[b'{"id": [1.5, 2], "ID": 5}'] * 60 + [b'{"id": [1e400]}', b"\xff", b'{"id": 1, "id": 2}'])
def test_the_same_messages_are_rows(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, values: list[bytes]
) -> None:
    check(spark, tmp_path_factory.mktemp("draft"), values)


_AVRO: list[tuple[Any, Any]] = [
    ("long", 5),
    ("double", 0.1),
    ("string", "é"),
    ("bytes", b"\xff"),
    ({"type": "fixed", "name": "Uid", "size": 16, "logicalType": "uuid"}, bytes(16)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 127}, b"\1"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x01\xf4"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x7f\xff\xff"),
    ({"type": "long", "logicalType": "timestamp-millis"}, 2**62),
    ({"type": "array", "items": ["null", "string"]}, ["a", None]),
    ({"type": "map", "values": {"type": "array", "items": "int"}}, {"k": [1]}),
    ({"type": "record", "name": "Of", "fields": [{"name": "x-y", "type": "int"}]}, {"x-y": 1}),
    ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "B"),
    (["null", "long", "string"], "x"),
    ({"type": "long", "logicalType": "time-micros"}, 1),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 1),
]


def _plain(type_: Any) -> Any:
    """A type without its logical types, for a writer that would look at them."""
    if isinstance(type_, dict):
        return {name: _plain(one) for name, one in type_.items() if name not in ("logicalType", "precision", "scale")}
    return [*map(_plain, type_)] if isinstance(type_, list) else type_


@pytest.mark.covers("N70")
@_FEW
@given(
    parts=st.lists(st.sampled_from(range(len(_AVRO))), min_size=1, max_size=5, unique=True),
    cut=st.lists(st.integers(0, 20), max_size=2),
)
@example(parts=[*range(len(_AVRO))], cut=[3])
def test_the_same_records_of_avro_are_rows(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, parts: list[int], cut: list[int]
) -> None:
    names = [f"f{number}" if number else "_topic" for number, _ in enumerate(parts)]
    fields = [{"name": name, "type": _AVRO[part][0]} for name, part in zip(names, parts, strict=True)]
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *fields]}
    row = {"id": 1, **{name: _AVRO[part][1] for name, part in zip(names, parts, strict=True)}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_plain(schema)), row)
    value = b"\0\0\0\0\1" + out.getvalue()
    values = [value] * 9 + [value[:-one] for one in cut if one]
    with serving({1: {"schema": json.dumps(schema)}}) as served:
        check(spark, tmp_path_factory.mktemp("draft"), values, ("ours", served.url))
