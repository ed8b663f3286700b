"""The registry of all types of sinks. A package of your own adds its types by the entry point `tidemark.sinks`.

An entry point names a `SinkType`:

    [project.entry-points."tidemark.sinks"]
    json_lines = "my_package.json_lines:KIND"
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidemark.errors import DELTALAKE, PYICEBERG, WrongUse
from tidemark.settings.packages import kinds_of_packages, refusing
from tidemark.sinks.contract import SinkAdmin, SinkSettings, SinkType
from tidemark.sinks.dead_letters import kinds as dead_letters
from tidemark.sinks.dead_letters.contract import COPIES
from tidemark.sinks.dead_letters.copies import CopiesAdmin
from tidemark.sinks.delta.aggregates.settings import DeltaAggregatesSink
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.hbase.settings import HBaseSink
from tidemark.sinks.iceberg.aggregates.settings import IcebergAggregatesSink
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.iceberg.settings import IcebergSink
from tidemark.sinks.kafka.settings import KafkaSink
from tidemark.sinks.parquet.settings import ParquetSink

GROUP = "tidemark.sinks"


_BUILT_IN: dict[str, SinkType] = {
    "hbase": SinkType(
        HBaseSink,
        "tidemark.sinks.hbase.sink:HBaseAdmin",
        "tidemark.spark.sinks.hbase:SparkHBase",
        workers=("tidemark.spark.sinks.hbase.writer",),
    ),
    "hbase_latest": SinkType(
        HBaseLatestSink,
        "tidemark.sinks.hbase.latest.sink:HBaseLatestAdmin",
        "tidemark.spark.sinks.hbase.latest:SparkHBaseLatest",
        compaction="tidemark.sinks.latest.compacting:HistoryCompaction",
        publishes=True,
        workers=("tidemark.spark.sinks.hbase.latest.writer",),
    ),
    "hbase_aggregates": SinkType(
        HBaseAggregatesSink,
        "tidemark.sinks.hbase.aggregates.sink:HBaseAggregatesAdmin",
        "tidemark.spark.sinks.hbase.aggregates:SparkHBaseAggregates",
        compaction="tidemark.sinks.latest.compacting:HistoryCompaction",
        publishes=True,
    ),
    "parquet": SinkType(
        ParquetSink,
        "tidemark.sinks.parquet.sink:ParquetAdmin",
        "tidemark.spark.sinks.parquet:SparkParquet",
        compaction="tidemark.sinks.parquet.compacting:ParquetCompaction",
    ),
    "delta": SinkType(
        DeltaSink,
        "tidemark.sinks.delta.sink:DeltaAdmin",
        "tidemark.spark.sinks.delta:SparkDelta",
        requires=(DELTALAKE,),
        publishes=True,
    ),
    "delta_latest": SinkType(
        DeltaLatestSink,
        "tidemark.sinks.delta.latest.sink:DeltaLatestAdmin",
        "tidemark.spark.sinks.latest.delta:SparkDeltaLatest",
        compaction="tidemark.sinks.delta.latest.compacting:DeltaLatestCompaction",
        requires=(DELTALAKE,),
        publishes=True,
    ),
    "delta_aggregates": SinkType(
        DeltaAggregatesSink,
        "tidemark.sinks.delta.aggregates.sink:DeltaAggregatesAdmin",
        "tidemark.spark.sinks.aggregates.delta:SparkDeltaAggregates",
        compaction="tidemark.sinks.delta.aggregates.compacting:DeltaAggregatesCompaction",
        requires=(DELTALAKE,),
        publishes=True,
    ),
    "iceberg": SinkType(
        IcebergSink,
        "tidemark.sinks.iceberg.sink:IcebergAdmin",
        "tidemark.spark.sinks.iceberg:SparkIceberg",
        compaction="tidemark.sinks.iceberg.compacting:IcebergCompaction",
        requires=(PYICEBERG,),
        publishes=True,
    ),
    "iceberg_latest": SinkType(
        IcebergLatestSink,
        "tidemark.sinks.iceberg.latest.sink:IcebergLatestAdmin",
        "tidemark.spark.sinks.latest.iceberg:SparkIcebergLatest",
        compaction="tidemark.sinks.iceberg.latest.compacting:IcebergLatestCompaction",
        requires=(PYICEBERG,),
        publishes=True,
    ),
    "iceberg_aggregates": SinkType(
        IcebergAggregatesSink,
        "tidemark.sinks.iceberg.aggregates.sink:IcebergAggregatesAdmin",
        "tidemark.spark.sinks.aggregates.iceberg:SparkIcebergAggregates",
        compaction="tidemark.sinks.iceberg.aggregates.compacting:IcebergAggregatesCompaction",
        requires=(PYICEBERG,),
        publishes=True,
    ),
    "kafka": SinkType(
        KafkaSink,
        "tidemark.sinks.kafka.sink:KafkaAdmin",
        "tidemark.spark.sinks.kafka:SparkKafka",
        workers=("tidemark.spark.sinks.kafka.writer",),
    ),
}


def kind_of(type_: str) -> SinkType:
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


def worker_modules() -> list[str]:
    """The modules that Spark's Python workers run for sinks of any type."""
    return [name for kind in KINDS.values() for name in kind.workers]


def admin_of(type_: str) -> SinkAdmin:
    """The object that clears a place of a receipt: of a sink, or of dead letters. Raises WrongUse for an unknown type."""
    if type_ == COPIES:
        return CopiesAdmin()
    return (dead_letters.kind_of_receipts(type_) or kind_of(type_)).make_admin()


def admin_or_default(type_: str) -> SinkAdmin:
    """As `admin_of`; of a type whose package is not here, what every type says by default."""
    try:
        return admin_of(type_)
    except WrongUse:
        return SinkAdmin()


def publishes(type_: str) -> bool:
    """Whether windows in a place of this type are published after their commit. No for a type that is not known here."""
    return dead_letters.publishes(type_) or (type_ in KINDS and KINDS[type_].publishes)


def by_order(type_: str) -> bool:
    """Whether rows of a sink of this type have versions by the order of a topic's messages. No for a type that is gone."""
    try:
        return kind_of(type_).make_admin().versions_by_order
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


def _refused(type_: str, why: str) -> SinkType:
    return SinkType(refusing(SinkSettings, type_, why, name=(str, type_)), "", "", why)  # type: ignore[type-abstract]


KINDS: dict[str, SinkType] = {**_BUILT_IN, **kinds_of_packages(GROUP, SinkType, SinkSettings, _refused, _BUILT_IN)}
