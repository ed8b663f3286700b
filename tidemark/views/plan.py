"""The page of a plan: what a backfill or replay would read, the answer to each other offset, and what it replaces.

The same as a dry run on the command line or in Airflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.ledger.incarnations import Topics, written_partition
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.planning.estimating import Estimate
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import plan
from tidemark.runs.requests.answers import OffsetAnswer, exact, totals
from tidemark.runs.requests.approval import needs_approval
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.plan import Plan, Replaced
from tidemark.views.values import Number, PartitionRanges, part_of

# Lines of each list, and ranges of each partition or window. The numbers beside them are of all.
MAX_LINES = 500
MAX_RANGES = 20


@dataclass(frozen=True)
class Ranges:
    """`offsets` and `more_ranges` count all, of which `ranges` are the first."""

    offsets: Number
    ranges: list[PartitionRanges]
    more_ranges: int


@dataclass(frozen=True)
class PartitionOfPlan(Ranges):
    """One partition: `again` is what a backfill reads again."""

    partition: str
    again: Number


@dataclass(frozen=True)
class WindowReplaced(Ranges):
    """A window whose results of these offsets the run replaces."""

    window: str
    run: str
    committed_at: int


@dataclass(frozen=True)
class AnswerShown(PartitionRanges):
    offsets: Number
    answer: str


@dataclass(frozen=True)
class LeftOut:
    """The offsets that cannot be read, each with its answer; `totals` counts all of them."""

    totals: dict[str, Number]
    answers: list[AnswerShown]
    more_answers: int


@dataclass(frozen=True)
class PlanShown:
    """`plan` is the digest of what would be read and replaced: a run that has it as its field `plan` does that, or nothing.

    `estimate`: by the last windows of the ingest, without the start of Spark.
    """

    kind: str
    plan: str
    made_at: int
    offsets: Number
    partitions: list[PartitionOfPlan]
    more_partitions: int
    left_out: LeftOut
    stored_before: Number | None
    stored_at_least: Number
    stored_at_most: Number
    replaces: list[WindowReplaced]
    more_replaced: int
    estimate: Estimate | None
    needs_approval: bool


def planned(opened: OpenStream, asked: BackfillRequest | ReplayRequest) -> PlanShown:
    """The plan of a request. Writes nothing. Raises what `plan.plan_request` raises, and StaleLedger for another plan."""
    plan_, topics = plan.plan_request(opened, asked), opened.ledger.topics()
    windows, stored = plan.replaced(opened, plan_), plan.stored_now(opened, plan_)
    guess = plan.estimated(opened, plan_)
    return PlanShown(
        kind=plan_.kind.value,
        plan=plan.digest(opened, plan_),
        made_at=opened.ledger.clock(),
        offsets=plan_.all.count(),
        partitions=[_partition(at, plan_, topics) for at in plan_.all.partitions[:MAX_LINES]],
        more_partitions=max(0, len(plan_.all.partitions) - MAX_LINES),
        left_out=_left_out(exact(plan_.left_out), topics),
        stored_before=stored.exact,
        stored_at_least=stored.least,
        stored_at_most=stored.most,
        replaces=[_window(window, topics) for window in windows[:MAX_LINES]],
        more_replaced=max(0, len(windows) - MAX_LINES),
        estimate=Estimate(guess["records"], guess["bytes"], guess["seconds"]) if guess else None,
        needs_approval=needs_approval(opened.stream.limits.approve_above, plan_.all.count()),
    )


def _left_out(answers: Sequence[OffsetAnswer], topics: Topics) -> LeftOut:
    shown = [
        AnswerShown(**vars(part_of(topics, answer.within)), offsets=answer.offsets, answer=answer.answer)
        for answer in answers[:MAX_LINES]
    ]
    return LeftOut(totals(answers), shown, max(0, len(answers) - MAX_LINES))


def _partition(at: TopicPartition, plan_: Plan, topics: Topics) -> PartitionOfPlan:
    all_of_it = plan_.all.only([at])
    named = written_partition(topics, all_of_it)
    return PartitionOfPlan(*ranges_shown(all_of_it, topics), partition=named, again=plan_.again.count(at))


def ranges_shown(ranges: RangeSet, topics: Topics) -> tuple[int, list[PartitionRanges], int]:
    """The fields of `Ranges`."""
    all_ranges = list(ranges)
    shown = [part_of(topics, range_) for range_ in all_ranges[:MAX_RANGES]]
    return ranges.count(), shown, max(0, len(all_ranges) - MAX_RANGES)


def _window(replaced: Replaced, topics: Topics) -> WindowReplaced:
    record = replaced.window.record
    named = f"{record.lane}/{record.seq}"
    return WindowReplaced(*ranges_shown(replaced.offsets, topics), named, record.attempt.run, record.committed_at)
