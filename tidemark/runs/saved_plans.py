"""Plans of the next ingest as files. A plan is saved, compared with what would be read now, and later read exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from tidemark.errors import AnotherRequest, Conflict, SourceChanged, StaleLedger, WrongUse
from tidemark.ledger.codec import converted
from tidemark.ledger.records import INGEST, Guarantee, Head, LaneKind, Pending, Position, Window, positions
from tidemark.ledger.register import open_lane
from tidemark.planning.inputs import Known
from tidemark.runs import lanes, pinning
from tidemark.runs.discovery import known_now, with_epoch_ends
from tidemark.runs.open_stream import OpenStream
from tidemark.runs.since_pin import changes_since_pin

_FORMAT = 1
# A plan over some thousand partitions takes a megabyte. A much larger file is no plan.
_MOST_BYTES = 64 * 1024 * 1024


class SavedPlan(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A planned window that is not pinned, and its basis: the number of committed windows, positions, topic ids.

    `digest` is the SHA-256 of the other fields as canonical JSON: keys sorted, no spaces.
    """

    format: int = _FORMAT
    stream: str
    stream_digest: str
    made_at: int
    seq: int
    positions: tuple[Position, ...]
    window: Window
    digest: str = ""


def make(opened: OpenStream) -> SavedPlan | None:
    """The plan of the next ingest as it is now; None when nothing is new. Writes nothing."""
    head = opened.book.head(INGEST)
    window, _ = lanes.preview(opened)
    if window is None:
        return None
    if window.seq != (head.head.seq if head else 0) + 1:
        raise Conflict(f"a window of {opened.book.stream} was committed while this plan was made: plan again")
    plan = SavedPlan(
        stream=opened.book.stream,
        stream_digest=opened.file.digest,
        made_at=opened.book.clock(),
        seq=window.seq - 1,
        positions=head.head.positions if head else _begins(window),
        window=window,
    )
    return structs.replace(plan, digest=_digest(msgspec.to_builtins(plan)))


def save(plan: SavedPlan, path: Path) -> None:
    """Write a plan into a new file. Raises WrongUse when the file cannot be written, or exists already."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(msgspec.to_builtins(plan), indent=1) + "\n")
    except OSError as problem:
        raise WrongUse(f"{path}: the plan cannot be written: {problem.strerror}") from problem


def load(path: Path) -> SavedPlan:
    """A plan from its file. Raises WrongUse when the file is no plan, or was changed since it was saved."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as problem:
        raise WrongUse(f"{path}: cannot be read: {problem.strerror}") from problem
    if len(raw) > _MOST_BYTES:
        raise WrongUse(f"{path}: not a saved plan: it has more than {_MOST_BYTES} bytes")
    try:
        values = json.loads(raw)
    except ValueError as problem:
        raise WrongUse(f"{path}: not a saved plan: {problem}") from None
    if not isinstance(values, dict) or values.get("format") != _FORMAT:
        raise WrongUse(f"{path}: not a plan of format {_FORMAT}, as `tidemark plan --save` writes it")
    expected = _digest(values)
    if values.get("digest") != expected:
        raise WrongUse(
            f"{path}: was changed by hand: its digest is {values.get('digest')}, that of its contents {expected}. Plan anew."
        )
    try:
        return converted(values, SavedPlan)
    except msgspec.ValidationError as problem:
        raise WrongUse(f"{path}: not a saved plan: {problem}") from None


def differences(saved: SavedPlan, now: SavedPlan | None) -> list[dict[str, Any]]:
    """The differences between a saved plan and the plan of now, one line each. Pure."""
    before, after = _facts(saved), _facts(now) if now is not None else {}
    return [
        {"what": what, "saved": before.get(what), "now": after.get(what)}
        for what in dict.fromkeys([*before, *after])
        if before.get(what) != after.get(what)
    ]


