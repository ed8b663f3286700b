"""Dead letters in SQLite: what counts is read, of any attempt's rows; the rest is swept; any bytes come back as they were.

On real servers: tests/integration/test_dead_letters_in_databases.py.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pymysql
import pytest

from tests.support.letters_in_databases import (
    test_a_sweep_takes_older_attempts_at_its_offsets_alone,  # noqa: F401
    test_a_table_keeps_the_ledger_of_each_stream,  # noqa: F401
    test_a_table_of_another_program_is_refused_at_once,  # noqa: F401
    test_any_bytes_come_back_as_they_were_also_in_a_worker,  # noqa: F401
    test_dead_letters_are_read_by_plain_sql,  # noqa: F401
    test_only_the_generation_that_counts_is_read,  # noqa: F401
    test_streams_that_make_the_same_table_at_once_all_go_on,  # noqa: F401
)
from tidemark.clients.environment import from_environment
from tidemark.clients.sql import Database, describe_problem, make_file
from tidemark.errors import DiskFull, NotAuthorized, TidemarkError, Unreachable, WrongUse
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL, letters_in


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
