"""Dead letters in files, in folders and in a Delta table: what counts is read, of any attempt's files.

An erasure leaves nothing to read: it writes the files again without what is erased.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from tests.support.compactions import committed
from tests.support.letter_files import add_file, prepare_table, write_file
from tests.support.memory import MemoryStore
from tidemark.clients.environment import from_environment
from tidemark.errors import LedgerContradiction, Unreachable
from tidemark.ledger.ledger import Committed, Ledger
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.contract import Erasing
from tidemark.sinks.dead_letters.delta.letters import LettersInDelta
from tidemark.sinks.dead_letters.parquet import letters as letters_module
from tidemark.sinks.dead_letters.parquet.letters import LettersInFiles, LettersInParquet
from tidemark.sinks.delta.publishing import take_out
from tidemark.sinks.kinds import admin_of
from tidemark.sinks.parquet import files
from tidemark.sinks.parquet import folders as folders_module
from tidemark.sinks.stored_rows import Mark

AT, OTHER = TopicPartition("logs", 0), TopicPartition("logs", 0, 2)


class InFolders:
    """Dead letters in folders of attempts."""

    owned = {"stream": "orders", "ledger": "ledger 1", "sink": "dead_letters"}  # noqa: RUF012
    reader: type[LettersInFiles] = LettersInParquet

    def __init__(self, base: str) -> None:
        self.base = base

    def prepare(self) -> None:
        files.own(self.base, "orders", "ledger 1", "dead_letters")

    def write(self, generation: int, *offsets: int, at: TopicPartition = AT, part: int = 0, **fields: Any) -> Path:
        return write_file(self.base, generation, *offsets, at=at, part=part, **fields)

    def letters(self, ledger: Ledger | None = None) -> LettersInFiles:
        return self.reader(self.base, cast("Ledger", ledger))


class InTable(InFolders):
    """Dead letters in a Delta table."""

    owned = {"stream": "orders", "ledger": "ledger 1"}  # noqa: RUF012
    reader = LettersInDelta

    def prepare(self) -> None:
        prepare_table(self.base, "orders", "ledger 1")

    def write(self, generation: int, *offsets: int, at: TopicPartition = AT, part: int = 0, **fields: Any) -> Path:
        return add_file(self.base, generation, *offsets, at=at, part=part, **fields)


@pytest.fixture
def folders(tmp_path: Path) -> InFolders:
    made = InFolders(f"file://{tmp_path}")
    made.prepare()
    return made


@pytest.fixture
def table(tmp_path: Path) -> InTable:
    made = InTable(f"file://{tmp_path}/table")
    made.prepare()
    return made


@pytest.fixture(params=["folders", "table"])
def store(request: pytest.FixtureRequest) -> InFolders:
    return cast("InFolders", request.getfixturevalue(request.param))


@pytest.fixture
def letters(store: InFolders) -> LettersInFiles:
    return store.letters(Ledger(MemoryStore(), "orders"))


def counting(letters: LettersInFiles, *held: tuple[int, int, int]) -> list[tuple[int, int | None]]:
    """Each place below offset 100 with the generation of the row that counts there."""
    authority = Authority([(generation, RangeSet([OffsetRange(AT, *ends)])) for generation, *ends in held])  # type: ignore[arg-type]
    found = letters.rows(authority, OffsetRange(AT, 0, 100))
    return [(place.offset, row.mark.generation if row is not None else None) for place, row in found]


@pytest.mark.covers("O11")
def test_only_the_generation_that_counts_is_read(
    store: InFolders, letters: LettersInFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counting(letters, (1, 0, 100)) == []
    # Without the ledger of this process, which cannot be pickled.
    in_a_worker = store.letters()
    # Not in order, and in two files.
    store.write(3, 7, 5)
    store.write(3, 6, 12, part=1)
    store.write(9, 6, 8)
    store.write(4, 5, 90)
    store.write(5, 5, at=OTHER)
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
def test_a_reader_meets_what_was_committed_after_it_began(store: InFolders, letters: LettersInFiles) -> None:
    store.write(3, 5)
    assert counting(letters, (3, 0, 100)) == [(5, 3)]
    store.write(4, 6)
    assert counting(letters, (3, 0, 6), (4, 6, 100)) == [(5, 3), (6, 4)]


@pytest.mark.covers("O11")
def test_any_bytes_come_back_as_they_were(store: InFolders, letters: LettersInFiles) -> None:
    store.write(3, 5, key=b"", value=b"\x00\xfe", reason="\x00 ü", outcome="invalid")
    (row,) = letters.rows_at(Coordinate(AT, 5), 3)
    assert row.fields == {
        "redrives": b"0", "key": b"", "value": b"\x00\xfe", "reason": "\x00 ü".encode(), "outcome": b"invalid",
    }  # fmt: skip
    (row,) = letters.only(["reason", "error"]).rows_at(Coordinate(AT, 5), 3)
    assert row.fields == {"reason": "\x00 ü".encode()}


@pytest.mark.covers("O11", "N27")
@pytest.mark.parametrize("rows_at_a_time", [1, 2, 20_000])
def test_an_erasure_writes_files_again_without_what_is_erased(
    folders: InFolders, monkeypatch: pytest.MonkeyPatch, rows_at_a_time: int
) -> None:
    monkeypatch.setattr(files, "_AT_A_TIME", rows_at_a_time)
    # A file is never in memory as a whole.
    monkeypatch.delattr("pyarrow.parquet.read_table")
    letters = folders.letters()
    whole, some, other = (
        folders.write(3, 5, 6),
        folders.write(3, 7, 8, 9, part=1),
        folders.write(3, 5, at=OTHER, part=2),
    )
    before = other.stat().st_mtime_ns
    # A reader knows the files by now.
    assert len(counting(letters, (3, 0, 100))) == 5
    erased = RangeSet([OffsetRange(AT, 5, 8)])
    for _ in range(2):
        files.rewrite_without(f"file://{some.parent}", erased)
        assert counting(letters, (3, 0, 100)) == [(8, 3), (9, 3)]
        assert counting(folders.letters(), (3, 0, 100)) == [(8, 3), (9, 3)]
    assert not whole.exists()
    assert pq.ParquetFile(some).read().column("_offset").to_pylist() == [8, 9]
    # Else Hadoop would take the new file for a damaged one.
    assert sorted(one.name for one in some.parent.iterdir()) == [f".{other.name}.crc", some.name, other.name]
    assert other.stat().st_mtime_ns == before


@pytest.mark.covers("O11")
def test_a_damaged_file_is_named(store: InFolders, letters: LettersInFiles) -> None:
    path = store.write(3, 5)
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(LedgerContradiction, match=path.name):
        counting(letters, (3, 0, 100))


@pytest.mark.covers("O11")
def test_the_owner_is_the_stream_that_made_it(store: InFolders, letters: LettersInFiles) -> None:
    assert letters.owner() == store.owned
    assert store.reader(f"{store.base}/elsewhere", Ledger(MemoryStore(), "orders")).owner() == {}


@pytest.mark.covers("O11")
def test_readers_list_the_files_once_for_each_state_of_the_ledger(
    folders: InFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store takes as long for each question as for a list of all files."""
    for generation in (3, 4, 5):
        folders.write(generation, generation, part=1)
        folders.write(generation, generation + 10, part=2)
    questions: list[Any] = []
    real = fs.LocalFileSystem()

    class Counted:
        def get_file_info(self, asked: Any) -> Any:
            questions.append(asked)
            return real.get_file_info(asked)

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(folders_module, "_located", lambda folder: (Counted(), folder.removeprefix("file://")))
    letters = folders.letters()
    wanted = OffsetRange(AT, 0, 100)
    authority = Authority([(one, RangeSet([OffsetRange(AT, one, one + 1)])) for one in (3, 4, 5)])
    monkeypatch.setattr(LettersInFiles, "_read", lambda *_: iter(()))
    for _ in range(2):
        list(letters.rows(authority, wanted))
    # Whether it has an owner, and what there is.
    assert len(questions) == 2, questions


