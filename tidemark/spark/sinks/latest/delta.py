"""The sink `delta_latest` with Spark."""

from __future__ import annotations

from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.latest.compacting import vacuum
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.delta.latest.sink import DeltaLatestAdmin
from tidemark.sinks.delta.latest.table import prepare
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.latest import SparkLatestRows
from tidemark.spark.sinks.latest.writer import LatestResults


class DeltaLatestResults(LatestResults):
    """The sink `delta_latest`."""

    def __init__(self, settings: DeltaLatestSink, opened: OpenStream) -> None:
        super().__init__(settings, opened)
        self._table = settings.base(opened.connections)

    def prepare(self, stream: str, ledger: str) -> None:
        super().prepare(stream, ledger)
        made_with = (self._settings.key, self._settings.buckets, self._settings.compression)
        prepare(self._table, self._fields, stream, ledger, *made_with, self._opened.was)

    def stored(self) -> Fields:
        return delta_table.as_stored(self._table, self._fields)

    def check_unchanged(self, written: Fields) -> None:
        delta_table.check_unchanged(self._table, written)


class SparkDeltaLatest(SparkLatestRows):
    def writer(self, opened: OpenStream, settings: DeltaLatestSink) -> Sink:
        return DeltaLatestResults(settings, opened)

    def stored(self, opened: OpenStream, settings: DeltaLatestSink) -> Fields:
        return delta_table.as_stored(settings.base(opened.connections), opened.fields)

    def compact(self, opened: OpenStream, settings: DeltaLatestSink, run: str, asked: CompactionRequest) -> None:
        self.compact_history(opened, settings, run, asked)
        vacuum(opened, settings, DeltaLatestAdmin())
