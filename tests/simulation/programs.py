"""What people and Airflow do: the commands of the product, with windows worked off in memory instead of by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from tests.simulation.actors import CLAIMED, CLAIMING, DRAWN, current, reached
from tests.simulation.audits import audit, audited
from tests.simulation.compaction import compacted
from tests.simulation.work import Place, Ready, heard
from tests.simulation.world import now, opened_here
from tidemark.cli import confirmation, lanes_of_runs, stream_lookup, submitting
from tidemark.cli.commands import audit as audit_command
from tidemark.cli.commands import backups, compact, erase, ledger, replay, steer
from tidemark.cli.commands import run as run_command
from tidemark.commit import protocol
from tidemark.commit.protocol import HeldWindow, Listener, Planner, Step, Sweeper, nobody
from tidemark.errors import Fenced
from tidemark.ledger.ledger import Ledger, LedgerSnapshot
from tidemark.ledger.records import INGEST, LaneKind, Pending, Receipt, Record
from tidemark.ledger.register import NewLane, draw_generation, open_together
from tidemark.offsets.coordinates import Coordinate, in_four_parts
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.times import in_iso
from tidemark.runs import erasing as runs_erasing
from tidemark.runs import processing
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import claims, plan
from tidemark.runs.requests.plan import Plan
from tidemark.runs.windows import lanes

STREAM = "orders"


@dataclass
class Request:
    """What somebody has asked for, under a run's name. `named`: the messages that it names."""

    kind: LaneKind
    run: str
    named: frozenset[Place]
    sinks: tuple[str, ...] | None = None
    dry: bool = False
    key: str = ""
    # Milliseconds since 1970, instead of messages; then `named` is what the command finds, and it has to find these.
    since: int | None = None
    must_find: frozenset[Place] = frozenset()
    # A redrive of every dead letter with this reason, or of all; `named` is what the command finds.
    letters: str = ""
    # How an audit repairs what it finds: `named` is that. Its lane goes on by its name alone.
    repair: str = ""
    opened: bool = False
    # Which of the oracle's states was the last when somebody asked.
    state: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    # What counted in each sink when this was planned: which generation at each message that a window has read.
    planned: dict[str | None, dict[Place, int]] | None = None
    # What the command has printed as JSON.
    said: list[Any] = field(default_factory=list)
    # What it would read.
    chosen: set[Place] = field(default_factory=set)
    # Whether it has gone on with what another of its name had begun.
    begun: bool = False
    # Its plan, which it claims offsets for.
    claims: Plan | None = None
    # What it has said that it leaves out.
    left_out: set[Place] = field(default_factory=set)

    @property
    def asks_for(self) -> object:
        """What it asks for: a run's name stands for one such."""
        finds = self.key or self.since is not None or self.letters or self.repair
        return None if finds else self.named, self.key, self.since, self.letters, self.repair, self.sinks

    def begin(self) -> None:
        """The command, as a person types it, the first time and to go on."""
        if self.repair and not self.opened:
            audit(f"audit of {self.run}", self.repair)
            return
        records = [in_four_parts(Coordinate(at, offset)) for at, offset in sorted(self.named)]
        what: dict[str, Any] = {"key": self.key} if self.key else {"records": records}
        if self.since is not None:
            what = {"since": in_iso(self.since)}
        if self.letters:
            what = {"dead_letters": self.letters}
        if self.repair:
            # It names nothing else, which its fields would be compared with.
            replay.replay(STREAM, run_name=self.run, yes=True, as_json=True)
            return
        what |= {"reason": "a bug", "run_name": self.run, "dry_run": self.dry, "yes": True, "as_json": True}
        if self.kind == LaneKind.ERASE:
            erase.erase(STREAM, **what)
        elif self.kind == LaneKind.REPLAY:
            replay.replay(STREAM, **what, **self.options, sinks=list(self.sinks) if self.sinks else None)
        else:
            replay.backfill(STREAM, **what, **self.options)


def ingest(run: str, *, take_over: bool = False) -> None:
    _takes_over(take_over)
    run_command.run(STREAM, run_name=run, take_over=take_over, as_json=True)