def pin(opened: OpenStream, saved: SavedPlan, run: str) -> Pending | None:
    """Pin exactly the window of a plan; the run goes no further. Uses the window that an earlier try has pinned.

    None when an earlier try of the run has committed the window. Raises AnotherRequest when the run has committed others,
    StaleLedger when the ledger has moved on since, and SourceChanged when Kafka has changed since.
    """
    book = opened.book
    if saved.stream != book.stream:
        raise WrongUse(f"the plan is one of the stream {saved.stream}, this is {book.stream}")
    ends = positions({one.at: one.until for one in saved.window.ranges})
    window = structs.replace(saved.window, run=run, pinned_at=book.clock(), goal=ends, plan=saved.digest)
    before = lanes.committed_before(opened, INGEST, run)
    if any(one.seq == window.seq and _same(one.window, window) for one in before):
        return None
    found = book.head(INGEST)
    if found is not None:
        _check(saved, window, found.head)
    if before:
        raise AnotherRequest(
            f"run {run} of {book.stream} has read window {before[-1].seq}, which is not this plan's. A run's name stands for "
            "one request. Nothing was changed. Carry out the plan under another name of the run, or without one"
        )
    changes = changes_since_pin(opened.log, window, window.hull())
    known = known_now(opened, tuple(window.topic_ids), learn=not changes)
    strangers = sorted({one.topic for one in window.ranges if known.incarnations.get(one.topic) != one.incarnation})
    if changes or strangers:
        changes += [f"topic {topic} is not the one that the ledger knows" for topic in strangers]
        raise SourceChanged(
            f"Kafka has changed since the plan was made: {'; '.join(changes)}. Nothing was changed; plan anew."
        )
    if found is not None:
        known = with_epoch_ends(opened, known, found.head)
    else:
        open_lane(book, INGEST, LaneKind.INGEST, run=run, start=saved.positions)

    def planned(head: Head) -> tuple[Window, Known]:
        _check(saved, window, head)
        return window, known

    pending = pinning.pin(opened, INGEST, planned)
    if pending is not None and not _same(pending.window, window):
        raise _stale(saved, f"window {pending.window.seq} is pinned with other ranges, by run {pending.window.run}")
    return pending


def _check(saved: SavedPlan, window: Window, head: Head) -> None:
    if head.seq != saved.seq:
        by = f", the last one by run {head.last.attempt.run}" if head.last else ""
        raise _stale(saved, f"{head.seq} windows are committed, {saved.seq} were when the plan was made{by}")
    if head.positions != saved.positions:
        raise _stale(saved, "its positions are others than when the plan was made")
    if head.pending is not None and not _same(head.pending.window, window):
        raise _stale(
            saved, f"window {head.pending.window.seq} is pinned with other ranges, by run {head.pending.window.run}"
        )


def _stale(saved: SavedPlan, why: str) -> StaleLedger:
    return StaleLedger(f"the ledger of {saved.stream} has moved on since the plan was made: {why}. Plan anew.")


def _same(left: Window, right: Window) -> bool:
    return _read_so(left) == _read_so(right)


def _read_so(window: Window) -> Window:
    """A window without its run, its time, and the plan that it was asked for by."""
    return structs.replace(window, run="", pinned_at=0, goal=(), plan=None)


def _begins(window: Window) -> tuple[Position, ...]:
    """The positions that a first window starts from, before its gaps. Empty if the stream keeps no positions."""
    if window.guarantee == Guarantee.NONE:
        return ()
    begins = {one.at: one.start for one in window.ranges}
    for gap in window.gaps:
        at = gap.as_range().partition
        begins[at] = min(gap.start, begins[at])
    return positions(begins)


def _facts(plan: SavedPlan) -> dict[str, str]:
    window = plan.window
    return {
        "stream file": plan.stream_digest,
        "window": str(window.seq),
        "isolation": window.isolation,
        **{f"id of topic {topic}": topic_id for topic, topic_id in sorted(window.topic_ids.items())},
        **{f"position of {one.at}": str(one.offset) for one in plan.positions},
        **{f"range of {one.at}": f"[{one.start}, {one.until})" for one in window.ranges},
        **{f"{gap.kind.value} {gap.as_range()}": gap.policy for gap in window.gaps},
    }


def _digest(values: Mapping[str, Any]) -> str:
    content = {key: value for key, value in values.items() if key != "digest"}
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
