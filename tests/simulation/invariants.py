"""What has to hold of the ledger's values, computed here from the values alone: claims, pauses, holes, and what is damaged."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.work import Place
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.ledger.codec import decode
from tidemark.ledger.ledger import REGISTER, Ledger
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import INGEST, GapKind, Register, TopicIncarnation, Window
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.stores.contract import Key, sortable

if TYPE_CHECKING:
    from tests.simulation.actors import Actor
    from tests.simulation.oracle import Oracle

# How long a window stays with whoever has given a sign of life, as the documents say.
_LEASE_MS = 30_000


def check_claims(oracle: Oracle, value: bytes) -> None:
    """No offset is claimed by two lanes of one register."""
    from tests.simulation.oracle import check, each, said

    lanes = decode(value, Register, "the register").lanes
    claims = {
        lane: each(oracle.ledger.selection(one.selection)) for lane, one in lanes.items() if one.selection is not None
    }
    for one, other in itertools.combinations(claims, 2):
        shared = claims[one] & claims[other]
        check(not shared, f"{one} and {other} have both claimed {said(shared)}")


def check_order_is_found(oracle: Oracle, lost: Register) -> None:
    """A register that was made from the history still knows which of two messages of a key is newer.

    Not where partitions were added before any window was committed that knew how many there were: the history does not say.
    """
    from tests.simulation.oracle import check, said

    stored = oracle.world.opened.ledger.register()
    assert stored is not None
    epochs = Epochs(stored[1].topics)
    windows = [one.record.window for one in oracle.world.opened.ledger.committed() if one.record.lane == INGEST]
    newest: dict[tuple[str, int], tuple[tuple[int, int], Place]] = {}
    for place in sorted(oracle.identity, key=oracle.identity.__getitem__):
        at, offset = place
        if not _history_says(lost.topics[at.topic], at.topic, windows):
            continue
        key, version = (at.topic, oracle.keys[place]), (epochs.of(at, offset), offset)
        before = newest.get(key)
        known = before is None or before[0] < version
        check(known, f"a rebuilt register has {said([place])} below an older message of its key: {before}")
        newest[key] = version, place


def _history_says(known: Iterable[TopicIncarnation], topic: str, windows: Iterable[Window]) -> bool:
    """Whether windows of a topic knew each number of its partitions that there has been before more were added."""
    met = {
        (one.topic_ids.get(topic), len({part.partition for part in one.ranges if part.topic == topic}))
        for one in windows
    }
    return all((one.topic_id, len(raised.ends)) in met for one in known for raised in one.raised)


def takes_while_paused(oracle: Oracle, key: Key, expected: bytes | None, value: bytes) -> bool:
    """Whether an attempt takes a window although the register has its lane as paused. To pin one reads and writes nothing."""
    if key[0] != "head" or expected is None:
        return False
    before, after = ((json.loads(one).get("pending") or {}).get("attempt") for one in (expected, value))
    if after is None or before == after:
        return False
    stored = oracle.world.store.values.get(REGISTER)
    entry = decode(stored, Register, "the register").lanes.get(key[1]) if stored is not None else None
    return entry is not None and entry.paused is not None


def breaks_a_lease(oracle: Oracle, actor: Actor, key: Key, expected: bytes | None, value: bytes) -> str:
    """Who holds the window that somebody else takes or gives up, although it has just given a sign of life; empty for nobody.

    Whoever cancels a lane, or says that it takes over, may do that.
    """
    if key[0] != "head" or expected is None or actor.takes_over or "cancel" in actor.name:
        return ""
    before, after = ((json.loads(one).get("pending") or {}).get("attempt") for one in (expected, value))
    if before is None or before == after or actor.name.startswith(("move", "last move")):
        return ""
    if after is not None and all(after.get(name) == before.get(name) for name in ("run", "task")):
        return ""
    return before["run"] if has_lease(oracle, key[1], before["generation"], before["taken_at"]) else ""


def has_lease(oracle: Oracle, lane: str, generation: int, taken_at: int, more: int = 0) -> bool:
    """Whether an attempt has given a sign of life, by the current actor's clock, within a lease and `more` milliseconds."""
    stored = oracle.world.store.values.get(("beat", lane))
    sign = json.loads(stored) if stored is not None else {}
    at = sign["at"] if sign.get("generation") == generation else taken_at
    # A sign from further in the future than a lease says nothing.
    return at - _LEASE_MS <= oracle.world.clocks.local() < at + _LEASE_MS + more


def unreadable(oracle: Oracle, key: Key, expected: bytes | None, value: bytes) -> set[Place]:
    """Of a window that is pinned by this value of a head: what a reader does not find in Kafka now."""
    if key[0] != "head" or expected is None or (json.loads(expected).get("pending") or None) is not None:
        return set()
    pending = oracle.ledger.head_in(key[1], value).head.pending
    if pending is None:
        return set()
    from tests.simulation.oracle import each

    window, found = pending.window, set[Place]()
    for place in each(oracle.ledger.reads(window)):
        at = place[0]
        topic, log = oracle.world.kafka.held.get(at.topic), oracle.world.kafka.log(at.topic, at.partition)
        there = topic is not None and topic.topic_id == window.topic_ids.get(at.topic) and log is not None
        end = 0 if log is None else log.stable if window.isolation == READ_COMMITTED else log.end
        if not there or log is None or not log.start <= place[1] < end:
            found.add(place)
    return found


def holes_of(oracle: Oracle) -> set[Place]:
    """What the ingest has passed by without a window: from where it began to its positions."""
    from tests.simulation.oracle import each

    register, windows = oracle.ledger.register(), oracle.ledger.committed()
    assert register is not None
    positions = oracle.positions()
    passed = {
        (one.at, offset)
        for one in register[1].lanes[INGEST].start
        for offset in range(one.offset, positions.get(one.at, one.offset))
    }
    covered = {place for window in windows for place in each(window.covers)}
    gaps = [gap for window in windows for gap in window.record.window.gaps]
    named = {
        (gap.as_range().partition, offset)
        for gap in gaps
        if gap.kind in (GapKind.LOST, GapKind.SKIPPED)
        for offset in range(gap.as_range().start, gap.as_range().until)
    }
    return passed - covered - named


def check_verify_sees_damage(oracle: Oracle, which: int) -> None:
    """Whoever takes one record away, or changes one, is found by `verify`."""
    from tests.simulation.oracle import check

    store = oracle.world.store
    records = sorted(key for key in store.values if key[0] == "history")
    if not records:
        return
    key = records[which % len(records)]
    # The last window of a lane stands in its head, too, until it is settled.
    gone = which % 2 and ("history", key[1], sortable(int(key[2]) + 1)) in store.values
    copy = type(store)()
    copy.server_time, copy.values = store.server_time, dict(store.values)
    if gone:
        del copy.values[key]
    else:
        record = json.loads(copy.values[key])
        record["committed_at"] += 1
        copy.values[key] = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
    wrong = verify(Ledger(cast("Any", copy), oracle.ledger.stream, clock=oracle.world.clocks.local))
    how = "is gone" if gone else "was changed"
    check(wrong, f"{'/'.join(key)} {how}, and verify says that the ledger is whole")
