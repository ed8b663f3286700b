"""The tables of dead letters in a database, and the view for people.

    TABLE             what counts: the dead letters of committed windows, of each message one
    TABLE_attempts    what attempts write, until it is published or swept
    TABLE_published   what of a stream was published last: see `publishing.py`
    TABLE_owners      the ledger of each stream

The first two have the same columns.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidemark.clients import dialects
from tidemark.sinks.dead_letters import FIELDS

if TYPE_CHECKING:
    import sqlalchemy as sa

# What Tidemark itself writes there is ASCII. All else may be any bytes, and PostgreSQL takes no text with a zero byte.
TEXTS = ("timestamp", "outcome", "attempts", "first_failed_at", "last_failed_at", "redrives")
PLACE = ("stream", "topic", "incarnation", "partition", "message_offset", "generation")
MARK = ("lane", "seq", "digest")


@cache
def letters(name: str) -> sa.Table:
    import sqlalchemy as sa

    kinds = {
        "incarnation": sa.Integer,
        "partition": sa.Integer,
        "message_offset": sa.BigInteger,
        "generation": sa.BigInteger,
    }
    return sa.Table(
        name,
        sa.MetaData(),
        *(
            sa.Column(column, kinds.get(column, dialects.name()), primary_key=True, autoincrement=False)
            for column in PLACE
        ),
        sa.Column("lane", dialects.text(), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.BigInteger, nullable=False),
        *(sa.Column(field, dialects.text() if field in TEXTS else dialects.large()) for field in FIELDS),
        **dialects.TABLE,
    )


def attempts(name: str) -> sa.Table:
    return letters(f"{name}_attempts")


@cache
def owners(name: str) -> sa.Table:
    import sqlalchemy as sa

    return sa.Table(
        f"{name}_owners",
        sa.MetaData(),
        sa.Column("stream", dialects.name(), primary_key=True),
        sa.Column("ledger", dialects.text(), nullable=False),
        **dialects.TABLE,
    )


@cache
def published(name: str) -> sa.Table:
    import sqlalchemy as sa

    return sa.Table(
        f"{name}_published",
        sa.MetaData(),
        sa.Column("stream", dialects.name(), primary_key=True),
        # Rises with each publication: whoever has looked before looks again.
        sa.Column("version", sa.BigInteger, nullable=False),
        # The restoration of the ledger that has published, and its last window there.
        sa.Column("restored", dialects.text(), nullable=False),
        sa.Column("lane", dialects.text(), nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        **dialects.TABLE,
    )


def all_of(name: str) -> tuple[sa.Table, ...]:
    return letters(name), attempts(name), owners(name), published(name)


def as_text(kind: str, table: str) -> str:
    """The dead letters as a person reads them: with their bytes as text."""
    others = {"key": "message_key", "value": "message_value", "timestamp": "message_time"}
    columns = [f"l.{one} AS {dialects.quoted(kind, one)}" for one in (*PLACE, *MARK[:2])]
    for field in FIELDS:
        value = f"l.{field}" if field in TEXTS else dialects.shown(kind, f"l.{field}")
        columns.append(f"{value} AS {others.get(field, field)}")
    return f"SELECT {', '.join(columns)} FROM {table} l"  # noqa: S608
