"""`tidemark window` and `tidemark dead-letters`: one window in all its parts, and the dead letters in groups."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error, line, moment
from tidemark.errors import WrongUse
from tidemark.offsets.counting import number_of
from tidemark.offsets.times import in_words
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.views.dead_letters import dead_letters as in_groups
from tidemark.views.window import PartitionOfWindow, parse_window, window_of

_COUNTS = ("read", "stored", "skipped", "invalid", "failed", "no_message")


def window(
    stream: Stream,
    named: Annotated[str, typer.Argument(metavar="WINDOW", help="LANE/NUMBER, for example ingest/17")],
    as_json: Json = False,
) -> None:
    """One window: its ranges and tallies, the offsets that it skipped and why, its attempt, and the time of each step.

    Example: tidemark window orders ingest/17
    """
    lane, seq = parse_window(named)
    shown = window_of(stream_lookup.opened(stream), lane, seq)
    if shown is None:
        raise WrongUse(f"{stream} has no window {named}")
    if as_json:
        data(shown, as_json=True)
        return
    by = shown.attempt.run if shown.attempt else shown.run
    line(f"window {shown.window}: {shown.state}, {number_of(shown.offsets, 'offset')}, run {by}")
    if shown.reason:
        line(f"reason: {shown.reason}, asked by {shown.asked_by or '-'}, approved by {shown.approved_by or '-'}")
    if shown.only_sinks is not None:
        line(f"into {', '.join(shown.only_sinks)} alone: other sinks and the dead letters stay as they are")
    headings = ("partition", "from", "until", "offsets", *(name.replace("_", " ") for name in _COUNTS))
    data(shown, as_json=False, rows=[_row(partition) for partition in shown.partitions], columns=headings)
    for gap in shown.gaps:
        offsets = number_of(gap.offsets, "offset")
        line(f"{gap.kind}: {gap.partition}@{gap.start}-{gap.until}, {offsets}, {gap.policy}: {gap.sentence}")
    if shown.unknown_fields:
        line(f"keys: {shown.unknown_fields}")
    for step in shown.times:
        took = "" if step.took_ms is None else f", took {in_words(step.took_ms)}"
        line(f"{step.step}: {moment(step.at) or 'not yet'}{took}")
    for sink in shown.sinks:
        line(f"{sink.name} ({sink.type}): {' '.join(f'{name}={value}' for name, value in sink.place.items())}")


def dead_letters(
    stream: Stream,
    reason: Annotated[str | None, typer.Option(help="only those with exactly this reason or this error class")] = None,
    window: Annotated[str, typer.Option(help="only those of this lane, or of one window of it, LANE/NUMBER")] = "",
    as_json: Json = False,
) -> None:
    """The dead letters that count, in groups by reason and error class, with their windows and examples.

    `tidemark replay STREAM --dead-letters REASON` processes a group again.

    Example: tidemark dead-letters orders --window ingest/17
    """
    letters = in_groups(stream_lookup.opened(stream), DeadLetterFilter(reason, window))
    rows = [
        (
            group.number,
            group.reason,
            group.error,
            " ".join(f"{part.window} ({part.number})" for part in group.windows[:3])
            + (" ..." if len(group.windows) > 3 else ""),
            " ".join(group.examples[:2]),
        )
        for group in letters.groups
    ]
    data(letters, as_json=as_json, rows=rows, columns=("number", "reason", "error class", "windows", "examples"))
    if as_json:
        return
    error(f"{number_of(letters.counted, 'dead letter')} in {number_of(letters.windows, 'window')}")
    if letters.more_groups:
        error(f"{number_of(letters.more_groups, 'more group')}: name a reason or a window")


def _row(partition: PartitionOfWindow) -> list[object]:
    counts = [getattr(partition.tally, name) if partition.tally else None for name in _COUNTS]
    return [partition.partition, partition.start, partition.until, partition.offsets, *counts]
