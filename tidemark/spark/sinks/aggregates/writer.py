"""What a window writes for a table with totals of each key, which is made of it after the commit."""

from __future__ import annotations

from abc import abstractmethod

from pyspark.sql import Column

from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.latest.rows import KEY_HASH
from tidemark.sinks.parquet import types
from tidemark.spark.columns import values_hash
from tidemark.spark.sinks.latest.writer import HistoryResults
from tidemark.types.renamed_fields import Names


class TotalsResults(HistoryResults):
    """The history of a table with totals, wherever that is."""

    def __init__(self, settings: AggregatesSettings, opened: OpenStream) -> None:
        super().__init__(settings, opened)
        self._totals = settings

    def keyed(self) -> dict[str, Column]:
        """A null field of the key is a key like any other."""
        return {KEY_HASH: values_hash({name: self._fields[name] for name in self._totals.key})}


class LakeTotalsResults(TotalsResults):
    """That of a table in a lake. Each format makes its table."""

    @abstractmethod
    def prepare_table(self, stream: str, ledger: str, fields: Fields, names: Names) -> None:
        """Make the table, or check it. `fields`: as the history has them, or gets them. `names`: their older names."""

    def prepare(self, stream: str, ledger: str) -> None:
        super().prepare(stream, ledger)
        # Where the table refuses them, the history notes nothing.
        self.prepare_table(stream, ledger, self.stored(), types.names_of(self._base, self._opened.was))
        types.keep(self._base, self._fields, self._opened.was)
