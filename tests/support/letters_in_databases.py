"""What dead letters in every database promise: tests, for a module with a fixture `letters`."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from tidemark.errors import LedgerContradiction, WrongUse
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.sql import letters as letters_module
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL
from tidemark.sinks.stored_rows import Mark

AT, OTHER = TopicPartition("logs", 0), TopicPartition("logs", 0, 2)


def of_stream(letters: LettersInSQL, stream: str) -> LettersInSQL:
    """Those of another stream in the same table."""
    return LettersInSQL(letters.where, letters.table, stream)


def write(letters: LettersInSQL, generation: int, *offsets: int, at: TopicPartition = AT, **fields: bytes) -> None:
    contents = [{"redrives": b"0", **fields}.get(name) for name in FIELDS]
    mark = Mark(generation, (1 << 64) - generation, "ingest", 7)
    letters.write([letters.row(at, offset, mark, contents) for offset in offsets])


def counting(letters: LettersInSQL, *held: tuple[int, int, int]) -> list[tuple[int, int | None]]:
    """Each place with a row below offset 100, with the generation of the row that counts there."""
    authority = Authority([(generation, RangeSet([OffsetRange(AT, *ends)])) for generation, *ends in held])  # type: ignore[arg-type]
    found = letters.rows(authority, OffsetRange(AT, 0, 100))
    return [(place.offset, row.mark.generation if row is not None else None) for place, row in found]


@pytest.mark.covers("O11")
def test_only_the_generation_that_counts_is_read(letters: LettersInSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counting(letters, (1, 0, 100)) == []
    assert letters.owner() == {}
    letters.prepare("orders", "ledger 1")
    write(letters, 3, 5, 6, 7)
    write(letters, 9, 6, 8)
    write(letters, 4, 5, 90)
    write(letters, 3, 5, at=OTHER)
    other = of_stream(letters, "others")
    other.prepare("others", "ledger 2")
    write(other, 3, 5)
    wanted = [(5, 3), (6, 9), (7, 3), (8, None), (90, None)]
    for size in (1, 2, 3, 5_000):
        # However the versions of one offset are divided among questions.
        monkeypatch.setattr(letters_module, "_PAGE_ROWS", size)
        monkeypatch.setattr(letters_module, "_PAGE_MESSAGES", size)
        assert counting(letters, (3, 0, 8), (9, 6, 7)) == wanted
        assert counting(letters.only(["redrives"]), (3, 0, 8), (9, 6, 7)) == wanted
    assert [row.mark for row in letters.rows_at(Coordinate(AT, 6), 9)] == [Mark(9, (1 << 64) - 9, "ingest", 7)]
    assert letters.rows_at(Coordinate(AT, 6), 4) == []


@pytest.mark.covers("O11")
def test_any_bytes_come_back_as_they_were_also_in_a_worker(letters: LettersInSQL) -> None:
    letters.prepare("orders", "ledger 1")
    said: dict[str, Any] = {
        "reason": b"\x00 \xff",
        "key": b"",
        "value": b"\x00\xfe",
        "detail": b"\xc3",
        "outcome": b"invalid",
    }
    write(letters, 3, 5, **said)
    write(letters, 3, 5, **said)
    (row,) = pickle.loads(pickle.dumps(letters)).rows_at(Coordinate(AT, 5), 3)
    assert row.fields == {**said, "redrives": b"0"}
    (row,) = letters.only(["reason", "error"]).rows_at(Coordinate(AT, 5), 3)
    assert row.fields == {"reason": said["reason"]}


@pytest.mark.covers("O11")
def test_a_sweep_takes_older_attempts_at_its_offsets_alone(letters: LettersInSQL) -> None:
    letters.prepare("orders", "ledger 1")
    for generation in (3, 5, 8):
        write(letters, generation, *range(10))
    write(letters, 3, 1, at=OTHER)
    swept = RangeSet([OffsetRange(AT, 1, 3), OffsetRange(AT, 7, 8)])
    for _ in range(2):
        letters.sweep(swept, 5)
        left = {offset for offset, generation in counting(letters, (3, 0, 100)) if generation is not None}
        assert left == set(range(10)) - {1, 2, 7}
        # Its own, and those of newer attempts.
        assert counting(letters, (5, 0, 100)) == [(offset, 5) for offset in range(10)]
        assert counting(letters, (8, 0, 100)) == [(offset, 8) for offset in range(10)]
    assert len(letters.rows_at(Coordinate(OTHER, 1), 3)) == 1


@pytest.mark.covers("O11")
def test_a_table_keeps_the_ledger_of_each_stream(letters: LettersInSQL) -> None:
    letters.prepare("orders", "ledger 1")
    letters.prepare("orders", "ledger 1")
    assert dict(letters.owner()) == {"stream": "orders", "ledger": "ledger 1"}
    with pytest.raises(LedgerContradiction, match="its ledger now is ledger 2"):
        letters.prepare("orders", "ledger 2")


@pytest.mark.covers("O11")
def test_a_table_of_another_program_is_refused_at_once(letters: LettersInSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the database has understood and refuses is no trouble on the way, and waiting mends nothing."""
    letters.prepare("orders", "ledger 1")
    letters.asked(lambda asking: asking.exec_driver_sql(f"DROP VIEW {letters.table}_text"))
    letters.asked(lambda asking: asking.exec_driver_sql(f"DROP TABLE {letters.table}"))
    letters.asked(lambda asking: asking.exec_driver_sql(f"CREATE TABLE {letters.table} (id INTEGER)"))
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    calls: list[Callable[[], object]] = [
        lambda: counting(letters, (3, 0, 100)),
        lambda: letters.prepare("orders", "ledger 1"),
        lambda: letters.sweep(RangeSet([OffsetRange(AT, 1, 3)]), 5),
        lambda: letters.asked(lambda asking: asking.exec_driver_sql("SELEC 1")),
    ]
    for call in calls:
        with pytest.raises(WrongUse, match=rf"refuses what it is asked: .*its own tables in {letters.table}"):
            call()
    assert waits == []


