"""Overviews of streams that there are not, of which a test says what matters to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidemark.views.latency import Latency
from tidemark.views.overview import IngestDeadLetters, Overview, PartitionNow

_PARTITION = PartitionNow("orders", 0, 0, 0, 0, 0, None, None, None, None, "safe", None, None, None)
_OVERVIEW = Overview(
    stream="orders",
    description="d",
    owner=None,
    tags=[],
    status=None,
    missing_topics=[],
    retention_alarms=[],
    lost_unread=[],
    expiring=[],
    retention_headroom=None,
    unread_since=None,
    audit=None,
    holes=[],
    more_holes=0,
    skipped=None,
    lost=None,
    late=None,
    retired=None,
    in_topics=None,
    kafka_problem=None,
    lag=None,
    lag_sentence=None,
    sinks=[],
    latency=Latency(None, None, None, None),
    partitions=[],
    open_transactions=[],
    lanes=[],
    windows=[],
    ingest=IngestDeadLetters(0, 0, 0, [], [], None),
    unknown_fields=None,
    more_partitions=0,
)


def partition(**given: Any) -> PartitionNow:
    return replace(_PARTITION, **given)


def shown_overview(*partitions: PartitionNow, **given: Any) -> Overview:
    """`status`, if any, is that of a stream with a window."""
    lags = [one.lag for one in partitions if one.lag is not None]
    if given.get("status") is not None:
        given = {"ingest": IngestDeadLetters(1, 0, 0, [], [], None), **given}
    return replace(_OVERVIEW, partitions=list(partitions), **{"lag": sum(lags) if lags else None, **given})
