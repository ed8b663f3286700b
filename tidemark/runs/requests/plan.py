"""The plan of a backfill or a replay: what it reads and replaces, and the answer to each offset that it leaves out.

`of_request` is the way of a request, stage by stage. From there a plan travels whole: a dry run shows it, a second person
approves it, and `claims.claim` opens lanes for it. Whoever has seen a plan starts the run with its digest: if the run would
read or replace anything else, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from tidemark.errors import StaleLedger, WrongUse
from tidemark.ledger.erasures import erased
from tidemark.ledger.ledger import NOTHING, Committed, LedgerSnapshot
from tidemark.ledger.nearby import view_near
from tidemark.ledger.records import LaneKind
from tidemark.offsets.authority import Segment
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.estimating import StoredMessages
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import answers, selecting
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.identity import fields_of
from tidemark.runs.requests.selecting import SelectedOffsets
from tidemark.runs.windows import chosen_sinks, estimates, lanes
from tidemark.runs.windows.chosen_sinks import Sinks

Request = BackfillRequest | ReplayRequest


@dataclass(frozen=True)
class Plan:
    """The offsets of a request and their reasons, all decided by one `view` of the ledger.

    A run reads `ranges`, and a backfill may read `again` offsets that windows have read. `left_out` has the other requested
    offsets by their answer. `fields` is the request as the ledger keeps it; `begun` says that a run has claimed all of this
    already.
    """

    request: Request
    fields: Mapping[str, str]
    sinks: Sinks
    ranges: RangeSet
    again: RangeSet
    left_out: Mapping[str, RangeSet]
    # The known dead letters now.
    dead: RangeSet
    view: LedgerSnapshot = field(compare=False, repr=False)
    begun: bool = False

    @property
    def kind(self) -> LaneKind:
        return self.request.kind

    @property
    def all(self) -> RangeSet:
        """All that is read."""
        return self.ranges | self.again if self.again else self.ranges

    def answers(self) -> dict[str, RangeSet]:
        """Every requested offset, by what the run will do with it or why it does not."""
        read = {answers.TO_READ: self.ranges, answers.TO_READ_AGAIN: self.again}
        return {**{why: part for why, part in read.items() if part}, **self.left_out}


@dataclass(frozen=True)
class Replaced:
    """A committed window, and its offsets whose results a run replaces."""

    window: Committed
    offsets: RangeSet


def plan_request(opened: OpenStream, request: Request, run: str = "", written: Mapping[str, str] | None = None) -> Plan:
    """Plan a request. A run of this name that has begun goes on with its claims.

    `written` has fields as they were written, for those that a command has filled in. Nothing is changed. Raises
    WrongUse when nothing can be read, unless this is a dry run, and for a `strict` request when any offset cannot be
    read; StaleLedger when the request names another plan; AnotherRequest when the run has begun with another request.
    Raises TopicGone, TopicRecreated, OffsetsOutOfRange, Unreachable.
    """
    before = lanes.begun(opened, request.kind, run) if run else None
    fields = {**fields_of(opened, request, before), **(written or {})}
    if before is not None and (begun := plan_of_run(opened, request, run, fields)) is not None:
        return begun
    view, named = _look(opened, request)
    selected = selecting.select(opened, view, request, named)
    _check(request, selected)
    plan = plan_offsets(opened, request, selected.ranges, selected.again, fields=fields, view=view)
    check(opened, plan, view)
    return replace(plan, left_out=selected.left_out, dead=selected.dead)


def _look(opened: OpenStream, request: Request) -> tuple[LedgerSnapshot, RangeSet | None]:
    """The ledger as far as a request asks for it, and the offsets that it names; None where only the ledger tells these."""
    named = selecting.named_alone(opened, request)
    return opened.ledger.view() if named is None else view_near(opened.ledger, named), named


def plan_offsets(
    opened: OpenStream,
    request: Request,
    ranges: RangeSet,
    again: RangeSet = NOTHING,
    *,
    fields: Mapping[str, str],
    view: LedgerSnapshot | None = None,
) -> Plan:
    """The plan to read some readable offsets. Erased ones are never read."""
    view = view or opened.ledger.view()
    gone = erased(view.windows)
    return _plan(opened, view, request, fields, ranges - gone, again - gone)


def plan_of_run(opened: OpenStream, request: Request, run: str, fields: Mapping[str, str]) -> Plan | None:
    """The plan that a run has begun, by what it has claimed; None when no run of this name has begun. Raises AnotherRequest."""
    before = lanes.begun(opened, request.kind, run, fields)
    if before is None:
        return None
    ranges, again = (
        opened.ledger.selection(ref) if ref is not None else NOTHING for ref in (before.selection, before.again)
    )
    return _plan(opened, opened.ledger.view(), request, fields, ranges, again, begun=True)


def _plan(
    opened: OpenStream,
    view: LedgerSnapshot,
    request: Request,
    fields: Mapping[str, str],
    ranges: RangeSet,
    again: RangeSet,
    *,
    begun: bool = False,
) -> Plan:
    return Plan(
        request=request,
        fields=fields,
        sinks=chosen_sinks.named(opened, request.sinks),
        ranges=ranges,
        again=again,
        left_out={},
        dead=NOTHING,
        view=view,
        begun=begun,
    )


def _check(request: Request, selected: SelectedOffsets) -> None:
    what = request.kind.value
    if request.strict and selected.left_out:
        number = sum(part.count() for part in selected.left_out.values())
        raise WrongUse(
            f"strict: {number_of(number, 'offset')} cannot be read by a {what}. {answers.describe_answers(selected.left_out)}. "
            "Nothing was changed. Leave these offsets out, or leave out strict (--strict): the others are then read"
        )
    if not selected.ranges and not selected.again and not request.dry_run:
        raise WrongUse(
            f"there is nothing to {what}: {answers.describe_answers(selected.left_out) or 'the selection is empty'}"
        )


def check(opened: OpenStream, plan: Plan, now: LedgerSnapshot) -> None:
    """Raises StaleLedger when its request names a plan, and by the ledger as it is `now` the run would do anything else."""
    wanted = plan.request.plan
    if wanted and digest(opened, plan, now) != wanted:
        raise StaleLedger(
            f"the plan {wanted[:12]} of {opened.ledger.stream} is stale: since it was made, the offsets that a "
            f"{plan.kind.value} would read, its sinks, the windows that it would replace, or the stream file have changed. "
            "Nothing was changed. Plan again"
        )


def digest(opened: OpenStream, plan: Plan, now: LedgerSnapshot | None = None) -> str:
    """The digest of a plan: stream file, sinks, offsets, and the generation of the results in its view, or `now`.

    Each sink that the run writes counts: one that was written alone may have other results. Nothing outside of the
    offsets changes the digest, such as the reading of the ingest.
    """
    view, request = now or plan.view, plan.request
    checksum = sha256(
        f"{plan.kind.value} {opened.ledger.stream} {opened.file.digest} {sorted(request.sinks)}\n".encode()
    )
    for name, part in (("read", plan.ranges), ("again", plan.again)):
        for range_ in part:
            checksum.update(f"{name} {range_}\n".encode())
        for sink, at, start, until, generation in _authority(opened, view, request, part):
            checksum.update(f"replaces {sink} {at} {start} {until} {generation}\n".encode())
    return checksum.hexdigest()


def _authority(
    opened: OpenStream, view: LedgerSnapshot, request: Request, chosen: RangeSet
) -> Iterator[tuple[str, TopicPartition, int, int, int]]:
    """The authority at some offsets, in each sink that a run writes; with all sinks, also for the dead letters.

    Sinks with the same authority there come once, whatever counts for them elsewhere: a view may not know that.
    """
    seen: list[list[tuple[TopicPartition, Segment]]] = []
    for name in request.sinks or (None, *(sink.name for sink in opened.stream.sinks)):
        authority = view.of(name).authority
        counts = [(part.partition, segment) for part in chosen for segment in authority.within(part)]
        if counts in seen:
            continue
        seen.append(counts)
        for at, segment in counts:
            yield name or "", at, segment.start, segment.until, segment.generation


def replaced(opened: OpenStream, plan: Plan) -> list[Replaced]:
    """The windows whose results a run replaces, in any sink that it writes, the newest first."""
    ranges: dict[int, list[OffsetRange]] = {}
    for _, at, start, until, generation in _authority(opened, plan.view, plan.request, plan.all):
        ranges.setdefault(generation, []).append(OffsetRange(at, start, until))
    windows = {window.generation: window for window in plan.view.windows}
    return [Replaced(windows[generation], RangeSet(ranges[generation])) for generation in sorted(ranges, reverse=True)]


def estimated(opened: OpenStream, plan: Plan) -> dict[str, Any] | None:
    """The time and size of the run, by the last windows of the ingest; None before the first window."""
    return estimates.estimated(opened, plan.all, plan.request.rate or opened.stream.limits.max_records_per_second)


def stored_now(opened: OpenStream, plan: Plan) -> StoredMessages:
    """How many messages of what is read have rows now, in the sinks that the run writes."""
    return estimates.stored_now(opened, plan.view, plan.all, plan.sinks, plan.dead)


def kept(opened: OpenStream, plan: Plan) -> dict[str, Any]:
    """A plan for the next task of a DAG, which `restored` reads: its offsets are in the ledger, by their digests."""
    parts = {"selection": plan.all, "again": plan.again}
    return {
        **{name: opened.ledger.store_selection(part).digest if part else "" for name, part in parts.items()},
        "asked": dict(plan.fields),
    }


def restored(opened: OpenStream, request: Request, run: str, value: Mapping[str, Any]) -> Plan:
    """The plan that an earlier task has `kept`, by the ledger as it is now: what was approved is what is read."""
    fields = value["asked"]
    if (begun := plan_of_run(opened, request, run, fields)) is not None:
        return begun
    whole, again = (
        selecting.stored_selection(opened, value[name]) if value.get(name) else NOTHING
        for name in ("selection", "again")
    )
    return plan_offsets(opened, request, whole - again, again, fields=fields)
