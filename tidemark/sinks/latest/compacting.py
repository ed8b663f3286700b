"""Compaction of the sinks with the newest row of each key: that of their history, as of a sink `parquet`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemark.sinks.contract import CompactionRequest, Replaceable, Replacement, SinkContext
from tidemark.sinks.parquet.compacting import ParquetCompaction


class HistoryCompaction:
    """The compaction without Spark. A format whose table has older versions adds these."""

    def planned(self, opened: SinkContext, settings: Any, asked: CompactionRequest) -> Sequence[Replaceable]:
        return ParquetCompaction().planned(opened, settings.history(opened.connections), asked)

    def at_work(self, opened: SinkContext, settings: Any) -> str | None:
        return ParquetCompaction().at_work(opened, settings.history(opened.connections))

    def made(self, opened: SinkContext, settings: Any, run: str) -> Sequence[Replacement]:
        return ParquetCompaction().made(opened, settings.history(opened.connections), run)
