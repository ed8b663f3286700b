"""Dead letters on real servers: PostgreSQL and MariaDB."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from services import control
from services.site import Site
from tests.support.iceberg_in_memory import Killed
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
from tests.support.letters_in_sqlite import LettersInSQLite
from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import offsets
from tidemark.clients.environment import from_environment
from tidemark.commit.protocol import Step
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.offsets.coordinates import Coordinate
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL, letters_in

CONNECTIONS = {"postgresql": "sql_default", "mariadb": "mysql_default"}


@pytest.fixture(params=CONNECTIONS)
def letters(request: pytest.FixtureRequest, site: Site) -> LettersInSQL:
    control.up(site, [request.param])
    return letters_in(from_environment, CONNECTIONS[request.param], f"dead_{secrets.token_hex(4)}", "orders")


@pytest.mark.full
@pytest.mark.covers("O11")
def test_a_message_of_some_megabytes_survives(letters: LettersInSQL) -> None:
    letters.prepare("orders", "ledger 1")
    value = bytes(range(256)) * (5 << 12)
    write(letters, 3, 5, 6, value=value)
    assert [row.fields["value"] for row in letters.rows_at(Coordinate(AT, 6), 3)] == [value]


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.covers("O11")
@pytest.mark.parametrize("database", CONNECTIONS)
def test_others_see_what_counts(database: str, site: Site, tmp_path: Path) -> None:
    """A window, a redrive, a ledger that was restored, and a table of an earlier version: each message once."""
    control.up(site, [database])
    name = f"dead_{secrets.token_hex(4)}"
    stream = LettersInSQLite(tmp_path, connection=CONNECTIONS[database], table_name=name, connections=from_environment)
    stream.ends((0, 1_200))
    with pytest.raises(Killed):
        stream.ingest(until=Step.COMMITTED)
    assert (stream.seen(), len(stream.counting()), stream.left()) == ([], 1_200, 1_200)
    stream.ends((0, 1_210))
    stream.ingest("run 2")
    back_up(stream.opened.ledger, tmp_path / "nightly")
    stream.good = lambda offset: offset % 2 == 0
    stream.replay(offsets((0, 0, 1_000)), "redrive")
    assert stream.seen() == stream.counting()
    assert (len(stream.seen()), stream.left()) == (710, 0)
    stream.good = lambda _: False
    for end in (1_220, 1_230):
        restored = Ledger(MemoryStore(), "orders", clock=lambda: stream.now)
        restore(restored, tmp_path / "nightly")
        stream.opened = replace(stream.opened, ledger=restored)
        stream.now += 60_000
        stream.ends((0, end))
        stream.ingest(f"anew {end}")
        # Those that the redrive had written count no more, and an audit misses them.
        assert stream.seen() == stream.counting() == [(0, offset) for offset in range(1_000, end)]
    stream.ends((0, 1_240))
    with pytest.raises(Killed):
        stream.ingest("dies", until=Step.DEAD_LETTERS_STORED)
    stream.asked(f"INSERT INTO {name} SELECT * FROM {name}_attempts")
    for other in ("attempts", "published"):
        stream.asked(f"DROP TABLE {name}_{other}")
    stream.now += 60_000
    stream.ingest("last")
    assert stream.seen() == stream.counting() == [(0, offset) for offset in range(1_000, 1_240)]
    assert stream.left() == 0
