"""`tidemark plan`: the offsets that the next ingest, or a backfill between bounds, would read."""

from __future__ import annotations

from tidemark.cli import plans, stream_lookup
from tidemark.cli.options import From, IfNone, Json, Since, Stream, Until, UntilTime
from tidemark.cli.output import data, error
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.windows import ingest
from tidemark.views.overview import transactions_shown


def plan(
    stream: Stream,
    from_: From = None,
    until: Until = None,
    since: Since = "",
    until_time: UntilTime = "",
    if_none: IfNone = "fail",
    as_json: Json = False,
) -> None:
    """Show the offsets that the next ingest would read, or those between bounds: ranges, tasks, an estimate. Pins nothing.

    Also shows the offsets that a policy would skip, and the open transactions that hold back an end.

    Example: tidemark plan orders
    """
    opened = stream_lookup.opened(stream)
    if from_ or until or since or until_time:
        plans.show_within(opened, from_, until, since, until_time, if_none, as_json=as_json)
        return
    window, pinned = ingest.preview(opened)
    held = transactions_shown(ingest.open_transactions(opened), opened.ledger.clock())
    ranges = window.ranges if window else ()
    planned = plans.work(opened, window.hull() if window else RangeSet())
    gaps = window.gaps if window else ()
    value = {
        "window": window.seq if window else None,
        "pinned": pinned,
        "offsets": sum(range_.until - range_.start for range_ in ranges),
        "ranges": [
            {"partition": str(range_.at), "from": str(range_.start), "until": str(range_.until)} for range_ in ranges
        ],
        "gaps": [{"range": str(gap.as_range()), "kind": gap.kind.value, "policy": gap.policy} for gap in gaps],
        "open_transactions": held,
        **planned,
    }
    rows = [(range_.at, range_.start, range_.until, range_.until - range_.start) for range_ in ranges]
    data(value, as_json=as_json, rows=rows, columns=("partition", "from", "until", "offsets"))
    if planned["tasks"] and not as_json:
        plans.show_work(planned)
    for gap in gaps:
        error(f"{gap.kind.value}: {gap.as_range()} ({gap.policy})")
    for range_ in held:
        error(range_.sentence)
    if window is None:
        error("nothing is new")
    elif pinned:
        error(f"window {window.seq} is pinned already, and will be read as it is")
