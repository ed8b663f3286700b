"""The sink `kafka` with Spark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.errors import NotAuthorized
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.kafka.settings import KafkaSink
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.kafka.audit import audit_messages, compare_messages
from tidemark.spark.sinks.kafka.reader import messages_that_count
from tidemark.spark.sinks.kafka.writer import results_of

log = logging.getLogger(__name__)
T = TypeVar("T")


class SparkKafka:
    def writer(self, opened: OpenStream, settings: KafkaSink) -> Sink:
        cluster = kafka_endpoint(opened.connections(settings.kafka))
        return results_of(opened, settings, cluster)

    def results(self, spark: SparkSession, opened: OpenStream, settings: KafkaSink) -> DataFrame:
        cluster = kafka_endpoint(opened.connections(settings.kafka))
        return messages_that_count(spark, opened.ledger, cluster, settings.targets(), settings.name)

    def audit(self, audit: Audit, settings: KafkaSink) -> AuditedPlace | None:
        """None without the right to read the topics: writing them needs no such right. The report names the sink then."""
        return _if_allowed(settings, lambda: audit_messages(audit, settings))

    def compare(self, comparing: RowsToCompare, settings: KafkaSink) -> PlaceComparison | None:
        """As for the audit."""
        return _if_allowed(settings, lambda: compare_messages(comparing, settings))


def _if_allowed(settings: KafkaSink, compare: Callable[[], T]) -> T | None:
    try:
        return compare()
    except NotAuthorized as problem:
        log.warning("sink %s is not compared: %s", settings.name, problem)
        return None
