"""Erasing offsets: they lose their results in every sink, and no later request brings them back.

An erasure is a lane of its own. Its window covers the offsets and writes nothing of them, so nothing older counts there any
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tidemark.commit import protocol
from tidemark.errors import (
    AnotherRequest,
    AuthenticationFailed,
    NotAuthorized,
    StaleLedger,
    TidemarkError,
    TopicUnknown,
    Unreachable,
    WrongUse,
)
from tidemark.ledger.erasures import (
    Tombstone,
    erased_by_answer,
    gone_places,
    places_to_clear,
    places_written,
    still_there,
    tombstones,
)
from tidemark.ledger.ledger import CommittedSnapshot
from tidemark.ledger.records import (
    Erasure,
    Guarantee,
    LaneKind,
    RunRequest,
    SinkReceipt,
    each_place,
    positions,
)
from tidemark.ledger.register import NewLane, note_places, open_together
from tidemark.offsets.coordinates import Coordinate, in_four_parts, parse_records
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.reading import Reading
from tidemark.runs.live.kafka_now import held_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import answers, keys, selecting
from tidemark.runs.requests.approval import NOBODY_KNOWN, Requesters, check_approved
from tidemark.runs.requests.forms import EraseRequest
from tidemark.runs.requests.identity import fields_of_offsets
from tidemark.runs.requests.record_tables import named_records
from tidemark.runs.windows import lanes
from tidemark.runs.windows.empty_windows import commit_unread
from tidemark.sinks.contract import Erasing
from tidemark.sinks.kinds import admin_of

TO_ERASE = "to be erased"
_CLEARS = "an attempt was killed right after it had written them. Ask for the erasure once more, and they are cleared"


@dataclass(frozen=True)
class OffsetsToErase:
    """The offsets to erase, and those that were erased before, by their answer."""

    offsets: RangeSet
    before: Mapping[str, RangeSet]

    @property
    def named(self) -> RangeSet:
        """The requested offsets, whether they are to be erased or were erased before."""
        return self.offsets | self.erased_before

    @property
    def erased_before(self) -> RangeSet:
        return RangeSet(range_ for part in self.before.values() for range_ in part)

    @property
    def answers(self) -> dict[str, RangeSet]:
        """Each offset by what becomes of it, in words."""
        parts = {TO_ERASE: self.offsets, **self.before}
        return {why: part for why, part in parts.items() if part}


def wanted(
    opened: OpenStream, asked: EraseRequest, reading: Reading | None = None, most: int | None = None
) -> tuple[RangeSet, str]:
    """The offsets that a request names, and how they were found, in words: empty if the request names them itself.

    For a key, reads Kafka's messages of the stream, at up to `most` offsets, and `reading` counts them. Raises WrongUse naming
    the line, for example for an offset in three parts that no window has read, while another incarnation of the topic has it.
    """
    if asked.key:
        matching = keys.find_key(opened, keys.parse_key(asked.key), reading or Reading(), most)
        return matching.offsets, matching.sentence()
    written = parse_records(asked.records, "records")
    named = named_records(opened, asked.records_file) if asked.records_file else written
    offsets = selecting.in_known_incarnations(opened, named)
    _check_the_one_meant(opened, offsets - named.exact)
    return offsets, ""


def _check_the_one_meant(opened: OpenStream, offsets: RangeSet) -> None:
    """Raises WrongUse for offsets that no window has read, where windows have read them in another incarnation."""
    covered = opened.ledger.authority().covered()
    unread = offsets - covered
    for at in unread.partitions:
        for other in covered.partitions:
            there = (other.topic, other.partition) == (at.topic, at.partition)
            if there and (shared := (covered & RangeSet.of_intervals([(other, unread.of(at))])).of(other)):
                named, meant = (in_four_parts(Coordinate(end, shared[0][0])) for end in (at, other))
                raise WrongUse(
                    f"{Coordinate(at, shared[0][0])}: no window has read this message, but one has read {meant}. Nothing was "
                    f"changed. Say which you mean: {meant} (tidemark show {opened.ledger.stream} {meant}), or {named}"
                )


def choose(opened: OpenStream, wanted: RangeSet) -> OffsetsToErase:
    """Choose the offsets to erase. `wanted` has the incarnations filled in.

    Raises WrongUse for offsets that the ingest has not read yet.
    """
    if opened.stream.guarantee == Guarantee.NONE.value:
        raise WrongUse(
            f"{opened.ledger.stream} keeps no positions (guarantee: none), so its next run may read anything again: nothing "
            "can be erased for good"
        )
    view = opened.ledger.view()
    gone = erased_by_answer(view.windows)
    before = {why: part for why, offsets in gone.items() if (part := wanted & offsets)}
    wanted -= RangeSet(range_ for part in before.values() for range_ in part)
    if live := wanted - view.below:
        raise WrongUse(
            f"{answers.describe_answers({answers.THE_INGESTS: live})}. Only what was read can be erased, since the ingest "
            f"would read these again. Nothing was changed. Leave them out, or erase them after the next run (tidemark run "
            f"{opened.ledger.stream})"
        )
    return OffsetsToErase(wanted, before)


def digest(opened: OpenStream, chosen: OffsetsToErase) -> str:
    """The digest of what an erasure would do: stream file, offsets to erase, and the places of results.

    Neither what the ingest reads meanwhile nor which results count changes it: the same messages are erased.
    """
    hashed = sha256(f"erase {opened.ledger.stream} {opened.file.digest}\n".encode())
    for one in chosen.offsets:
        hashed.update(f"erase {one}\n".encode())
    for said in sorted({f"{one.name} {one.type} {_shown_place(one)}" for one in _places(opened)}):
        hashed.update(f"{said}\n".encode())
    return hashed.hexdigest()


def check(opened: OpenStream, plan: str, chosen: OffsetsToErase) -> None:
    """Raises StaleLedger when a request names the `plan` that was shown before, and by now it would do anything else."""
    if plan and digest(opened, chosen) != plan:
        raise StaleLedger(
            f"the plan {plan[:12]} of {opened.ledger.stream} is stale: since it was made, the offsets that would be erased, "
            "the places of results, or the stream file have changed. Nothing was changed. Plan again"
        )


def begun(opened: OpenStream, run: str, fields: Mapping[str, str] | None = None) -> OffsetsToErase | None:
    """The choice of an erasure of this run's name that has begun; None if none has.

    `fields` are those of a request: raises AnotherRequest when the erasure has begun with another one. Without
    `fields`, the caller goes on with what has begun.
    """
    asked = lanes.begun(opened, LaneKind.ERASE, run, fields)
    if asked is None:
        return None
    return OffsetsToErase(opened.ledger.selection(asked.erases) if asked.erases is not None else RangeSet(), {})


def requested(
    opened: OpenStream, run: str, asked: EraseRequest, fields: Mapping[str, str], reading: Reading | None = None
) -> tuple[OffsetsToErase, str]:
    """The choice of a run for a request, or the one that it has begun with, and how the offsets were found, as `wanted`.

    Raises StaleLedger where the request names a plan that is another one by now. Raises AnotherRequest where the run has
    begun with another request, and where it is done without all offsets that the request means now: a key has newer messages,
    for example. Raises LaneClosed where it was closed before it was done.
    """
    before = begun(opened, run, fields)
    if before is not None and not lanes.is_done(opened, lanes.lane_name(LaneKind.ERASE, run)):
        return before, ""
    # A run for a request without a key has claimed and erased all of it: the file of its records may be gone.
    offsets, how = (before.offsets, "") if before is not None and not asked.key else wanted(opened, asked, reading)
    chosen = choose(opened, offsets)
    if before is not None and chosen.offsets:
        others = number_of(
            chosen.offsets.count(), "offset", "that the request means now is", "that the request means now are"
        )
        raise AnotherRequest(
            f"the erasure of run {run} is done, and {others} not erased. "
            " Nothing was changed. Ask for them under another name of the run"
        )
    if before is None:
        check(opened, asked.plan, chosen)
    return chosen, how


def open_erasure(
    opened: OpenStream,
    run: str,
    chosen: OffsetsToErase,
    reason: str,
    by: Requesters = NOBODY_KNOWN,
    *,
    asked: Mapping[str, str] | None = None,
    plan: str = "",
) -> str:
    """Open the lane of an erasure, and claim its offsets. Returns the lane's name, which follows from the run's.

    `asked` has the fields of the request (`asked.fields_of`); without it, offsets and reason are the request. `plan` is the
    digest that the request names. If the run has begun with the same request, its lane is returned as it is.

    Raises StaleLedger where the erasure is not the named plan, AnotherRequest where the run has begun with another request,
    ClaimOverlap while another open lane has claimed some of the offsets, NotApproved for too many of them without a second
    person, and the error of a place that cannot be cleared now.
    """
    protocol.check_reason("an erasure", reason)
    ledger, lane = opened.ledger, lanes.lane_name(LaneKind.ERASE, run)
    if asked is None:
        asked = {**fields_of_offsets(erases=chosen.offsets), "reason": reason}
    if lanes.begun(opened, LaneKind.ERASE, run, asked) is not None:
        return lane
    if not chosen.offsets:
        raise WrongUse("there is nothing to erase: nothing was found that is not erased already")
    # It may have waited for a second person.
    check(opened, plan, chosen)
    protocol.check_nobody_writes(opened.ledger, chosen.offsets)
    check_approved(opened.stream.limits.approve_above, chosen.offsets.count(), by)
    _check_places(opened)
    claim = ledger.store_selection(chosen.offsets)
    open_together(
        ledger,
        NewLane(
            lane=lane,
            kind=LaneKind.ERASE,
            run=run,
            start=positions({range_.partition: range_.start for range_ in chosen.offsets.hull()}),
            selection=claim,
            reason=reason,
            asked_by=by.asked,
            approved_by=by.approved,
            erases=Erasure(selection=claim, asked_by=by.asked, approved_by=by.approved),
            asked=RunRequest(fields=dict(asked), selection=claim, erases=claim),
        ),
    )
    return lane


def _check_places(opened: OpenStream) -> None:
    """Before the commit: a place that cannot be cleared would stop the settling of every later run."""
    # Attempts of a version that noted no places may have written where the stream file says.
    note_places(opened.ledger, still_there(opened.ledger, opened.places_now()))
    opened.sweeper.reach(opened.ledger.stream, places_to_clear(opened.ledger))


def erase(opened: OpenStream, lane: str, run: str, *, take_over: bool = False) -> None:
    """Commit the window of an erasure's lane, and close the lane. Raises what planning and `commit_unread` raise."""
    if (pending := lanes.plan_lane(opened, lane, run)) is not None:
        commit_unread(opened, lane, pending.window.seq, run, take_over=take_over)
    lanes.finish(opened, lane)