@pytest.mark.covers("O11")
def test_streams_that_make_the_same_table_at_once_all_go_on(letters: LettersInSQL) -> None:
    """Between the look and the creation, another stream may have made it: then the database refuses a good statement."""
    names = [f"stream {number}" for number in range(6)]
    together = Barrier(len(names))

    def prepare(name: str) -> str:
        mine = of_stream(letters, name)
        together.wait()
        mine.prepare(name, f"ledger of {name}")
        return str(mine.owner()["ledger"])

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(prepare, names)) == [f"ledger of {name}" for name in names]


@pytest.mark.covers("O12")
def test_dead_letters_are_read_by_plain_sql(letters: LettersInSQL) -> None:
    """Those that are published, as text; whatever bytes they hold."""
    letters.prepare("orders", "ledger 1")
    write(letters, 3, 5, reason=b"old", value=b"7", outcome=b"failed")
    write(letters, 9, 6, reason=b"it's new", key=b"a\x00\xff\xc3", value=b"{}", timestamp=b"2026-11-27T00:00:00.000Z")
    of_attempts = f"SELECT * FROM {letters.table}_attempts"
    letters.asked(lambda asking: asking.exec_driver_sql(f"INSERT INTO {letters.table} {of_attempts}"))
    write(letters, 10, 5, reason=b"of an attempt")
    columns = "d.stream, d.topic, d.partition, d.message_offset, d.generation, d.lane, d.seq, d.reason, d.message_value"
    question = f"SELECT {columns}, d.message_time FROM {letters.table}_text d ORDER BY d.message_offset"
    found = letters.asked(lambda asking: asking.exec_driver_sql(question).all())
    assert [tuple(row) for row in found] == [
        ("orders", "logs", 0, 5, 3, "ingest", 7, "old", "7", None),
        ("orders", "logs", 0, 6, 9, "ingest", 7, "it's new", "{}", "2026-11-27T00:00:00.000Z"),
    ]
    # A reader in Python would not take this key from SQLite as text.
    keys = f"SELECT max(length(d.message_key)) FROM {letters.table}_text d"
    assert letters.asked(lambda asking: asking.exec_driver_sql(keys).scalar_one()) > 0
