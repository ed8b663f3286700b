"""The registry of all types of sinks. A package of your own adds its types by the entry point `tidemark.sinks`.

An entry point names a `Kind`:

    [project.entry-points."tidemark.sinks"]
    json_lines = "my_package.json_lines:KIND"
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidemark.errors import DELTALAKE, PYICEBERG, WrongUse
from tidemark.settings.packages import kinds_of_packages, refusing
from tidemark.sinks.contract import Kind, PlainSink, SinkSettings
from tidemark.sinks.dead_letters import kinds as dead_letters
from tidemark.sinks.dead_letters.contract import COPIES
from tidemark.sinks.dead_letters.copies import PlainCopies
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.hbase.settings import HBaseSink
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.iceberg.settings import IcebergSink
from tidemark.sinks.kafka.settings import KafkaSink
from tidemark.sinks.parquet.settings import ParquetSink

GROUP = "tidemark.sinks"


_BUILT_IN: dict[str, Kind] = {
    "hbase": Kind(HBaseSink, "tidemark.sinks.hbase.sink:PlainHBase", "tidemark.spark.sinks.hbase:SparkHBase"),
    "hbase_latest": Kind(
        HBaseLatestSink,
        "tidemark.sinks.hbase.latest.sink:PlainHBaseLatest",
        "tidemark.spark.sinks.hbase.latest:SparkHBaseLatest",
        compaction="tidemark.sinks.latest.compacting:HistoryCompaction",
        publishes=True,
    ),
    "hbase_aggregates": Kind(
        HBaseAggregatesSink,
        "tidemark.sinks.hbase.aggregates.sink:PlainAggregates",
        "tidemark.spark.sinks.hbase.aggregates:SparkAggregates",
    ),
    "parquet": Kind(
        ParquetSink,
        "tidemark.sinks.parquet.sink:PlainParquet",
        "tidemark.spark.sinks.parquet:SparkParquet",
        compaction="tidemark.sinks.parquet.compacting:ParquetCompaction",
    ),
    "delta": Kind(
        DeltaSink,
        "tidemark.sinks.delta.sink:PlainDelta",
        "tidemark.spark.sinks.delta:SparkDelta",
        requires=(DELTALAKE,),
        publishes=True,
    ),
    "delta_latest": Kind(
        DeltaLatestSink,
        "tidemark.sinks.delta.latest.sink:PlainDeltaLatest",
        "tidemark.spark.sinks.latest.delta:SparkDeltaLatest",
        compaction="tidemark.sinks.delta.latest.compacting:DeltaLatestCompaction",
        requires=(DELTALAKE,),
        publishes=True,
    ),
    "iceberg": Kind(
        IcebergSink,
        "tidemark.sinks.iceberg.sink:PlainIceberg",
        "tidemark.spark.sinks.iceberg:SparkIceberg",
        compaction="tidemark.sinks.iceberg.compacting:IcebergCompaction",
        requires=(PYICEBERG,),
        publishes=True,
    ),
    "iceberg_latest": Kind(
        IcebergLatestSink,
        "tidemark.sinks.iceberg.latest.sink:PlainIcebergLatest",
        "tidemark.spark.sinks.latest.iceberg:SparkIcebergLatest",
        compaction="tidemark.sinks.iceberg.latest.compacting:IcebergLatestCompaction",
        requires=(PYICEBERG,),
        publishes=True,
    ),
    "kafka": Kind(KafkaSink, "tidemark.sinks.kafka.sink:PlainKafka", "tidemark.spark.sinks.kafka:SparkKafka"),
}


def kind_of(type_: str) -> Kind:
    """The kind of a type that a stream file or a receipt names. Raises WrongUse for a type that is not registered."""
    if type_ not in KINDS:
        raise WrongUse(
            f"the sink type {type_!r} is unknown here; known are {', '.join(sorted(KINDS))}. If a package of your own "
            f"brings it, install that package here: it registers the type as an entry point of the group {GROUP}, or of "
            f"{dead_letters.GROUP} for a store of dead letters"
        )
    if KINDS[type_].refused:
        raise WrongUse(f"the sink type {type_!r}: {KINDS[type_].refused}")
    return KINDS[type_]


def plain_of(type_: str) -> PlainSink:
    """The object that clears a place of a receipt: of a sink, or of dead letters. Raises WrongUse for an unknown type."""
    if type_ == COPIES:
        return PlainCopies()
    return (dead_letters.kind_of_receipts(type_) or kind_of(type_)).without_spark()


def publishes(type_: str) -> bool:
    """Whether windows in a place of this type are published after their commit. No for a type that is not known here."""
    return dead_letters.publishes(type_) or (type_ in KINDS and KINDS[type_].publishes)


def by_order(type_: str) -> bool:
    """Whether rows of a sink of this type have versions by the order of a topic's messages. No for a type that is gone."""
    try:
        return kind_of(type_).without_spark().versions_by_order
    except WrongUse:
        return False


def sink_to_compact(sinks: Iterable[SinkSettings], stream: str, name: str | None) -> Any:
    """The settings of the sink to compact: the one of this name, or the only one when no name is given.

    Raises WrongUse, naming the sinks that can be compacted.
    """
    types = sorted(type_ for type_, kind in KINDS.items() if kind.compaction)
    fitting = [sink for sink in sinks if sink.type in types]
    chosen = [sink for sink in fitting if name in (None, sink.name)]
    if len(chosen) != 1:
        known = ", ".join(sink.name for sink in fitting) or "none"
        raise WrongUse(f"{stream}: name with --sink one sink of type {' or '.join(types)}; there are: {known}")
    return chosen[0]


def _refused(type_: str, why: str) -> Kind:
    return Kind(refusing(SinkSettings, type_, why, name=(str, type_)), "", "", why)  # type: ignore[type-abstract]


KINDS: dict[str, Kind] = {**_BUILT_IN, **kinds_of_packages(GROUP, Kind, SinkSettings, _refused, _BUILT_IN)}
