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
        if blocks:
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
