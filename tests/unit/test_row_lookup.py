"""The rows of one message, found in files of Parquet by their coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.compactions import AT, committed
from tidemark.errors import LedgerContradiction
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.sinks.parquet import row_lookup
from tidemark.sinks.parquet.row_lookup import MAX_FILES, MAX_ROWS, rows_of_message

WHEN = datetime(2500, 1, 1, 0, 0, 0, 120_000, UTC)


def table(offsets: list[int], partition: int = 0, more: Mapping[str, Any] | None = None) -> pa.Table:
    """A row for each offset; an offset that comes again is the next row of its message."""
    index = [offsets[:at].count(one) for at, one in enumerate(offsets)]
    columns: dict[str, object] = {
        "_topic": ["logs"] * len(offsets),
        "_incarnation": pa.array([1] * len(offsets), pa.int32()),
        "_partition": pa.array([partition] * len(offsets), pa.int32()),
        "_offset": offsets,
        "_index": pa.array(index, pa.int32()),
        "_tombstone": [False] * len(offsets),
        "_digest": [-1] * len(offsets),
        "id": [f"{partition}-{one}" for one in offsets],
        "at": pa.array([WHEN] * len(offsets), pa.timestamp("us", "UTC")),
        "raw": pa.array([b"\xff"] * len(offsets), pa.binary()),
        "none": pa.array([None] * len(offsets), pa.string()),
    }
    return pa.table({**columns, **(more or {})})


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return committed(f"file://{tmp_path}", 1, range(100), generation=7).record


def at(offset: int, partition: int = 0) -> Coordinate:
    return Coordinate(AT if partition == 0 else type(AT)("logs", partition), offset)


@pytest.mark.covers("U14")
def test_the_rows_of_a_message_and_no_others(tmp_path: Path, record: Record) -> None:
    folder = tmp_path / "window"
    (folder / "by_host=a").mkdir(parents=True)
    pq.write_table(table(list(range(60))), folder / "part-0.parquet", row_group_size=10)
    pq.write_table(table([61, 60, 60, 61]), folder / "by_host=a" / "part-1.parquet")
    pq.write_table(table([5], partition=1), folder / "part-2.parquet")

    def found(offset: int, partition: int = 0) -> list[tuple[int, dict[str, bytes]]]:
        rows = rows_of_message([f"file://{folder}"], at(offset, partition), record, compacted=False)
        assert not isinstance(rows, str)
        assert {(row.place.partition, row.place.offset, row.mark.generation) for row in rows} <= {
            (at(offset, partition).partition, offset, 7)
        }
        return [(row.place.index, dict(row.fields)) for row in rows]

    # As HBase has it: times as texts, bytes as they are, and no null.
    fields = {"at": b"2500-01-01 00:00:00.12", "raw": b"\xff"}
    assert found(5) == [(0, {"id": b"0-5", **fields})]
    assert found(5, partition=1) == [(0, {"id": b"1-5", **fields})]
    assert [index for index, _ in found(60)] == [0, 1]
    assert found(62) == []
    views = table([70])
    pq.write_table(views.set_column(0, "_topic", pa.array(["logs"], pa.string_view())), tmp_path / "rewritten.parquet")
    rewritten = rows_of_message([f"file://{tmp_path}/rewritten.parquet"], at(70), record, compacted=False)
    assert [row.fields["id"] for row in rewritten] == [b"0-70"]  # type: ignore[union-attr]
    # Only the files that are named, as of a Delta table.
    only = rows_of_message([f"file://{folder}/part-2.parquet"], at(5), record, compacted=False)
    assert only == []


@pytest.mark.covers("U14")
def test_in_a_compacted_folder_only_rows_of_the_window_count(tmp_path: Path, record: Record) -> None:
    generations: dict[str, list[Any]] = {"_generation": [3, 7], "_lane": ["ingest", "replay-1"], "_seq": [1, 1]}
    pq.write_table(table([5, 5], more=generations), tmp_path / "part-0.parquet")
    rows = rows_of_message([f"file://{tmp_path}"], at(5), record, compacted=True)
    assert [row.place.index for row in rows] == [1]  # type: ignore[union-attr]


@pytest.mark.covers("U14")
def test_what_is_not_searched_is_said(tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = f"file://{tmp_path}/gone"
    with pytest.raises(LedgerContradiction, match="gone is gone, and the window ingest/1 has its results there"):
        rows_of_message([gone], at(5), record, compacted=False)
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(LedgerContradiction, match="cannot be read"):
        rows_of_message([f"file://{tmp_path}"], at(5), record, compacted=False)
    pq.write_table(table([5] * 50), tmp_path / "part-0.parquet")
    assert len(rows_of_message([f"file://{tmp_path}"], at(5), record, compacted=False)) == MAX_ROWS
    monkeypatch.setattr(row_lookup, "MAX_FILES", 0)
    said = rows_of_message([f"file://{tmp_path}"], at(5), record, compacted=False)
    assert said == "the window has 1 files there, and up to 0 are searched"
    assert MAX_FILES > 0
