"""Dead letters in SQLite: what counts is read, of any attempt's rows; the rest is swept; any bytes come back as they were.

On real servers: tests/integration/test_dead_letters_in_databases.py.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from tests.support.erasures import ANN, REASON
from tests.support.iceberg_in_memory import Killed
from tests.support.letters_in_databases import (
    test_a_sweep_takes_older_attempts_at_its_offsets_alone,  # noqa: F401
    test_a_table_keeps_the_ledger_of_each_stream,  # noqa: F401
    test_a_table_of_another_program_is_refused_at_once,  # noqa: F401
    test_any_bytes_come_back_as_they_were_also_in_a_worker,  # noqa: F401
    test_dead_letters_are_read_by_plain_sql,  # noqa: F401
    test_only_the_generation_that_counts_is_read,  # noqa: F401
    test_streams_that_make_the_same_table_at_once_all_go_on,  # noqa: F401
)
from tests.support.letters_in_sqlite import TABLE, LettersInSQLite
from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import offsets
from tidemark.clients.environment import from_environment
from tidemark.clients.sql import Database, describe_problem, make_file
from tidemark.commit.protocol import Step
from tidemark.errors import DiskFull, NotAuthorized, OwnedByAnother, TidemarkError, Unreachable, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.runs import erasing, steering
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL, letters_in
from tidemark.sinks.dead_letters.sql.publishing import _Publication, publish


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LettersInSQL:
    said = {"conn_type": "sqlite", "host": str(tmp_path / "dead.db")}
    monkeypatch.setenv("AIRFLOW_CONN_SQL_DEFAULT", json.dumps(said))
    return letters_in(from_environment, "sql_default", "dead", "orders")


def test_an_error_of_a_database_shows_no_values_of_messages() -> None:
    said = 'null value in column "reason" violates a constraint\nDETAIL:  Failing row contains (canary,\ncanary).\nHINT: none'
    assert describe_problem(SimpleNamespace(orig=ValueError(said))) == said.splitlines()[0]
    assert describe_problem(SimpleNamespace(orig=ValueError("not there\n  at 127.0.0.1"))) == "not there at 127.0.0.1"


@pytest.mark.parametrize(
    "value", ["canary", "canary' for key 'canary", 'it\'s "canary"', "canary\ncanary", "ca' at line 1"]
)
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Duplicate entry '{}' for key 'PRIMARY'", "Duplicate entry ... for key 'PRIMARY'"),
        (
            "Incorrect integer value: '{}' for column 'a' at row 1",
            "Incorrect integer value: ... for column 'a' at row 1",
        ),
        ("Truncated incorrect DOUBLE value: '{}'", "Truncated incorrect DOUBLE value: ..."),
        ("You have an error near '{}' at line 1", "You have an error near ... at line 1"),
        ('invalid input syntax for type uuid: "{}"', "invalid input syntax for type uuid: ..."),
    ],
)
def test_an_error_of_a_database_shows_no_value_that_it_quotes(said: str, shown: str, value: str) -> None:
    """As the drivers hand it on: psycopg as a text, pymysql with the number before it."""
    text = said.format(value)
    assert describe_problem(SimpleNamespace(orig=ValueError(text))) == shown
    of_mysql = describe_problem(SimpleNamespace(orig=pymysql.err.IntegrityError(1062, text)))
    assert shown in of_mysql.replace("\\'", "'")
    assert "canary" not in of_mysql


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EROFS, NotAuthorized),
        (errno.EACCES, NotAuthorized),
        (errno.EIO, Unreachable),
        (errno.ESTALE, Unreachable),
        (errno.ENOTDIR, WrongUse),
    ],
)
def test_why_a_file_of_sqlite_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TidemarkError]
) -> None:
    """What passes is tried again, and what no retry mends is not."""

    def touch(self: Path) -> None:
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "touch", touch)
    with pytest.raises(TidemarkError, match=r"SQLite at /lake/ledger\.db") as caught:
        make_file(Database("sqlite", "/lake/ledger.db"))
    assert type(caught.value) is kind


def test_a_file_of_sqlite_on_a_disk_that_takes_no_writes() -> None:
    """Of the kernel's own folder below /sys, which takes none from root either."""
    with pytest.raises(NotAuthorized, match=r"the file cannot be made: .*Mount the disk for writing"):
        make_file(Database("sqlite", "/sys/ledger.db"))


