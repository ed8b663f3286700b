"""Dead letters in SQLite: what counts is read, of any attempt's rows; the rest is swept; any bytes come back as they were.

On real servers: tests/integration/test_dead_letters_in_databases.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

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
from tidemark.clients.sql import describe_problem
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
