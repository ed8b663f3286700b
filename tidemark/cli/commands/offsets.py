"""`tidemark offsets`: where each partition's log begins and ends, where the stream is, and which offset a time is."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.coordinates import time_of
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error
from tidemark.ledger.records import INGEST, next_offsets
from tidemark.offsets.times import milliseconds
from tidemark.runs.live.kafka_now import topics_now
from tidemark.runs.live.same_logs import first_at


def offsets(
    stream: Stream,
    at: Annotated[
        str, typer.Option(help="also the first offset at or after this time, like 2026-11-21T07:00:00Z")
    ] = "",
    as_json: Json = False,
) -> None:
    """Log start, end, position and lag of each partition, and with --at the first offset at or after a time.

    Example: tidemark offsets orders --at 2026-11-21T07:00:00Z
    """
    opened = stream_lookup.opened(stream)
    time = time_of("--at", at) if at else None
    topics = topics_now(opened)
    logs = opened.log.topics(topics, opened.stream.source.isolation)
    # After the ends: messages above the ends came meanwhile.
    first = {} if time is None else first_at(opened, logs, milliseconds(time))
    head = opened.ledger.head(INGEST)
    positions = next_offsets(head.head.positions if head is not None else ())
    rows_ = []
    for topic, log in sorted(logs.items()):
        for partition, now in sorted(log.partitions.items()):
            position, there = positions.get(topic, {}).get(partition), first.get((topic, partition))
            rows_.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "log_start": str(now.start),
                    "end": str(now.end),
                    "position": None if position is None else str(position),
                    "lag": None if position is None else str(max(0, now.end - position)),
                    **({} if time is None else {"at": None if there is None or there >= now.end else str(there)}),
                }
            )
    columns = ["topic", "partition", "log start", "end", "position", "lag", *([] if time is None else [at])]
    data(rows_, as_json=as_json, rows=[list(row.values()) for row in rows_], columns=columns)
    for topic in sorted(set(topics) - set(logs)):
        error(f"topic {topic} does not exist")
