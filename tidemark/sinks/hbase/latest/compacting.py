"""Compaction of the sink `hbase_latest`: that of its history. HBase compacts its tables itself."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.sinks.contract import CompactionRequest, Opened, Replaceable, Replacement
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.parquet.compacting import ParquetCompaction


class HBaseLatestCompaction:
    """The compaction of the sink `hbase_latest`, without Spark."""

    def planned(self, opened: Opened, settings: HBaseLatestSink, asked: CompactionRequest) -> Sequence[Replaceable]:
        return ParquetCompaction().planned(opened, settings.history(opened.connections), asked)

    def at_work(self, opened: Opened, settings: HBaseLatestSink) -> str | None:
        return ParquetCompaction().at_work(opened, settings.history(opened.connections))

    def made(self, opened: Opened, settings: HBaseLatestSink, run: str) -> Sequence[Replacement]:
        return ParquetCompaction().made(opened, settings.history(opened.connections), run)