@dataclass(frozen=True)
class ErasureResult:
    """The erased offsets of an erasure, their tombstones and their answers."""

    erased: RangeSet
    tombstones: list[Tombstone]
    answers: Mapping[str, RangeSet]


def done(opened: OpenStream, lane: str) -> ErasureResult:
    """The commits of an erasure until now."""
    committed = [window for window in opened.ledger.committed() if window.record.lane == lane]
    stones = tombstones(committed)
    erased = RangeSet(part for range_ in stones for part in range_.offsets)
    return ErasureResult(erased, stones, erased_by_answer(committed))


@dataclass(frozen=True)
class Remaining:
    """A place with results of erased offsets, and what it still holds of them; empty for nothing."""

    name: str
    type: str
    place: Mapping[str, str]
    remains: str

    def where(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.place.items())

    def as_fields(self) -> dict[str, Any]:
        return {"name": self.name, "type": self.type, "place": dict(self.place), "remains": self.remains}


def remaining(opened: OpenStream, offsets: RangeSet) -> list[Remaining]:
    """Every place where attempts may have written, and Kafka itself, with what they hold once some offsets are erased."""
    gone, standing = gone_places(opened.ledger), opened.ledger.standing()
    places = [
        Remaining(
            place.name,
            place.type,
            _shown_place(place),
            f"not cleared: {gone[place.as_place].said()}"
            if place.as_place in gone
            else _left_there(opened, place, offsets, standing),
        )
        for place in _places(opened)
    ]
    return [*places, *_in_kafka(opened, offsets)]


