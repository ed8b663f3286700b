"""What a dead letter holds: the message that was set aside, why, and how often it was tried.

Rows that an older version stored have the first four fields only; the others then are what they were for all of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.results.hbase_table import StoredRow

# The message's key and value as they are, its time as text, and its headers as JSON like those that `keep` keeps. `outcome` is
# invalid or failed. `error` is the class of the last exception, `detail` what it said. Numbers are decimal, times ISO 8601.
FIELDS = (
    "reason",
    "key",
    "value",
    "timestamp",
    "headers",
    "outcome",
    "error",
    "detail",
    "attempts",
    "first_failed_at",
    "last_failed_at",
    "code_version",
    "redrives",
)
# What follows from the message and the code alone, and so can be computed again by an audit.
DIGESTED = FIELDS[:4]
# Digested too, where it is not null: so that a dead letter without headers has the digest that it always had.
DIGESTED_IF_ANY = FIELDS[4]

_BEFORE: Mapping[str, str] = {"outcome": "invalid", "attempts": "1", "redrives": "0"}


def digested(fields: Mapping[str, bytes]) -> list[bytes | None]:
    """The fields that a dead letter's digest is taken of."""
    found = [fields.get(name) for name in DIGESTED]
    return [*found, fields[DIGESTED_IF_ANY]] if DIGESTED_IF_ANY in fields else found


def redrives(row: StoredRow) -> int:
    """How often the message was read again as a dead letter, and became one again."""
    return int(row.fields.get("redrives", b"0"))


def described(row: StoredRow) -> dict[str, Any]:
    """A dead letter as people see it: its window and generation, and every field that it has, as text."""
    found = {name: value.decode(errors="backslashreplace") for name, value in row.fields.items()}
    fields = {name: text for name in FIELDS if (text := found.get(name, _BEFORE.get(name))) is not None}
    return {"window": f"{row.mark.lane}/{row.mark.seq}", "generation": str(row.mark.generation), "fields": fields}
