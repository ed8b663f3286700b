"""The format of the ledger's values goes with their fields: no value grows without anybody's saying so.

Until the first release, the digests below are the format. After a change of a stored value, this test says which line to put
here, and docs/going-back.md what the change means. From the first release on, such a change raises `FORMAT` instead: a program
then tells a newer value by its format, and not by a field that it does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import msgspec
import pytest
from msgspec import structs

from services.site import REPOSITORY
from tests.support.memory import MemoryStore
from tests.support.protocol_world import World
from tidemark.audit.comparison import ReplayComparison
from tidemark.audit.report import AuditReport
from tidemark.errors import LedgerUnreadable
from tidemark.ledger import covered
from tidemark.ledger.closed_lanes import ClosedLanes
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.records import (
    FORMAT,
    AuditOutcome,
    BlockTallies,
    Head,
    Heartbeat,
    JobProgress,
    LateReceipt,
    Record,
    Register,
    Selection,
    TopicIncarnation,
)
from tidemark.ledger.recovery import backup
from tidemark.sinks.parquet.compactions import Compactions

# All that is stored with a format, with the digest of its fields.
FIELDS: dict[type[msgspec.Struct], str] = {
    AuditOutcome: "674e6b9c7ae5a9a4",
    AuditReport: "7a9ebd730bd9b93e",
    BlockTallies: "899565d7e579d617",
    ClosedLanes: "9878936358504227",
    Compactions: "5de23d649e21d4fb",
    ReplayComparison: "07bef3db3394ecf1",
    Head: "669f04fd102ed337",
    Heartbeat: "ea057518c342725b",
    JobProgress: "67d037c8c3be20c4",
    LateReceipt: "04dbacbeb669648a",
    Record: "a175a1de8cb33322",
    Register: "eb6febda3fdc0875",
    Selection: "131310d73f5c7d4b",
    backup._Begin: "7cd4576c1ee7b1b6",
    covered._Kept: "dd714e484e0fa860",
}


def fields_of(kind: type[msgspec.Struct]) -> str:
    """The names, types and defaults of a value's fields, and of all that is in them, without the words for people."""
    return hashlib.sha256(json.dumps(_plain(msgspec.json.schema(kind)), sort_keys=True).encode()).hexdigest()[:16]


def _plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        # A field may have these names as well: its schema is a map.
        return {
            name: _plain(value)
            for name, value in schema.items()
            if name not in ("description", "title") or not isinstance(value, str)
        }
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_a_stored_value_has_the_fields_of_its_format(kind: type[msgspec.Struct]) -> None:
    now = fields_of(kind)
    assert now == FIELDS[kind], (
        f"{kind.__name__} has other fields than format {FORMAT}. Before the first release, put its new digest here: "
        f'"{now}". Say in CHANGELOG.md that older programs refuse such a ledger. After it, raise FORMAT in '
        "tidemark/ledger/records.py, and keep a ledger of the release before for the tests"
    )


def test_every_stored_value_has_its_fields_kept_here() -> None:
    declared = [
        place
        for file in sorted((REPOSITORY / "tidemark").rglob("*.py"))
        for place in re.findall(r"^    format: int = FORMAT$", file.read_text(), re.MULTILINE)
    ]
    assert len(declared) == len(FIELDS)


def test_the_digest_is_of_fields_and_not_of_words() -> None:
    def value(words: str, *fields: tuple[str, type, object]) -> type[msgspec.Struct]:
        return msgspec.defstruct("Value", [("number", int), *fields], namespace={"__doc__": words})

    title = ("title", str, "")
    assert fields_of(value("Some words.", title)) == fields_of(value("Others.", title))
    assert fields_of(value("Some words.", title)) != fields_of(value("Some words.", title, ("more", int, 0)))
    assert fields_of(value("Some words.", title)) != fields_of(value("Some words.", ("title", str, "-")))


def test_a_value_of_a_later_format_or_with_a_later_field_is_left_as_it_is() -> None:
    """What docs/going-back.md says of an older program."""
    value = encode(Selection())
    later = value.replace(b'"format":%d' % FORMAT, b'"format":%d' % (FORMAT + 1))
    with pytest.raises(
        LedgerUnreadable, match=f"has format {FORMAT + 1}; this version of Tidemark knows formats up to {FORMAT}"
    ):
        decode(later, Selection, "s/selection/1")
    grown = value.replace(b"{", b'{"added":1,', 1)
    for stored in (grown, value[:-1] + b',"added":1}'):
        with pytest.raises(LedgerUnreadable, match=r"unknown field.*A newer version of Tidemark may have written it"):
            decode(stored, Selection, "s/selection/1")


def test_a_ledger_of_an_earlier_version_is_read_without_what_nobody_needs_any_more() -> None:
    """Numbers that attempts had, wherever they stand; a topic may be called so."""
    world = World(MemoryStore())
    world.one_window()
    found = world.book.register()
    assert found is not None
    now = structs.replace(found[1], topics={"ordinal": (TopicIncarnation(incarnation=1, topic_id="i", since=1),)})
    older = json.loads(encode(now)) | {"ordinal": 3, "least_ordinal": 0}
    assert decode(json.dumps(older).encode(), Register, "the register") == now
    head = json.loads(encode(world.head)) | {"ordinal": None}
    head["last"]["attempt"]["ordinal"] = 2
    assert decode(json.dumps(head).encode(), Head, "a head") == world.head
    with pytest.raises(LedgerUnreadable, match="unknown field"):
        decode(json.dumps({**older, "ordinals": 1}).encode(), Register, "the register")