def _takes_over(takes_over: bool) -> None:
    actor = current()
    assert actor is not None
    actor.takes_over = takes_over


def cancel(lane: str) -> None:
    steer.cancel(STREAM, lane=lane, reason="it was wrong", yes=True, as_json=True)


def abandon(lane: str, *, take_over: bool) -> None:
    _takes_over(take_over)
    ledger.abandon(STREAM, lane=lane, reason="it was wrong", take_over=take_over, yes=True)


def skip(to: Sequence[str]) -> None:
    ledger.skip(STREAM, to=list(to), reason="nobody needs them", yes=True, as_json=True)


def back_up_for_good(path: Path) -> None:
    """The last backup of a ledger that moves: from then on no run uses it."""
    backups.backup(STREAM, file=path, final=True, reason="it moves", yes=True)


def pause(lane: str) -> None:
    steer.pause(STREAM, lane, "not now")


def resume(lane: str) -> None:
    steer.resume(STREAM, lane)


def work_off(opened: OpenStream, lane: str, seq: int, run: str, *, take_over: bool) -> None:
    """The job that processes windows, with its own loop."""
    ready: Any = Ready(now(), opened, lane)
    wait: Callable[[float], None] = now().clocks.sleep
    processing.process_windows(ready, seq, run, take_over=take_over, on_step=heard, wait=wait)


def _process(
    opened: OpenStream,
    command: str,
    lane: str,
    run: str,
    pending: Pending | None,
    *,
    take_over: bool = False,
    verbose: bool = False,
) -> None:
    if pending is not None:
        work_off(opened_here(), lane, pending.window.seq, run, take_over=take_over)


def _process_together(
    opened: OpenStream,
    command: str,
    jobs: Sequence[Sequence[str]],
    run: str,
    *,
    take_over: bool = False,
    verbose: bool = False,
) -> None:
    """One job after the other: that they work at the same time is left to those that sleep. One that fails stops no other."""
    failed: Exception | None = None
    for job in jobs:
        try:
            for lane in job:
                pending = lanes.plan_lane(opened, lane, run)
                if pending is None:
                    lanes.finish(opened, lane)
                else:
                    work_off(opened, lane, pending.window.seq, run, take_over=take_over)
        except Exception as problem:
            failed = failed or problem
    if failed is not None:
        raise failed


# What a bug is planted in is found behind these: each says what it wraps.
_really_open, _really_planned, _find = open_together, plan.plan_request, runs_erasing.wanted


@wraps(_really_open)
def _open_together(ledger: Ledger, *wanted: NewLane, judge: Callable[[LedgerSnapshot], None]) -> Any:
    """The lanes of a plan are entered. When its request was judged last, a plan had to be what it has shown.

    Whoever was judged by an old view is judged again, if anything was entered meanwhile.
    """
    request = getattr(current(), "request", None)
    reached(CLAIMING)
    stale: list[AssertionError] = []

    def judged(view: LedgerSnapshot) -> None:
        judge(view)
        stale.clear()
        if request is not None and request.planned is not None and request.claims is not None:
            try:
                now().accepts(request, request.claims.all)
            except AssertionError as problem:
                stale.append(problem)

    found = _really_open(ledger, *wanted, judge=judged)
    if stale:
        raise stale[0]
    reached(CLAIMED)
    return found


@wraps(_really_planned)
def _of_request(opened: OpenStream, asked: Any, *more: Any) -> Plan:
    found = _really_planned(opened, asked, *more)
    request = getattr(current(), "request", None)
    if request is not None:
        request.begun = bool(found.begun)
    if request is not None and not found.begun:
        request.claims = found
        request.chosen = {(one.partition, at) for one in found.all for at in range(one.start, one.until)}
        request.left_out |= _places(found.left_out)
        if request.repair:
            request.named = frozenset(request.chosen)
        elif request.since is not None or request.letters:
            request.named = frozenset(request.chosen)
            found_by = now().found_since if request.since is not None else now().found_letters
            found_by(request)
    return found


