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
from pyspark.sql import SparkSession

from services.site import REPOSITORY
from tests.support.protobuf_orders import Schema
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


@pytest.mark.full
@pytest.mark.covers("N85")
def test_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    proto, file = blocks("Protobuf", "proto", "yaml")
    schema = Schema(proto)
    (tmp_path / "orders.desc").write_bytes(schema.data)
    (tmp_path / "sample.yaml").write_text(file)
    stream = load(tmp_path / "sample.yaml").stream
    check_rows(spark, stream)
    order = schema.written(id="7", lines=[{"sku": "a", "count": 2}], placed="2026-11-21T07:10:00Z")
    made = rows_of(messages_of(spark, [order, b"\xff\xff"]), stream)
    found = [row.asDict(recursive=True) for row in made.frame.orderBy(OFFSET, INDEX).collect()]
    made.close()
    placed = datetime(2026, 11, 21, 7, 10)
    row = {"id": 7, "customer": None, "lines": [{"sku": "a", "count": 2}], "placed": placed}
    assert {name: found[0][name] for name in stream.fields} == row
    assert (found[1][OUTCOME], found[1][REASON]) == (Became.INVALID, "not a message shop.Order")


LAUGHS = b'<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><order><id>1</id><customer>&c;</customer></order>'
OUTSIDE = b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]><order><id>1</id><customer>&b;</customer></order>'


@pytest.mark.full
@pytest.mark.covers("N85")
def test_xml_by_a_function(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, file = blocks("XML", "python", "yaml")
    (tmp_path / "xml_orders.py").write_text(code)
    (tmp_path / "sample.yaml").write_text(file)
    # The driver looks for it too, before it starts anything.
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(tmp_path / "xml_orders.py"))
    stream = load(tmp_path / "sample.yaml").stream
    check_rows(spark, stream)
    deep = b"<order>" + 100_000 * b"<a>" + 100_000 * b"</a>" + b"<id>1</id></order>"
    values = [
        "<order><id>7</id><customer>Zoë</customer></order>".encode(),
        None,
        *(LAUGHS, OUTSIDE, b"<order>", b"\xff", b"<order/>", deep),
    ]
    made = rows_of(messages_of(spark, values), stream)
    found = [row.asDict(recursive=True) for row in made.frame.orderBy(OFFSET, INDEX).collect()]
    made.close()
    assert {name: found[0][name] for name in stream.fields} == {"id": 7, "customer": "Zoë"}
    outcomes = [row[OUTCOME] for row in found]
    assert outcomes[:-1] == [Became.STORED, Became.SKIPPED, *[Became.FAILED] * 5]
    assert "DTDForbidden" in str(found[2][FAILURE])
    assert "DTDForbidden" in str(found[3][FAILURE])


def blocks(section: str, *kinds: str) -> list[str]:
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = [re.search(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S) for kind in kinds]
    return [one[1] for one in found if one is not None]
