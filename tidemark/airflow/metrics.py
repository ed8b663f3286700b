"""Sending a stream's numbers where Airflow sends its own metrics: StatsD, Datadog or OpenTelemetry (`[metrics]`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.configuration import conf
from airflow.sdk.observability import stats

from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.ledger.records import Record
    from tidemark.runs.live.open_stream import OpenStream
    from tidemark.views.event_time.progress import EventTimeNow
    from tidemark.views.metrics import Metric
    from tidemark.views.overview import Overview

log = logging.getLogger(__name__)

# Airflow's exporters that have tags; plain StatsD has only names.
_WITH_TAGS = ("statsd_datadog_enabled", "statsd_influxdb_enabled", "otel_on")


def send_positions(opened: OpenStream) -> None:
    """Each partition's log start and end, the ingest's position, lag, status and so on, as the page shows them.

    The task's log says what a person should know of them.
    """
    from tidemark.ledger.covered import unread_now
    from tidemark.views.metrics import gauges
    from tidemark.views.overview import overview

    try:
        shown = overview(opened, unread_now(opened.ledger))
    except TidemarkError as problem:
        # A window does not fail because its metrics are unknown.
        log.warning("no metrics of %s: %s", opened.ledger.stream, problem)
        return
    _log(shown)
    for gauge in gauges(shown):
        name, tags = _named(opened.ledger.stream, gauge)
        stats.gauge(name, gauge.value, tags=tags)


def _log(shown: Overview) -> None:
    from tidemark.views.states import reasons_of
    from tidemark.views.stream_line import line_of

    status = shown.status
    if status is not None and status.word == "OK":
        log.info("status %s (%s): %s", status.word, status.rule, status.sentence)
    for reason in reasons_of(line_of(shown)):
        log.warning("state %s", reason)
    if shown.retention_headroom and not shown.retention_alarms:
        log.info("retention: %s", shown.retention_headroom)


def send_counts(stream: str, records: Iterable[Record]) -> None:
    """A run's counts: messages read, stored, skipped and so on, and offsets lost."""
    from tidemark.views.metrics import counts

    for count in counts(records):
        name, tags = _named(stream, count)
        stats.incr(name, count.value, tags=tags)


def send_watermark(seen: EventTimeNow, watermark: int | None) -> None:
    """How old the stream's watermark is; nothing while it is unknown."""
    from tidemark.views.metrics import watermark_age

    for gauge in watermark_age(seen.now, watermark):
        name, tags = _named(seen.opened.ledger.stream, gauge)
        stats.gauge(name, gauge.value, tags=tags)


def _named(stream: str, metric: Metric) -> tuple[str, dict[str, str]]:
    """`tidemark.lag` with tags, or `tidemark.lag.STREAM.TOPIC.PARTITION` for an exporter without tags."""
    tags = {"stream": stream}
    if metric.topic is not None:
        tags |= {"topic": metric.topic, "partition": str(metric.partition)}
    if any(conf.getboolean("metrics", one) for one in _WITH_TAGS):
        return f"tidemark.{metric.name}", tags
    return ".".join(("tidemark", metric.name, *tags.values())), {}