# what others see of the table


@pytest.fixture
def stream(tmp_path: Path) -> LettersInSQLite:
    return LettersInSQLite(tmp_path)


def of(*numbers: Iterable[int]) -> list[tuple[int, int]]:
    return sorted((0, one) for some in numbers for one in some)


@pytest.mark.covers("O11")
def test_others_see_dead_letters_once_their_window_is_committed(stream: LettersInSQLite) -> None:
    stream.ends((0, 5))
    with pytest.raises(Killed):
        stream.ingest(until=Step.DEAD_LETTERS_STORED)
    assert (stream.seen(), stream.counting(), stream.left()) == ([], [], 5)
    with pytest.raises(Killed):
        stream.ingest(until=Step.COMMITTED)
    # Not yet: but Tidemark's reader has them.
    assert (stream.seen(), stream.counting()) == ([], of(range(5)))
    stream.ends((0, 8))
    stream.ingest("run 2")
    assert stream.seen() == stream.counting() == of(range(8))
    assert stream.left() == 0


@pytest.mark.covers("O11")
def test_a_redrive_is_one_step(stream: LettersInSQLite) -> None:
    stream.ends((0, 10))
    stream.ingest()
    stream.good = lambda offset: offset % 2 == 0
    with pytest.raises(Killed):
        stream.replay(offsets((0, 3, 7)), "redrive", until=Step.SWEPT)
    assert stream.seen() == of(range(10))
    assert stream.counting() == of(range(3), [3, 5], range(7, 10))
    stream.ends((0, 11))
    stream.ingest("run 3")
    assert stream.seen() == stream.counting() == of(range(3), [3, 5], range(7, 10))
    assert stream.reasons()[3:5] == [(0, 3, "redrive"), (0, 5, "redrive")]
    assert stream.left() == 0


@pytest.mark.covers("O11", "N13")
def test_a_restored_ledger_shows_each_dead_letter_once(stream: LettersInSQLite, tmp_path: Path) -> None:
    stream.ends((0, 3))
    stream.ingest()
    back_up(stream.opened.ledger, tmp_path / "nightly")
    for end in (6, 9):
        stream.now += 5_000
        stream.ends((0, end))
        stream.ingest(f"run {end}")
    stream.good = lambda offset: offset == 1
    stream.replay(offsets((0, 1, 2)), "forgotten")
    lost, stream.good = stream.opened, lambda _: False
    stream.now += 5_000
    restored = Ledger(MemoryStore(), "orders", clock=lambda: stream.now)
    restore(restored, tmp_path / "nightly")
    stream.opened = replace(stream.opened, ledger=restored)
    for end in (5, 10):
        stream.now += 5_000
        stream.ends((0, end))
        stream.ingest(f"anew {end}")
        # What is forgotten and not read again yet stays: it may be all there is.
        assert stream.seen() == of([0], range(2, max(end, 9)))
        assert stream.counting() == of([0], range(2, end))
    # What has taken its place is not asked by a worker of the old one.
    stream.opened = lost
    stream.ends((0, 12))
    with pytest.raises(OwnedByAnother, match="took the place of this one"):
        stream.ingest("stale")
    assert stream.seen() == of([0], range(2, 10))


@pytest.mark.covers("O11", "N13")
def test_dead_letters_under_a_database_that_went_back_are_there_once(stream: LettersInSQLite) -> None:
    stream.ends((0, 3))
    stream.ingest()
    values = dict(stream.store.values)
    stream.ends((0, 6))
    stream.ingest("lost")
    store = MemoryStore()
    store.values = values
    stream.opened = replace(stream.opened, ledger=Ledger(store, "orders", clock=lambda: stream.now))
    stream.ends((0, 7))
    stream.ingest("anew")
    assert stream.seen() == stream.counting() == of(range(7))
    register = stream.opened.ledger.register()
    assert register is not None
    assert register[1].restored