@pytest.mark.covers("O11", "N27")
def test_a_delta_table_loses_what_does_not_count_and_what_is_erased(table: InTable) -> None:
    """What is left in the files that are written again is read as it was."""
    letters = table.letters()
    table.write(3, 5, 6, 7, value=b"\x00\xfe", reason="ü")
    table.write(4, 6, 8)
    assert counting(letters, (3, 0, 7), (4, 8, 100)) == [(5, 3), (6, 3), (8, 4)]
    window = committed(table.base, 9, range(6, 9), lane="replay-1", generation=9)
    admin = admin_of("delta_dead_letters")
    take_out(table.base, window.record, window.covers)
    # By an authority of before the commit: its readers ask again.
    assert counting(table.letters(), (3, 0, 8), (4, 8, 100)) == [(5, 3)]
    assert counting(letters, (3, 0, 8), (4, 8, 100)) == [(5, 3)]
    (row,) = table.letters().rows_at(Coordinate(AT, 5), 3)
    assert (row.mark.lane, row.mark.seq) == ("ingest", 7)
    assert {name: row.fields[name] for name in ("value", "reason")} == {"value": b"\x00\xfe", "reason": "ü".encode()}
    erasing = Erasing(window.record, RangeSet([OffsetRange(AT, 5, 6)]), Ledger(MemoryStore(), "orders").standing())
    admin.erase(from_environment, {"base": table.base}, erasing)
    assert counting(table.letters(), (3, 0, 8)) == []


@pytest.mark.covers("O11")
def test_a_file_that_a_table_names_is_missed(table: InTable) -> None:
    """Of folders, a file may be gone with all that was in it, by an erasure. A table would say so."""
    letters = table.letters()
    path = table.write(3, 5)
    assert counting(letters, (3, 0, 100)) == [(5, 3)]
    path.unlink()
    for one in (letters, table.letters()):
        with pytest.raises(LedgerContradiction, match=f"{path.name} is gone"):
            counting(one, (3, 0, 100))


@pytest.mark.covers("O11")
def test_a_place_that_is_gone_is_no_empty_one(store: InFolders) -> None:
    """A disk that is not mounted looks like a folder that nobody has prepared."""
    base = f"{store.base}-elsewhere"

    class Written(Ledger):
        def committed(self) -> list[Committed]:
            return [committed(base, 1, range(5, 6))]

    assert counting(store.reader(base, Ledger(MemoryStore(), "orders")), (3, 0, 100)) == []
    with pytest.raises(Unreachable, match="elsewhere is not there, and windows have dead letters in it"):
        counting(store.reader(base, Written(MemoryStore(), "orders")), (3, 0, 100))
