"""Working through the lanes that a run has claimed: window after window, one lane after another or several at once."""

from __future__ import annotations

from tidemark.cli.output import error
from tidemark.cli.submitting import process, process_together
from tidemark.ledger.records import Pending
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import claims, plan
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.requests.forms import ReplayRequest
from tidemark.runs.windows import lanes


def work_off(
    opened: OpenStream, command: str, jobs: list[list[str]], run: str, *, take_over: bool, verbose: bool
) -> None:
    """Process the lanes of a run: those of one job one after the other, those of several at the same time."""
    if len(jobs) == 1:
        for lane in jobs[0]:
            process(opened, command, lane, run, _pending(opened, lane, run), take_over=take_over, verbose=verbose)
        return
    process_together(opened, command, lanes.left_of(opened, jobs), run, take_over=take_over, verbose=verbose)
    # A lane that was cancelled has stopped none of the others. The run has not read everything, and says so.
    lanes.left_of(opened, jobs)


def repair(
    opened: OpenStream,
    run: str,
    request: ReplayRequest,
    people: Requesters,
    command: str,
    *,
    verbose: bool,
) -> None:
    """Replay an audit's findings."""
    mine = claims.claim(opened, plan.plan_request(opened, request, run), run, people)
    work_off(opened, command, [mine], run, take_over=False, verbose=verbose)


def _pending(opened: OpenStream, lane: str, run: str) -> Pending | None:
    pending = lanes.plan_lane(opened, lane, run)
    if pending is None:
        lanes.finish(opened, lane)
        error("everything selected has been read")
    return pending