@pytest.mark.covers("O11")
@pytest.mark.parametrize("until", [Step.DEAD_LETTERS_STORED, Step.COMMITTED])
def test_a_table_of_an_earlier_version_goes_on(stream: LettersInSQLite, until: Step) -> None:
    """It has what attempts wrote, also of those that died; and no other table has anything."""
    stream.ends((0, 4))
    stream.ingest()
    stream.ends((0, 7))
    for _ in range(2):
        with pytest.raises(Killed):
            stream.ingest("dies", until=Step.DEAD_LETTERS_STORED)
    if until == Step.COMMITTED:
        with pytest.raises(Killed):
            stream.ingest("dies", until=Step.COMMITTED)
    stream.asked(f"INSERT INTO {TABLE} SELECT * FROM {TABLE}_attempts")
    for other in ("attempts", "published"):
        stream.asked(f"DROP TABLE {TABLE}_{other}")
    assert stream.counting() == of(range(4 if until == Step.DEAD_LETTERS_STORED else 7))
    assert len(stream.asked(f"SELECT * FROM {TABLE}")) == (10 if until == Step.DEAD_LETTERS_STORED else 13)
    stream.ends((0, 9))
    for run in ("a", "b"):
        stream.now += 60_000
        stream.ingest(run)
    assert stream.seen() == stream.counting() == of(range(9))
    # Those of the dead attempts are swept.
    assert stream.left() == 0


@pytest.mark.covers("O11")
def test_two_programs_publish_dead_letters(stream: LettersInSQLite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look at the ledger and the change, a redrive was published: what was looked at is no longer so."""
    stream.ends((0, 5))
    stream.ingest()
    stream.ends((0, 8))
    with pytest.raises(Killed):
        stream.ingest("slow", until=Step.COMMITTED)
    (*_, slow) = stream.opened.ledger.committed()
    real = _Publication.stage

    def beside(self: _Publication, connection: Any) -> bool:
        monkeypatch.setattr(_Publication, "stage", real)
        # Another program settles the window, and a redrive takes its dead letters away.
        stream.good = lambda _: True
        stream.replay(offsets((0, 4, 8)), "redrive")
        return self.stage(connection)

    monkeypatch.setattr(_Publication, "stage", beside)
    publish(stream.opened.ledger, stream.letters, slow.record)
    assert stream.seen() == stream.counting() == of(range(4))


@pytest.mark.covers("O11", "I3")
def test_erased_dead_letters_are_in_neither_table(stream: LettersInSQLite) -> None:
    stream.ends((0, 6))
    stream.ingest()
    with pytest.raises(Killed):
        stream.replay(offsets((0, 2, 6)), "dies", until=Step.DEAD_LETTERS_STORED)
    (lane,) = {one for one in stream.opened.ledger.heads() if one != INGEST}
    steering.cancel(stream.opened, lane, "asked for the wrong hour")
    erased = offsets((0, 3, 5))
    lane = erasing.open_erasure(stream.opened, "e", erasing.choose(stream.opened, erased), REASON, ANN)
    erasing.erase(stream.opened, lane, "e")
    assert stream.seen() == stream.counting() == of(range(3), [5])
    everywhere = f"SELECT message_offset FROM {TABLE} UNION SELECT message_offset FROM {TABLE}_attempts"
    assert {*stream.asked(everywhere)}.isdisjoint({(3,), (4,)})


def test_a_table_of_another_program_stops_a_stream_before_it_begins(stream: LettersInSQLite) -> None:
    stream.asked(f"CREATE TABLE {TABLE} (id INTEGER)")
    stream.ends((0, 5))
    with pytest.raises(WrongUse, match="Tidemark expects its own tables in letters"):
        stream.ingest()
    assert stream.positions() == {0: 0}
