"""Dead letters on real servers: PostgreSQL and MariaDB."""

from __future__ import annotations

import secrets

import pytest

from services import control
from services.site import Site
from tests.support.letters_in_databases import (
    AT,
    test_a_sweep_takes_older_attempts_at_its_offsets_alone,  # noqa: F401
    test_a_table_keeps_the_ledger_of_each_stream,  # noqa: F401
    test_a_table_of_another_program_is_refused_at_once,  # noqa: F401
    test_any_bytes_come_back_as_they_were_also_in_a_worker,  # noqa: F401
    test_dead_letters_are_read_by_plain_sql,  # noqa: F401
    test_only_the_generation_that_counts_is_read,  # noqa: F401
    test_streams_that_make_the_same_table_at_once_all_go_on,  # noqa: F401
    write,
)
from tidemark.clients.environment import from_environment
from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import Coordinate
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL, letters_in

CONNECTIONS = {"postgresql": "sql_default", "mariadb": "mysql_default"}


@pytest.fixture(params=CONNECTIONS)
def letters(request: pytest.FixtureRequest, site: Site) -> LettersInSQL:
    control.up(site, [request.param])
    return letters_in(from_environment, CONNECTIONS[request.param], f"dead_{secrets.token_hex(4)}", "orders")


@pytest.mark.covers("O11")
def test_a_message_of_some_megabytes_survives(letters: LettersInSQL) -> None:
    letters.prepare("orders", "ledger 1")
    value = bytes(range(256)) * (5 << 12)
    write(letters, 3, 5, 6, value=value)
    assert [row.fields["value"] for row in letters.rows_at(Coordinate(AT, 6), 3)] == [value]


@pytest.mark.covers("O11")
@pytest.mark.parametrize("letters", ["mariadb"], indirect=True)
def test_what_the_server_would_not_take_is_refused_and_not_tried_for_a_minute(letters: LettersInSQL) -> None:
    """The server hangs up in the middle of such a statement, which looks as if it were away."""
    letters.prepare("orders", "ledger 1")
    with pytest.raises(
        WrongUse, match=r"a statement of \d+ bytes, and max_allowed_packet is 16777216.*Raise the server's"
    ):
        write(letters, 3, 5, value=b"x" * (9 << 20))
    assert letters.rows_at(Coordinate(AT, 5), 3) == []
