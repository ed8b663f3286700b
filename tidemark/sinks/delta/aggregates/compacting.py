"""Compaction of the sink `delta_aggregates`."""

from __future__ import annotations

from tidemark.sinks.delta.aggregates.sink import DeltaAggregatesAdmin
from tidemark.sinks.delta.latest.compacting import DeltaTableCompaction


class DeltaAggregatesCompaction(DeltaTableCompaction):
    """The compaction of the sink `delta_aggregates`, without Spark."""

    admin = DeltaAggregatesAdmin()
