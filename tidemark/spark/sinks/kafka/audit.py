"""A sink in Kafka, audited or compared: the messages that rows should become, against those that count in its topics.

A message has its coordinate and generation in its headers, and no digest of its contents. The audit computes topic, key and
value again, and compares their digests. A topic deletes messages by itself: old ones by its retention, and in a compacted
topic those whose key a newer message has. Such rows are not missing.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.audit.comparison import MORE_IN_TOPICS, NOT_IN_TOPICS, PlaceComparison
from tidemark.clients.kafka.endpoint import KafkaEndpoint, kafka_endpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.authority import Authority
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.kafka import expiry
from tidemark.sinks.kafka.settings import KafkaSink
from tidemark.spark.audit.differences import EXPIRED, REPLACED, WHY, Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.columns import AT, COORDINATE, DIGEST, INDEX, OFFSET, TOMBSTONE, content_digest
from tidemark.spark.readers.places import COUNTS, FOUND_DIGEST, OTHERS
from tidemark.spark.rows.selecting import only
from tidemark.spark.sinks.kafka.reader import GENERATION, all_messages, topics_now, with_authority, with_counts
from tidemark.spark.sinks.kafka.writer import results_of

_KEY = [*COORDINATE, INDEX]
_CONTENT = ("topic", "key", "value")


def audit_messages(audit: Audit, sink: KafkaSink) -> AuditedPlace:
    """Compare the messages of one sink. An output topic has no index by coordinate, so all of it is read."""
    opened = audit.opened
    cluster = kafka_endpoint(opened.connections(sink.kafka))
    log, topics = KafkaLog(cluster), sink.targets()
    digest = content_digest(_CONTENT)

    # As the readers do, the audit takes the ledger first, then the logs.
    view = (audit.view or opened.ledger.view()).of(sink.name)
    logs = topics_now(cluster, topics)
    cut = {
        (topic, number): (one.start, one.end)
        for topic, rows in logs.items()
        for number, one in rows.partitions.items()
        if 0 < one.start < one.end
    }
    until = expiry.deleted_until(logs, log.timestamps(cut))
    expired = expiry.may_have_expired(view, until)
    compacted = log.compacted(topics)

    messages = all_messages(audit.spark, opened.ledger.stream, cluster, logs)
    rows = with_counts(messages, view.authority).withColumn(FOUND_DIGEST, digest)
    # The mark of other sinks' rows is a digest. A message has none.
    rows = rows.withColumn(DIGEST, F.col(FOUND_DIGEST))
    content = (made.alias(name) for name, made in _content(opened, sink, cluster).items())
    expected = audit.stored.select(*_KEY, TOMBSTONE, *content).withColumn(DIGEST, digest)

    def deleted(missing: DataFrame) -> DataFrame:
        """Which of the missing rows a topic has deleted by itself."""
        old = only(missing, expired).select(*_KEY, F.lit(EXPIRED).alias(WHY))
        if not compacted:
            return old
        rest = missing.join(old.select(*_KEY), _KEY, "left_anti").join(expected, _KEY)
        replaced = _replaced(rest.where(F.col("topic").isin(*compacted)), expected, messages, view.authority)
        return old.unionAll(replaced.select(*_KEY, F.lit(REPLACED).alias(WHY)))

    def wrote(receipt: SinkReceipt) -> bool:
        place = receipt.place
        return place.get("connection") == sink.kafka and expiry.within(place.get("topics", ""), topics)

    def may_lack(window: Committed) -> bool:
        return bool(compacted) or (until is not None and expiry.began_by(window, until))

    blocks = audit.forgotten.of_sink_by_identity(sink.name, wrote, may_lack)
    return audit.compare(sink.name, expected, rows, blocks, deleted)


def compare_messages(comparing: RowsToCompare, sink: KafkaSink) -> PlaceComparison:
    """Compare the messages that count with those that a replay would write. Reads the whole topics, as the audit does."""
    opened = comparing.opened
    cluster = kafka_endpoint(opened.connections(sink.kafka))
    view = comparing.view.of(sink.name)
    messages = all_messages(comparing.spark, opened.ledger.stream, cluster, topics_now(cluster, sink.targets()))
    rows = with_counts(messages, view.authority).where(COUNTS)
    parts = (F.col(name).cast("binary").alias(f"field_{number}") for number, name in enumerate(_CONTENT))
    before = rows.select(*_KEY, *parts, F.array().cast("array<string>").alias(OTHERS))
    content = {name: made.cast("binary") for name, made in _content(opened, sink, cluster).items()}
    return comparing.rows_of(sink.name, before, content, (MORE_IN_TOPICS, NOT_IN_TOPICS))


def _content(opened: OpenStream, sink: KafkaSink, cluster: KafkaEndpoint) -> dict[str, Column]:
    """The topic, key and value of the message that a stored row becomes."""
    return dict(zip(_CONTENT, results_of(opened, sink, cluster).message(), strict=True))


def _replaced(missing: DataFrame, expected: DataFrame, messages: DataFrame, authority: Authority) -> DataFrame:
    """The missing rows of compacted topics that a newer message has replaced.

    What remains of a key may be older than the missing row: then that row is missing. It is older if its generation is, or
    if the same attempt has written it before the row: a task writes the rows of a partition in order. Kafka removes a
    tombstone after a while. So a key of which a tombstone counts may have no message at all.
    """
    wanted = with_authority(missing, authority)
    others = messages.select(
        F.col("topic").alias("_out"),
        F.col("key").alias("_out_key"),
        *(F.col(name).alias(f"_other{name}") for name in (*_KEY, GENERATION)),
    )

    def other(name: str) -> Column:
        return F.col(f"_other{name}")

    same_partition = F.lit(True)
    for name in AT:
        same_partition = same_partition & (F.col(name) == other(name))
    before = (other(OFFSET) < F.col(OFFSET)) | ((other(OFFSET) == F.col(OFFSET)) & (other(INDEX) < F.col(INDEX)))
    older = (other(GENERATION) < F.col(GENERATION)) | (
        (other(GENERATION) == F.col(GENERATION)) & same_partition & before
    )
    same_key = (F.col("topic") == F.col("_out")) & (F.col("key") == F.col("_out_key"))
    by_newer = wanted.join(others, same_key & ~older, "left_semi").select(*_KEY)
    ended = expected.where(TOMBSTONE).select(F.col("topic").alias("_out"), F.col("key").alias("_out_key"))
    by_tombstone = wanted.join(ended, same_key, "left_semi").select(*_KEY)
    return by_newer.unionAll(by_tombstone).distinct()