def _places(parts: Mapping[str, RangeSet]) -> set[Place]:
    return {(one.partition, at) for part in parts.values() for one in part for at in range(one.start, one.until)}


_really_check = plan._check


@wraps(_really_check)
def _checked(asked: Any, selected: Any) -> None:
    """The answers to what was asked for, before a request is refused since nothing is left of it."""
    now().answered(current(), selected.left_out)
    request = getattr(current(), "request", None)
    if request is not None:
        request.left_out |= _places(selected.left_out)
    _really_check(asked, selected)


@wraps(_find)
def _wanted(opened: OpenStream, asked: Any, *more: Any) -> Any:
    """What an erasure of a key has found in Kafka and among the dead letters: from now on the request names that."""
    found, how = _find(opened, asked, *more)
    request = getattr(current(), "request", None)
    if request is not None and request.key:
        request.named = frozenset((one.partition, at) for one in found for at in range(one.start, one.until))
        now().found_by_key(int(request.key), request.named)
    return found, how


_really_commit = protocol.commit


@wraps(_really_commit)
def _commit(ledger: Ledger, taken: HeldWindow, receipt: Receipt | None, on_step: Listener = nobody) -> Record:
    """What an attempt is told of its commit is noted."""
    place = taken.stored.head.lane, taken.pending.window.seq, taken.attempt.token
    try:
        record = _really_commit(ledger, taken, receipt, on_step)
    except Fenced:
        now().told(*place, False)
        raise
    now().told(*place, True)
    return record


_really_pin = protocol.pin


@wraps(_really_pin)
def _pin(ledger: Ledger, sweeper: Sweeper, lane: str, planner: Planner, on_step: Listener = nobody) -> Pending | None:
    """A window is pinned by a program of its own, before the job that takes it: whoever pins may stop right after it."""

    def both(step: Step) -> None:
        on_step(step)
        heard(step)

    return _really_pin(ledger, sweeper, lane, planner, both)


_really_draw = draw_generation


@wraps(_really_draw)
def _draw(*what: Any) -> tuple[int, str, int]:
    found = _really_draw(*what)
    reached(DRAWN)
    return found


def _data(value: Any, **_: Any) -> None:
    actor = current()
    request = getattr(actor, "request", None)
    if request is not None and value is not None:
        request.said.append(value)


def _quiet(*_: object, **__: object) -> None: ...


@contextmanager
def commands() -> Iterator[None]:
    """While the block runs, the commands work in the simulated world, and print nothing."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(stream_lookup, "opened", opened_here))
        for module in (run_command, lanes_of_runs):
            stack.enter_context(patch.object(module, "process", _process))
        stack.enter_context(patch.object(lanes_of_runs, "process_together", _process_together))
        stack.enter_context(patch.object(plan, "plan_request", _of_request))
        stack.enter_context(patch.object(plan, "_check", _checked))
        stack.enter_context(patch.object(runs_erasing, "wanted", _wanted))
        stack.enter_context(patch.object(protocol, "commit", _commit))
        stack.enter_context(patch.object(protocol, "draw_generation", _draw))
        stack.enter_context(patch.object(protocol, "pin", _pin))
        stack.enter_context(compacted(opened_here))
        stack.enter_context(audited(opened_here))
        stack.enter_context(patch.object(claims, "open_together", _open_together))
        quiets = (
            run_command,
            replay,
            lanes_of_runs,
            erase,
            steer,
            submitting,
            compact,
            confirmation,
            audit_command,
            ledger,
            backups,
        )
        for module in quiets:
            for name, quiet in (("error", _quiet), ("line", _quiet), ("data", _data), ("show_answers", _quiet)):
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, quiet))
        stack.enter_context(patch.object(replay, "show_estimate", _quiet))
        yield


# What a command ends with besides a TidemarkError.
EXITS = (typer.Exit,)
__all__ = [
    "EXITS",
    "INGEST",
    "Request",
    "abandon",
    "back_up_for_good",
    "cancel",
    "commands",
    "ingest",
    "pause",
    "resume",
    "skip",
]
