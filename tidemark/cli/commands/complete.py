"""`tidemark complete`: whether an hour, or another span of event time, is complete."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.coordinates import time_of
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error, line, moment
from tidemark.cli.terminal import reading_shown
from tidemark.errors import EXIT_DIFFERENCES, WrongUse
from tidemark.ledger.incarnations import Topics, written_range
from tidemark.offsets.counting import number_of
from tidemark.offsets.reading import Reading
from tidemark.offsets.times import in_iso, milliseconds
from tidemark.views.event_time.completeness import HOUR_MS, PartitionCompleteness, TimeSpan, is_complete
from tidemark.views.event_time.progress import answer_shown, late_total, progress, progress_shown


def complete(
    stream: Stream,
    hour: Annotated[str, typer.Option(help="the hour that begins at this time, like 2026-11-21T13Z")] = "",
    since: Annotated[str, typer.Option(help="instead of an hour: from this time on, like 2026-11-21T13:00:00Z")] = "",
    until: Annotated[str, typer.Option("--until", "--until-time", help="before this time")] = "",
    count: Annotated[
        bool, typer.Option("--count", help="count late messages exactly: read from Kafka where they may lie")
    ] = False,
    as_json: Json = False,
) -> None:
    """Whether all messages of an hour, by their timestamps, are in committed windows, partition by partition.

    Also the watermark, what is missing and why, and how many messages came late. Ends with 1 if the hour is not complete.

    Example: tidemark complete orders --hour 2026-11-21T13Z
    """
    span = _span(hour, since, until)
    seen = progress(stream_lookup.opened(stream))
    answers = seen.answers(span)
    if count:
        reading = Reading()
        with reading_shown("counting late messages", reading):
            answers = seen.counted(span, answers, reading)
    watermark = seen.watermark()
    done = is_complete(answers)
    late, unread = late_total(answers), sum(answer.late.unread for answer in answers)
    value = {
        "stream": seen.opened.ledger.stream,
        "since": in_iso(span.start),
        "until": in_iso(span.until),
        "complete": done,
        "allowed_lateness_ms": seen.lateness_ms,
        **progress_shown(seen, watermark),
        "late": late,
        "unread_after": unread,
        "partitions": [answer_shown(answer) for answer in answers],
    }
    rows = [
        (
            answer.at,
            "yes" if answer.complete else "no",
            answer.rule.value,
            _missing(answer, seen.topics),
            _number(answer.late.least, answer.late.most),
        )
        for answer in answers
    ]
    data(value, as_json=as_json, rows=rows, columns=("partition", "complete", "rule", "missing", "late"))
    if not as_json:
        said = "complete" if done else "not complete"
        line(
            f"{moment(span.start)} to {moment(span.until)} is {said}; the watermark is {moment(watermark) or 'unknown'}"
        )
        if late.most:
            more = "" if late.least == late.most else "; --count counts them"
            error(f"late: {number_of(_number(late.least, late.most), 'message')}{more}")
        if unread:
            error(
                f"{number_of(unread, 'offset', 'after the span is', 'after the span are')} unread, and may hold late messages"
            )
    if not done:
        raise typer.Exit(EXIT_DIFFERENCES)


def _span(hour: str, since: str, until: str) -> TimeSpan:
    if bool(hour) == bool(since or until) or bool(since) != bool(until):
        raise WrongUse("say which span: --hour alone, or both --since and --until")
    if not hour:
        return TimeSpan(milliseconds(time_of("--since", since)), milliseconds(time_of("--until", until)))
    time = time_of("--hour", hour)
    if time.minute or time.second or time.microsecond:
        raise WrongUse(f"--hour {hour}: no hour begins then; give its beginning, or --since and --until")
    start = milliseconds(time)
    return TimeSpan(start, start + HOUR_MS)


def _missing(answer: PartitionCompleteness, topics: Topics) -> str | None:
    """The first missing range of a partition with its kind, and how many more there are."""
    if not answer.missing:
        return None
    kind, part = answer.missing[0]
    more = len(answer.missing) - 1
    return f"{kind.value} {written_range(topics, part)}" + (f" and {more} more" if more else "")


def _number(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
