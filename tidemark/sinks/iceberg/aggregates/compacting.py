"""Compaction of the sink `iceberg_aggregates`."""

from __future__ import annotations

from tidemark.sinks.iceberg.aggregates.sink import IcebergAggregatesAdmin
from tidemark.sinks.iceberg.latest.compacting import IcebergTableCompaction


class IcebergAggregatesCompaction(IcebergTableCompaction):
    """The compaction of the sink `iceberg_aggregates`, without Spark."""

    admin = IcebergAggregatesAdmin()
