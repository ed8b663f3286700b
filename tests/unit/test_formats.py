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
from tidemark.audit.comparison import Example, PlaceComparison, ReplayComparison
from tidemark.audit.report import AuditReport, PlaceReport
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
    RunRequest,
    Selection,
    TopicIncarnation,
)
from tidemark.ledger.recovery import backup
from tidemark.sinks.parquet.compactions import Compactions

# All that is stored with a format, with the digest of its fields.
FIELDS: dict[type[msgspec.Struct], str] = {
    AuditOutcome: "674e6b9c7ae5a9a4",
    AuditReport: "9d296e70e18aa79b",
    BlockTallies: "899565d7e579d617",
    ClosedLanes: "b628d0ca7879955a",
    Compactions: "5de23d649e21d4fb",
    ReplayComparison: "2018887b91dc9167",
    Head: "101f7643319f35bb",
    Heartbeat: "ea057518c342725b",
    JobProgress: "67d037c8c3be20c4",
    LateReceipt: "04dbacbeb669648a",
    Record: "f2c38d777e63bddc",
    Register: "bd06c3f65ad2cff6",
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
    found = world.ledger.register()
    assert found is not None
    now = structs.replace(found[1], topics={"ordinal": (TopicIncarnation(incarnation=1, topic_id="i", since=1),)})
    older = json.loads(encode(now)) | {"ordinal": 3, "least_ordinal": 0}
    assert decode(json.dumps(older).encode(), Register, "the register") == now
    head = json.loads(encode(world.head)) | {"ordinal": None}
    head["last"]["attempt"]["ordinal"] = 2
    assert decode(json.dumps(head).encode(), Head, "a head") == world.head
    with pytest.raises(LedgerUnreadable, match="unknown field"):
        decode(json.dumps({**older, "ordinals": 1}).encode(), Register, "the register")


@pytest.mark.parametrize("named", [None, {"digest": "d", "offsets": 3}], ids=["all", "a part"])
def test_what_people_had_named_of_a_window_is_left_out(named: object) -> None:
    """Of whole blocks. Topics may be called as the field is, and as those that stand beside it."""
    world = World(MemoryStore())
    world.one_window()
    last = world.head.last
    assert last is not None
    topics = {"named": "an id", "isolation": "another"}
    window = structs.replace(last.window, topic_ids=topics)
    asked = RunRequest(fields={"named": "a text", "fields": "another"})
    now = structs.replace(world.head, last=structs.replace(last, window=window), asked=asked)
    head = json.loads(encode(now))
    head["last"]["window"]["named"] = head["asked"]["named"] = named
    assert decode(json.dumps(head).encode(), Head, "a head") == now


def test_reports_and_comparisons_of_an_earlier_version_are_read() -> None:
    """Without the contributions that it could not prove, and the keys that an example stood for."""
    place = PlaceReport(name="sums", expected=9, found=8, missing=1, different=0, extra=0, twice=0, debris=0)
    report = AuditReport(
        stream="s", run="r", at=1, code_version="v", unproven=7, places=(place,), coverage=(), ledger_problems=()
    )
    value = json.loads(encode(report))
    value["places"][0]["unproven"] = 4
    assert decode(json.dumps(value).encode(), AuditReport, "a report") == report
    example = Example(at="a/0@1", index=0, columns=("all",))
    changes = PlaceComparison(name="sums", before=1, after=1, same=0, changed=1, new=0, gone=0, changed_at=(example,))
    compared = ReplayComparison(
        stream="s",
        run="r",
        at=1,
        code_version="v",
        stream_digest="d",
        selection="e",
        offsets=1,
        messages=1,
        stored=1,
        skipped=0,
        dead_letters=0,
        places=(changes,),
        not_compared=(),
        reasons=(),
    )
    value = json.loads(encode(compared))
    value["places"][0]["changed_at"][0]["keys"] = 2
    assert decode(json.dumps(value).encode(), ReplayComparison, "a comparison") == compared
