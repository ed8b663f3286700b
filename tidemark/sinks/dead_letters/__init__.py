"""The contents of a dead letter: its message, the reason, and how often processing was tried."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemark.sinks.texts import texts

if TYPE_CHECKING:
    # Not happybase, whenever a stream file is read.
    from tidemark.sinks.stored_rows import StoredRow

# The message's key and value are stored unchanged, its time as text, and its headers as the JSON that `keep` makes.
# `outcome` is invalid or failed. `error` is the class of the last exception, `detail` its message.
# Numbers are decimal, times ISO 8601.
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
# The fields that follow from the message and the code alone, so that an audit can compute them again.
DIGESTED = FIELDS[:5]


def digested(fields: Mapping[str, bytes]) -> list[bytes | None]:
    """The values from which a dead letter's digest is computed."""
    return [fields.get(name) for name in DIGESTED]


def redrives(row: StoredRow) -> int:
    """How often a redrive read the message again and made it a dead letter again."""
    return int(row.fields["redrives"])


def described(row: StoredRow) -> dict[str, Any]:
    """A dead letter for display: its window and generation, and every field that it has, as text."""
    said = texts(row.fields)
    fields = {name: said[name] for name in FIELDS if name in said}
    return {"window": f"{row.mark.lane}/{row.mark.seq}", "generation": str(row.mark.generation), "fields": fields}


def headers_of(fields: Mapping[str, bytes]) -> tuple[tuple[str, bytes | None], ...]:
    """The message's own headers, as `keep` makes them: a list in JSON, with values in base64."""
    return tuple(
        (header["key"], None if header["value"] is None else b64decode(header["value"]))
        for header in json.loads(fields.get("headers", b"[]"))
    )
