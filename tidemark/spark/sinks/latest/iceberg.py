"""The sink `iceberg_latest` with Spark."""

from __future__ import annotations

from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg.latest.compacting import expire, where_of
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.iceberg.latest.sink import IcebergLatestAdmin
from tidemark.sinks.iceberg.latest.table import as_stored, prepare
from tidemark.sinks.iceberg.table import check_unchanged
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.latest import SparkLatestRows
from tidemark.spark.sinks.latest.writer import LatestResults


class IcebergLatestResults(LatestResults):
    """The sink `iceberg_latest`."""

    def __init__(self, settings: IcebergLatestSink, opened: OpenStream) -> None:
        super().__init__(settings, opened)
        self._where = where_of(opened, settings)

    def prepare(self, stream: str, ledger: str) -> None:
        super().prepare(stream, ledger)
        made_with = (self._settings.key, self._settings.buckets, self._settings.compression)
        prepare(self._where, self._fields, stream, ledger, *made_with, self._opened.was)

    def stored(self) -> Fields:
        return as_stored(self._where, self._fields)

    def check_unchanged(self, written: Fields) -> None:
        check_unchanged(self._where, written)


class SparkIcebergLatest(SparkLatestRows):
    def writer(self, opened: OpenStream, settings: IcebergLatestSink) -> Sink:
        return IcebergLatestResults(settings, opened)

    def stored(self, opened: OpenStream, settings: IcebergLatestSink) -> Fields:
        return as_stored(where_of(opened, settings), opened.fields, opened.was)

    def compact(self, opened: OpenStream, settings: IcebergLatestSink, run: str, asked: CompactionRequest) -> None:
        self.compact_history(opened, settings, run, asked)
        expire(opened, settings, run, IcebergLatestAdmin())
