"""Dead letters in Parquet files: what counts is read, of any attempt's files; an erasure writes files again without theirs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from tests.support.letter_files import write_file
from tests.support.memory import MemoryStore
from tidemark.errors import LedgerContradiction
from tidemark.ledger.book import Book
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.dead_letters.parquet import letters as letters_module
from tidemark.sinks.dead_letters.parquet.letters import LettersInParquet
from tidemark.sinks.parquet import files
from tidemark.sinks.stored import Mark

AT, OTHER = TopicPartition("logs", 0), TopicPartition("logs", 0, 2)


@pytest.fixture
def base(tmp_path: Path) -> str:
    files.own(f"file://{tmp_path}", "orders", "ledger 1", "dead_letters")
    return f"file://{tmp_path}"


@pytest.fixture
def letters(base: str) -> LettersInParquet:
    return LettersInParquet(base, Book(MemoryStore(), "orders"))


def write(base: str, generation: int, *offsets: int, at: TopicPartition = AT, part: int = 0, **fields: Any) -> Path:
    return write_file(base, generation, *offsets, at=at, part=part, **fields)


def counting(letters: LettersInParquet, *held: tuple[int, int, int]) -> list[tuple[int, int | None]]:
    """Each place below offset 100 with the generation of the row that counts there."""
    authority = Authority([(generation, RangeSet([OffsetRange(AT, *ends)])) for generation, *ends in held])  # type: ignore[arg-type]
    found = letters.rows(authority, OffsetRange(AT, 0, 100))
    return [(place.offset, row.mark.generation if row is not None else None) for place, row in found]


@pytest.mark.covers("O11")
def test_only_the_generation_that_counts_is_read(
    base: str, letters: LettersInParquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counting(letters, (1, 0, 100)) == []
    # Without the ledger of this process, which cannot be pickled.
    in_a_worker = LettersInParquet(base, cast("Any", None))
    # Not in order, and in two files.
    write(base, 3, 7, 5)
    write(base, 3, 6, 12, part=1)
    write(base, 9, 6, 8)
    write(base, 4, 5, 90)
    write(base, 5, 5, at=OTHER)
    # Each attempt's rows beside those of others: 6 is of the newer one, 8 and 12 of no one who counts there.
    wanted = [(5, 3), (6, 9), (7, 3)]
    for at_once in (1, 16 << 20):
        monkeypatch.setattr(letters_module, "_AT_ONCE_BYTES", at_once)
        assert counting(letters, (3, 0, 8), (9, 6, 7)) == wanted
        assert counting(letters.only(["redrives"]), (3, 0, 8), (9, 6, 7)) == wanted
        assert counting(pickle.loads(pickle.dumps(in_a_worker)), (3, 0, 8), (9, 6, 7)) == wanted
    assert [row.mark for row in letters.rows_at(Coordinate(AT, 6), 9)] == [Mark(9, (1 << 64) - 9, "ingest", 7)]
    assert letters.rows_at(Coordinate(AT, 6), 4) == []
    assert len(letters.rows_at(Coordinate(OTHER, 5), 5)) == 1


@pytest.mark.covers("O11")
def test_a_reader_meets_what_was_committed_after_it_began(base: str, letters: LettersInParquet) -> None:
    write(base, 3, 5)
    assert counting(letters, (3, 0, 100)) == [(5, 3)]
    write(base, 4, 6)
    assert counting(letters, (3, 0, 6), (4, 6, 100)) == [(5, 3), (6, 4)]


@pytest.mark.covers("O11")
def test_any_bytes_come_back_as_they_were(base: str, letters: LettersInParquet) -> None:
    write(base, 3, 5, key=b"", value=b"\x00\xfe", reason="\x00 ü", outcome="invalid")
    (row,) = letters.rows_at(Coordinate(AT, 5), 3)
    assert row.fields == {
        "redrives": b"0", "key": b"", "value": b"\x00\xfe", "reason": "\x00 ü".encode(), "outcome": b"invalid",
    }  # fmt: skip
    (row,) = letters.only(["reason", "error"]).rows_at(Coordinate(AT, 5), 3)
    assert row.fields == {"reason": "\x00 ü".encode()}


@pytest.mark.covers("O11", "N27")
def test_an_erasure_writes_files_again_without_what_is_erased(base: str, letters: LettersInParquet) -> None:
    whole, some, other = write(base, 3, 5, 6), write(base, 3, 7, 8, 9, part=1), write(base, 3, 5, at=OTHER, part=2)
    before = other.stat().st_mtime_ns
    # A reader knows the files by now.
    assert len(counting(letters, (3, 0, 100))) == 5
    erased = RangeSet([OffsetRange(AT, 5, 8)])
    for _ in range(2):
        files.rewrite_without(f"file://{some.parent}", erased)
        assert counting(letters, (3, 0, 100)) == [(8, 3), (9, 3)]
        assert counting(LettersInParquet(base, cast("Any", None)), (3, 0, 100)) == [(8, 3), (9, 3)]
    assert not whole.exists()
    assert pq.read_table(some, partitioning=None).column("_offset").to_pylist() == [8, 9]
    # Else Hadoop would take the new file for a damaged one.
    assert sorted(one.name for one in some.parent.iterdir()) == [f".{other.name}.crc", some.name, other.name]
    assert other.stat().st_mtime_ns == before


@pytest.mark.covers("O11")
def test_a_damaged_file_is_named(base: str, letters: LettersInParquet) -> None:
    path = write(base, 3, 5)
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(LedgerContradiction, match=path.name):
        counting(letters, (3, 0, 100))


@pytest.mark.covers("O11")
def test_the_owner_is_the_stream_that_made_it(base: str, letters: LettersInParquet, tmp_path: Path) -> None:
    assert letters.owner() == {"stream": "orders", "ledger": "ledger 1", "sink": "dead_letters"}
    assert json.loads((tmp_path / "_tidemark_owner.json").read_text()) == letters.owner()
    assert LettersInParquet(f"{base}/elsewhere", Book(MemoryStore(), "orders")).owner() == {}
