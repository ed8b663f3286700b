"""Stored values that nobody has written: whatever is asked of them, the answer is an error with code 7, and no traceback."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.known_streams import KnownStream, tables
from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import offsets
from tidemark.audit.levels import Level
from tidemark.errors import LedgerUnreadable, TidemarkError
from tidemark.ledger import closed_lanes, records
from tidemark.ledger.codec import decode
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, Head, Record, Register
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.ledger.recovery.rebuilding import rebuild
from tidemark.ledger.recovery.verifying import verify
from tidemark.runs.auditing import audit_without_spark
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest, checked
from tidemark.views.audits import audits
from tidemark.views.event_time.progress import progress
from tidemark.views.lane_progress import progress_of
from tidemark.views.messages.fates import Fate
from tidemark.views.messages.message import page_of
from tidemark.views.overview import overview
from tidemark.views.plan import planned
from tidemark.views.window import window_of

__all__ = ["tables"]

EDITS = 500


def a_stream(folder: Path) -> KnownStream:
    """With windows of every kind, an audit, closed lanes and one that waits."""
    world = KnownStream(folder, [*[Fate.STORED] * 8, *[Fate.DEAD_LETTER, Fate.SKIPPED] * 6])
    for end in (6, 12, 20):
        world.ends((0, end))
        while world.ingest(f"run {end}") is not None:
            pass
    world.replay("a replay", (2, 5), (8, 9))
    world.erase(offsets((0, 3, 4)))
    audit_without_spark(world.opened, "an audit", Level.LEDGER)
    return world


QUESTIONS: dict[str, Callable[[KnownStream], Any]] = {
    "overview": lambda world: overview(world.opened),
    "window": lambda world: window_of(world.opened, INGEST, 1),
    "lane": lambda world: progress_of(world.opened, "a replay"),
    "message": lambda world: page_of(world.where(3), payload=True),
    "other message": lambda world: page_of(world.where(8), payload=True),
    "event time": lambda world: progress(world.opened).watermark(),
    "audits": lambda world: audits(world.opened, 10),
    "replay": lambda world: planned(world.opened, request(ReplayRequest, ranges="orders/0@0-9")),
    "backfill": lambda world: planned(world.opened, request(BackfillRequest, ranges="orders/0@0-9")),
    "verify": lambda world: verify(world.opened.ledger),
    "audit": lambda world: audit_without_spark(world.opened, "another", Level.LEDGER).clean,
    "ingest": lambda world: world.ingest("next"),
}


def request(kind: Any, **fields: Any) -> Any:
    fields |= {"reason": "a test", "dry_run": True}
    return checked(kind, fields, fields)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path, value
        return
    for key, one in items:
        yield from leaves(one, (*path, key))


ODD = [
    None,
    -1,
    0,
    1,
    2**63,
    -(2**63),
    10**30,
    1.5,
    "",
    "x",
    "../..",
    "\u202e",
    "a" * 2_000,
    True,
    [],
    {},
    [1],
    {"a": 1},
]


def damaged(stored: bytes, draw: random.Random) -> tuple[bytes, str]:
    """The value with one thing about it changed, and what."""
    kind = draw.random()
    at = draw.randrange(len(stored))
    if kind < 0.1:
        return stored[:at] or b"x", f"cut off at {at}"
    if kind < 0.25:
        return stored[:at] + bytes([draw.randrange(256)]) + stored[at + 1 :], f"byte {at}"
    if kind < 0.3:
        return stored[:at] + b"[" * 50_000 + stored[at:], f"nested at {at}"
    try:
        values = json.loads(stored)
    except ValueError:
        return stored + b"x", "longer"
    path, old = draw.choice(list(leaves(values)) or [((), None)])
    if not path:
        return b"null", "null"
    inside = values
    for part in path[:-1]:
        inside = inside[part]
    if draw.random() < 0.15 and isinstance(inside, dict):
        del inside[path[-1]]
        return json.dumps(values).encode(), f"without {path}"
    new = draw.choice(ODD)
    if type(old) is int and draw.random() < 0.4:
        new = old + draw.choice([-1, 1, 10, 1_000_000])
    inside[path[-1]] = new
    return json.dumps(values, separators=(",", ":")).encode(), f"{path}: {old!r} is {new!r}"[:200]


@pytest.mark.slow
@pytest.mark.covers("F28")
def test_no_damaged_value_gives_a_traceback(tmp_path: Path) -> None:
    """Of each question that pages and commands ask: an answer, or an error that has a class, a text and a code."""
    world = a_stream(tmp_path)
    good = dict(world.store.values)
    assert {key[0] for key in good} >= {"register", "head", "history", "selection", "closed", "audited", "audits"}
    for name, question in QUESTIONS.items():
        question(world)
        world.store.values = dict(good)
        assert name
    draw, found, seen = random.Random(11), [], Counter[str]()
    keys = sorted(key for key in good if key[0] != "clock")
    for number in range(EDITS):
        key = keys[number % len(keys)]
        bad, what = damaged(good[key], draw)
        world.store.values = {**good, key: bad}
        for name, question in QUESTIONS.items():
            world.opened.ledger._selections._ranges.clear()
            world.opened.ledger._selections._indexes.clear()
            try:
                question(world)
            except TidemarkError as problem:
                seen[type(problem).__name__] += 1
            except Exception as problem:  # each of them is what this test is about
                found.append(f"{name}: {'/'.join(key)}, {what}: {type(problem).__name__}: {problem}")
            world.store.values = {**good, key: bad}
    assert found == []
    assert seen["LedgerUnreadable"] > 500


@pytest.mark.covers("F28")
@pytest.mark.parametrize(
    "kind", [Register, Head, Record, closed_lanes.ClosedLanes, records.AuditOutcome, records.Heartbeat]
)
@pytest.mark.parametrize(
    "stored",
    [
        b'{"f\x88rmat":1}',
        b'{"format":1,"x":"\x88"}',
        b'{"format":1,"x":' + b"[" * 100_000,
        b"[" * 100_000,
        b'{"format":' + b"9" * 400 + b"}",
        b'{"format":1e999}',
        b'{"format":0}',
        b'{"format":-1}',
        b'{"format":true}',
        b"",
        b"null",
        b"[]",
        b"\0",
        b"\xff\xfe",
    ],
)
def test_bytes_that_are_no_value_are_unreadable(stored: bytes, kind: Any) -> None:
    with pytest.raises(LedgerUnreadable, match=r"the place (cannot be read|has format)"):
        decode(stored, kind, "the place")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_unreadable(stored: bytes) -> None:
    for kind in (Register, Head, Record):
        with pytest.raises(LedgerUnreadable):
            decode(stored, kind, "the place")


@pytest.mark.slow
@pytest.mark.covers("F28")
def test_each_byte_of_a_value_may_be_another(tmp_path: Path) -> None:
    world = a_stream(tmp_path)
    kinds: dict[str, Any] = {"register": Register, "head": Head, "history": Record, "closed": closed_lanes.ClosedLanes}
    seen = Counter[bool]()
    for key, stored in world.store.values.items():
        if key[0] not in kinds:
            continue
        for at in range(len(stored)):
            for byte in (0, 0x88, 0xFF, 0x22, 0x5C, 0x7B, 0x5B, 0x2D, 0x65):
                try:
                    decode(stored[:at] + bytes([byte]) + stored[at + 1 :], kinds[key[0]], "the place")
                    seen[True] += 1
                except LedgerUnreadable:
                    seen[False] += 1
    assert min(seen.values()) > 100


@pytest.mark.covers("F28")
def test_a_damaged_ledger_can_be_saved_or_says_why_not(tmp_path: Path) -> None:
    """`ledger backup`, `rebuild` and `restore`, for damage anywhere."""
    world = a_stream(tmp_path)
    good, draw = dict(world.store.values), random.Random(5)
    keys = sorted(key for key in good if key[0] != "clock")
    found = []
    for number in range(120):
        key = keys[number % len(keys)]
        bad, what = damaged(good[key], draw)
        world.store.values = {**good, key: bad}
        for name, save in SAVED.items():
            path = tmp_path / f"{name}-{number}"
            try:
                save(world.opened.ledger, path)
                restore(Ledger(MemoryStore(), "orders"), path)
            except TidemarkError:
                pass
            except Exception as problem:  # each of them is what this test is about
                found.append(f"{name}: {'/'.join(key)}, {what}: {type(problem).__name__}: {problem}")
            path.unlink(missing_ok=True)
    assert found == []


SAVED: dict[str, Callable[[Ledger, Path], object]] = {
    "backup": back_up,
    "rebuild": lambda ledger, path: rebuild(ledger, path, lambda: "a ledger", lambda _: False),
}
