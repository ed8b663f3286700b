"""What the page of a plan shows: what a backfill or replay would read, the answer to each other offset, and what it replaces.

The same as a dry run on the command line or in Airflow. Plain values for JSON: offsets and their numbers are texts.
"""

from __future__ import annotations

from typing import Any

from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs import into_sinks, whole_windows
from tidemark.runs.answers import as_texts, exact
from tidemark.runs.estimates import estimated, stored_now
from tidemark.runs.open_stream import OpenStream
from tidemark.runs.requests import BackfillRequest, ReplayRequest
from tidemark.runs.resolved import Replaced, digest_of, replaced
from tidemark.runs.selecting import Selected, select

# Lines of each list, and ranges of each partition or window. The numbers beside them are of all.
MOST_LINES = 500
MOST_RANGES = 20


def planned(opened: OpenStream, asked: BackfillRequest | ReplayRequest) -> dict[str, Any]:
    """The plan of a request. Writes nothing. Raises what `select` raises, StaleLedger for another plan than asked for."""
    chosen = select(opened, asked)
    approve_above = opened.stream.limits.approve_above
    view, offsets = chosen.view, chosen.all.count()
    windows, sinks = replaced(opened, view, asked, chosen.all), into_sinks.named(opened, asked.sinks)
    stored = stored_now(opened, view, chosen.all, sinks, chosen.dead).as_fields()
    left_out = exact(chosen.left_out)
    return {
        "kind": asked.kind.value,
        "plan": digest_of(opened, view, asked, chosen.ranges, chosen.again),
        "made_at": opened.book.clock(),
        "offsets": str(offsets),
        "partitions": [_partition(at, chosen) for at in chosen.all.partitions[:MOST_LINES]],
        "more_partitions": max(0, len(chosen.all.partitions) - MOST_LINES),
        "added": {
            "offsets": str(chosen.added.count()),
            "because": whole_windows.because(opened, sinks),
        },
        "left_out": {**as_texts(left_out, MOST_LINES), "more_answers": max(0, len(left_out) - MOST_LINES)},
        **{name: None if number is None else str(number) for name, number in stored.items()},
        "replaces": [_window(one) for one in windows[:MOST_LINES]],
        "more_replaced": max(0, len(windows) - MOST_LINES),
        "estimate": estimated(opened, chosen.all, asked.rate or opened.stream.limits.max_records_per_second),
        "needs_approval": approve_above is not None and offsets > approve_above,
    }


def _partition(at: TopicPartition, chosen: Selected) -> dict[str, Any]:
    all_of_it = chosen.all.only([at])
    return {
        "partition": str(at),
        "offsets": str(all_of_it.count()),
        "again": str(chosen.again.count(at)),
        "added": str(chosen.added.count(at)),
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
