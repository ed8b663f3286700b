"""The rest of `tidemark plan`'s answer: Spark's tasks, estimates and bounds."""

from __future__ import annotations

from typing import Any

from tidemark.cli.coordinates import coordinates
from tidemark.cli.estimates import counted, show_estimate
from tidemark.cli.output import data, error
from tidemark.errors import WrongUse
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.splitting import share_of, tasks
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.selecting import between_offsets, divided, within_times
from tidemark.runs.windows.estimates import estimated
from tidemark.submit.command import local_cores, master


def work(opened: OpenStream, wanted: RangeSet) -> dict[str, Any]:
    """How Spark would read some offsets: the range of each task, the offsets of each core, and an estimate."""
    cores = _cores(opened)
    reads = tasks(wanted, cores)
    shares = [share_of(reads, cores, index) for index in range(cores)] if cores else []
    return {
        "estimate": estimated(opened, wanted),
        "tasks": [
            {"partition": str(range_.partition), "from": str(range_.start), "until": str(range_.until)}
            for range_ in reads
        ],
        "cores": [{"tasks": len(share), "offsets": sum(map(len, share))} for share in shares] or None,
    }


def show_work(work: dict[str, Any]) -> None:
    """The tasks as a table, and the rest on standard error."""
    rows = [(number, task["partition"], task["from"], task["until"]) for number, task in enumerate(work["tasks"])]
    data(work, as_json=False, rows=rows, columns=("task", "partition", "from", "until"))
    if work["cores"]:
        offsets = [core["offsets"] for core in work["cores"]]
        over = f"{number_of(len(rows), 'task')} over {number_of(len(offsets), 'core')}"
        error(f"{over}, which read {', '.join(map(str, offsets))} offsets")
    show_estimate(work["estimate"])


def show_within(
    opened: OpenStream,
    lower: list[str] | None,
    upper: list[str] | None,
    since: str,
    until_time: str,
    if_none: str,
    *,
    as_json: bool,
) -> None:
    """A plan between bounds: the offsets, and which kind of run may read them."""
    if (lower or upper) and (since or until_time):
        raise WrongUse("--from, --until and --since, --until-time are two ways to say which offsets: use one of them")
    if if_none not in ("fail", "end"):
        raise WrongUse(f"--if-none {if_none!r}: expected fail or end")
    if lower or upper:
        bounds = coordinates("--from", lower), coordinates("--until", upper)
        wanted = between_offsets(opened, *bounds, to_the_end=True)
    else:
        wanted = within_times(opened, since, until_time, if_none)
    parts = {why: ranges for why, ranges in divided(opened, wanted).items() if ranges}
    planned = work(opened, wanted)
    if as_json:
        topics = opened.ledger.topics()
        data(
            {
                **counted(topics, wanted),
                "parts": {why: counted(topics, part) for why, part in parts.items()},
                **planned,
            },
            as_json=True,
        )
        return
    rows = [
        (range_.partition, range_.start, range_.until, len(range_), why)
        for why, part in parts.items()
        for range_ in part
    ]
    data(None, as_json=False, rows=rows, columns=("partition", "from", "until", "offsets", ""))
    show_work(planned)


def _cores(opened: OpenStream) -> int | None:
    try:
        return local_cores(master(opened.connections(opened.stream.engine.spark)))
    except WrongUse:
        # This command starts no Spark job: a plan can be shown where Spark is not installed.
        return None
