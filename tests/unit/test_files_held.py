"""What small files hold, counted without Spark: as the hashes say, and only while they are small."""

from __future__ import annotations

from functools import reduce
from operator import xor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import Unreachable
from tidemark.offsets.hashing import coordinate_hash, row_hash, unsigned
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Acknowledged, Count
from tidemark.sinks.parquet import files
from tidemark.sinks.parquet.files import held

ONE, OTHER = TopicPartition("logs", 0), TopicPartition("logs", 3, 2)
ROWS = [(ONE, 5, 0, 17), (ONE, 5, 1, -1), (ONE, 6, 0, 2**62), (OTHER, 2**63 - 2, 0, -(2**63))]
SCHEMA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_incarnation", pa.int32()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_index", pa.int32()),
        ("_digest", pa.int64()),
        ("host", pa.string()),
    ]
)


def write(folder: Path, name: str, rows: list[tuple[TopicPartition, int, int, int]]) -> None:
    values = [
        (at.topic, at.incarnation, at.partition, offset, index, digest, "a") for at, offset, index, digest in rows
    ]
    columns = zip(*values, strict=True) if values else [[]] * len(SCHEMA)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)]
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), folder / name)


def test_rows_of_all_files_are_counted_by_partition(tmp_path: Path) -> None:
    # As folders by a field are, beside a file that Spark leaves out too.
    write(tmp_path / "by_host=a", "part-0.parquet", ROWS[:2])
    write(tmp_path / "by_host=b", "part-1.parquet", ROWS[2:])
    (tmp_path / "_SUCCESS").touch()
    five, six, last = coordinate_hash(ONE, 5), coordinate_hash(ONE, 6), coordinate_hash(OTHER, 2**63 - 2)
    rows = row_hash(five, 0) ^ row_hash(five, 1) ^ row_hash(six, 0)
    content = 17 ^ (2**64 - 1) ^ 2**62
    assert held(1 << 20, tmp_path.as_uri()) == {
        ONE: Acknowledged(Count.of(2, five ^ six), Count.of(3, rows), f"{content:016x}"),
        OTHER: Acknowledged(Count.of(1, last), Count.of(1, row_hash(last, 0)), f"{2**63:016x}"),
    }


PLACES = st.builds(TopicPartition, st.sampled_from(["logs", "a", "ü"]), st.integers(0, 2), st.integers(0, 2))
LONGS = st.integers(-(2**63), 2**63 - 1)
ANY_ROWS = st.lists(st.tuples(PLACES, st.integers(0, 2**63 - 1), st.integers(0, 3), LONGS), max_size=30)


@settings(max_examples=60)
@given(st.lists(ANY_ROWS, min_size=1, max_size=3))
def test_any_rows_in_any_order_are_counted_as_one_by_one(
    files: list[list[tuple[TopicPartition, int, int, int]]],
) -> None:
    with TemporaryDirectory() as folder:
        for number, rows in enumerate(files):
            write(Path(folder), f"part-{number}.parquet", rows)
        found = held(1 << 20, Path(folder).as_uri())
    every = [row for rows in files for row in rows]
    expected = {}
    for at in {row[0] for row in every}:
        here = [
            (coordinate_hash(at, offset), index, unsigned(digest)) for one, offset, index, digest in every if one == at
        ]
        firsts = [message for message, index, _ in here if index == 0]
        hashes = [row_hash(message, index) for message, index, _ in here]
        expected[at] = Acknowledged(
            Count.of(len(firsts), reduce(xor, firsts, 0)),
            Count.of(len(here), reduce(xor, hashes, 0)),
            f"{reduce(xor, (digest for *_, digest in here), 0):016x}",
        )
    assert found == expected


def test_no_rows_are_nothing(tmp_path: Path) -> None:
    write(tmp_path, "part-0.parquet", [])
    assert held(1 << 20, tmp_path.as_uri()) == {}


def test_larger_files_are_left_to_spark(tmp_path: Path) -> None:
    write(tmp_path / "a", "part-0.parquet", ROWS)
    write(tmp_path / "b", "part-0.parquet", ROWS)
    paths = [(tmp_path / name).as_uri() for name in "ab"]
    size = sum(one.stat().st_size for one in tmp_path.rglob("*.parquet"))
    assert held(size - 1, *paths) is None
    assert held(size, *paths) is not None


def test_files_that_are_removed_while_they_are_counted_are_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later attempt sweeps the folder of one that was overtaken, between its listing and its count."""
    write(tmp_path, "part-0.parquet", ROWS[:2])
    whole = ds.dataset

    def listed(*more: Any, **others: Any) -> Any:
        found = whole(*more, **others)
        (tmp_path / "part-0.parquet").unlink()
        return found

    monkeypatch.setattr(files, "ds", SimpleNamespace(**{**vars(ds), "dataset": listed}))
    with pytest.raises(Unreachable, match=r"part-0.parquet was removed while it was counted"):
        held(1 << 20, tmp_path.as_uri())