def _shown_place(place: SinkReceipt) -> dict[str, str]:
    return {name: value for name, value in place.place.items() if name != "folder"}


def _left_there(opened: OpenStream, place: SinkReceipt, offsets: RangeSet, standing: CommittedSnapshot) -> str:
    try:
        admin = admin_of(place.type)
        said = [admin.remains(opened, place.name, offsets)]
        done = _done(standing, offsets) if place.place else []
        late = admin.late(opened.connections, place.place, done) if done else 0
        said.append(f"{late} of its rows or files came late: {_CLEARS}" if late else "")
        return "; ".join(filter(None, said))
    except TidemarkError as problem:
        return f"not known: {problem}"


def _done(standing: CommittedSnapshot, offsets: RangeSet) -> list[Erasing]:
    """The erased part of some offsets, by each window that has erased any."""
    erased_by = ((one, one.erased & offsets) for one in standing.windows)
    return [Erasing(one.record, erased, standing) for one, erased in erased_by if erased]


def clear_again(opened: OpenStream, offsets: RangeSet) -> None:
    """Clear every place once more of those offsets that were erased before.

    An attempt that was paused may have written some of them after the erasure, and have been killed before it found out.
    """
    # Most requests name nothing that was erased before, and all windows are read to look it up.
    done = _done(opened.ledger.standing(), offsets) if offsets else []
    places = places_to_clear(opened.ledger) if done else []
    for one in done:
        opened.sweeper.erase(one.record, one.erased, places)


def _places(opened: OpenStream) -> tuple[SinkReceipt, ...]:
    return each_place((*(place for _, place in places_written(opened.ledger)), *opened.places_now()))


def _in_kafka(opened: OpenStream, erased: RangeSet) -> Iterable[Remaining]:
    """Kafka's own copy, by topic. Tidemark cannot remove it."""
    for topic in sorted({at.topic for at in erased.partitions}):
        offsets = erased.only(at for at in erased.partitions if at.topic == topic)
        try:
            held = (held_now(opened, (topic,)) & offsets).count()
            said = f"{held} of {number_of(offsets.count(), 'offset')}, until Kafka deletes them" if held else ""
        except (Unreachable, NotAuthorized, AuthenticationFailed, TopicUnknown) as problem:
            said = f"not known: {type(problem).__name__}: {problem}"
        yield Remaining("the source", "kafka", {"topic": topic}, said)
