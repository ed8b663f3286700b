"""What the page of a plan shows: what a backfill or replay would read, the answer to each other offset, and what it replaces.

The same as a dry run on the command line or in Airflow. Plain values for JSON: offsets and their numbers are texts.
"""

from __future__ import annotations

from typing import Any

from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import plan
from tidemark.runs.requests.answers import as_texts, exact
from tidemark.runs.requests.approval import needs_approval
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.plan import Plan, Replaced

# Lines of each list, and ranges of each partition or window. The numbers beside them are of all.
MOST_LINES = 500
MOST_RANGES = 20


def planned(opened: OpenStream, asked: BackfillRequest | ReplayRequest) -> dict[str, Any]:
    """The plan of a request. Writes nothing. Raises what `plan.of_request` raises, StaleLedger for another plan than asked."""
    found = plan.of_request(opened, asked)
    offsets, windows, left_out = found.all.count(), plan.replaced(opened, found), exact(found.left_out)
    return {
        "kind": found.kind.value,
        "plan": plan.digest(opened, found),
        "made_at": opened.book.clock(),
        "offsets": str(offsets),
        "partitions": [_partition(at, found) for at in found.all.partitions[:MOST_LINES]],
        "more_partitions": max(0, len(found.all.partitions) - MOST_LINES),
        "added": {"offsets": str(found.added.count()), "because": found.because},
        "left_out": {**as_texts(left_out, MOST_LINES), "more_answers": max(0, len(left_out) - MOST_LINES)},
        **{
            name: None if number is None else str(number)
            for name, number in plan.stored_now(opened, found).as_fields().items()
        },
        "replaces": [_window(one) for one in windows[:MOST_LINES]],
        "more_replaced": max(0, len(windows) - MOST_LINES),
        "estimate": plan.estimated(opened, found),
        "needs_approval": needs_approval(opened.stream.limits.approve_above, offsets),
    }


def _partition(at: TopicPartition, found: Plan) -> dict[str, Any]:
    all_of_it = found.all.only([at])
    return {
        "partition": str(at),
        "offsets": str(all_of_it.count()),
        "again": str(found.again.count(at)),
        "added": str(found.added.count(at)),
        **_ranges(all_of_it),
    }


def _ranges(ranges: RangeSet) -> dict[str, Any]:
    """The first ranges, and how many more there are."""
    found = list(ranges)
    shown = [{"partition": str(one.partition), "from": str(one.start), "until": str(one.until)} for one in found]
    return {"ranges": shown[:MOST_RANGES], "more_ranges": max(0, len(found) - MOST_RANGES)}


def _window(one: Replaced) -> dict[str, Any]:
    record = one.window.record
    return {
        "window": f"{record.lane}/{record.seq}",
        "run": record.attempt.run,
        "committed_at": record.committed_at,
        "offsets": str(one.offsets.count()),
        **_ranges(one.offsets),
    }
