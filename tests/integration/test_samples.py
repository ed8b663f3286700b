"""The samples of docs/samples.md: their stream files give the rows that the page shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import SparkSession

from services.site import REPOSITORY
from tests.support.rows import messages_of
from tidemark.offsets.tallies import Outcome as Became
from tidemark.spark.columns import FAILURE, INDEX, OFFSET, OUTCOME, REASON
from tidemark.spark.rows.pipeline import check_rows, rows_of
from tidemark.streams.loading import load

PAGE = REPOSITORY / "docs" / "samples.md"
_BLOCK = re.compile(r"^```(text|yaml|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BYTE = {r"\t": b"\t", r"\x01": b"\x01"}


def samples() -> Iterator[Any]:
    """Of each section with a stream file: its messages, the file, and the rows."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        blocks = _BLOCK.findall(section)
        if any(kind == "json" for kind, _ in blocks):
            assert [kind for kind, _ in blocks] == ["text", "yaml", "json"]
            yield pytest.param(*(text for _, text in blocks), id=section.partition("\n")[0])


def message(line: str) -> bytes:
    return b"".join(_BYTE.get(part, part.encode()) for part in re.split(r"(\\t|\\x01)", line))


def shown(value: Any) -> Any:
    """A value of a row as the page writes it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.covers("N85")
@pytest.mark.parametrize(("messages", "file", "rows"), list(samples()))
def test_a_sample_gives_the_rows_that_its_page_shows(
    spark: SparkSession, tmp_path: Path, messages: str, file: str, rows: str
) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(file)
    stream = load(path).stream
    values = [message(line) for line in messages.splitlines()]
    check_rows(spark, stream)
    # The last is of no format: it is a dead letter, and costs the others nothing.
    made = rows_of(messages_of(spark, [*values, b"\xff nothing"]), stream)
    found = [row.asDict(recursive=True) for row in made.frame.orderBy(OFFSET, INDEX).collect()]
    made.close()
    assert [(row[OFFSET], row[REASON], row[FAILURE]) for row in found[:-1] if row[OUTCOME] != Became.STORED] == []
    assert found[-1][OUTCOME] == Became.INVALID
    names = list(stream.fields)
    assert [{name: shown(row[name]) for name in names} for row in found[:-1]] == [
        json.loads(line) for line in rows.splitlines()
    ]


def shop() -> descriptor_pb2.FileDescriptorSet:
    """What `protoc` writes for a message Order { int64 id; string customer; repeated Line lines }."""
    field = descriptor_pb2.FieldDescriptorProto
    order = descriptor_pb2.DescriptorProto(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="customer", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order.field.add(name="lines", number=3, type=field.TYPE_MESSAGE, type_name=".shop.Line", label=field.LABEL_REPEATED)
    line = descriptor_pb2.DescriptorProto(name="Line")
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    line.field.add(name="count", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", message_type=[order, line])
    file.syntax = "proto3"
    return descriptor_pb2.FileDescriptorSet(file=[file])


@pytest.mark.covers("N85")
def test_protobuf_by_a_function(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = PAGE.read_text().partition("\n## Protobuf\n")[2]
    code, file = (re.search(rf"^```{kind}\n(.*?)^```$", section, re.M | re.S)[1] for kind in ("python", "yaml"))
    (tmp_path / "protobuf_orders.py").write_text(code)
    (tmp_path / "orders.desc").write_bytes(shop().SerializeToString())
    (tmp_path / "sample.yaml").write_text(file)
    # The driver looks for it too, before it starts anything.
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(tmp_path / "protobuf_orders.py"))
    spark.sparkContext.addFile(str(tmp_path / "orders.desc"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(shop().file[0])
    new = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    stream = load(tmp_path / "sample.yaml").stream
    check_rows(spark, stream)
    order = new(id=7, customer="Anne", lines=[{"sku": "a", "count": 2}]).SerializeToString()
    made = rows_of(messages_of(spark, [order, None, b"\xff\xff"]), stream)
    found = [row.asDict(recursive=True) for row in made.frame.orderBy(OFFSET, INDEX).collect()]
    made.close()
    assert {name: found[0][name] for name in stream.fields} == {
        "id": 7,
        "customer": "Anne",
        "lines": [{"sku": "a", "count": 2}],
    }
    assert [row[OUTCOME] for row in found] == [Became.STORED, Became.SKIPPED, Became.FAILED]
    assert "not a shop.Order" in str(found[2][REASON]) + str(found[2][FAILURE])
