"""Changes by key: what a window writes for a table with the newest row of each key, which is made of them after its commit."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.latest.rows import BUCKET, DELETED, KEY_HASH
from tidemark.sinks.latest.settings import HistorySettings, LatestSettings
from tidemark.sinks.parquet import files as parquet_files
from tidemark.sinks.parquet import types
from tidemark.spark.columns import TOMBSTONE, TOPIC, field, values_hash
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.parquet.writer import ParquetResults, as_stored, read_back, write
from tidemark.spark.sinks.sizes import refusal
from tidemark.spark.sinks.unsent import unsent

# What a message may do to its key, by Debezium's words.
_OPS = ("c", "u", "r", "d")


class HistoryResults(ParquetResults):
    """Writes the history. Each sink makes its own table."""

    def __init__(self, settings: HistorySettings, opened: OpenStream) -> None:
        self._settings = settings
        self._opened = opened
        self._history = settings.history(opened.connections)
        super().__init__(self._history, self._history.folder, opened.fields)

    def stored(self) -> Fields:
        """The fields with the types that the history keeps, which may be wider; a table with columns of its own says these.

        Known once the sink is prepared.
        """
        return types.as_stored(self._base, self._fields, self._opened.was)

    def check_unchanged(self, written: Fields) -> None:
        """After an attempt has written: whether these are the types still. Raises Conflict."""
        types.check_unchanged(self._base, written, self._opened.was)

    @abstractmethod
    def keyed(self) -> dict[str, Column]:
        """What a row of the history has beside the stream's fields. Among it KEY_HASH."""

    @cached_property
    def _stored(self) -> Fields:
        return self.stored()

    def prepare(self, stream: str, ledger: str) -> None:
        parquet_files.own(self._base, stream, ledger, self.name)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        context.fence.check()
        folder = self._folder(context)
        bucket = F.pmod(KEY_HASH, F.lit(self._settings.buckets)).cast("int")
        keyed = as_stored(rows, self._fields, self._stored).withColumns(self.keyed()).withColumn(BUCKET, bucket)
        write(keyed, self._history, folder)
        self.check_unchanged(self._stored)
        return read_back(rows, folder)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        admin: Any = kind_of(self._settings.type).make_admin()
        place = admin.place(self._opened, self._settings, context.lane, context.seq, context.generation)
        return SinkReceipt(name=self.name, type=self._settings.type, place=place)


class LatestResults(HistoryResults):
    """The history of a table with the newest row of each key."""

    def __init__(self, settings: LatestSettings, opened: OpenStream) -> None:
        super().__init__(settings, opened)
        self._latest = settings

    def refusal(self, fields: Fields) -> Column | None:  # type: ignore[override]
        not_sent = unsent(self.name, self._latest.unsent, fields)
        if not_sent is not None:
            # Of what is gone, no value is read.
            not_sent = F.when(~deleted(self._latest), not_sent)
        if self._latest.op is None:
            return not_sent
        known = F.coalesce(field(self._latest.op).isin(*_OPS), F.lit(False))
        reason = F.lit(f"sink {self.name}: {self._latest.op} is none of {', '.join(_OPS)}")
        no_op = F.when(~F.col(TOMBSTONE) & ~known, refusal(reason))
        return no_op if not_sent is None else F.coalesce(no_op, not_sent)

    def keyed(self) -> dict[str, Column]:
        return {KEY_HASH: key_hash(self._latest, self._fields), DELETED: deleted(self._latest)}


def key_hash(settings: LatestSettings, fields: Fields) -> Column:
    """The hash of a row's topic and key, by the values alone: a wider type has the same. Null for a row without a key."""
    key = {name: fields[name] for name in settings.key}
    # A tombstone has the fields that the scheme takes from the message's key. Without any of them, it is of no key.
    none = F.col(TOMBSTONE)
    for name in key:
        none &= field(name).isNull()
    return F.when(~none, F.xxhash64(F.col(TOPIC), values_hash(key)))


def deleted(settings: LatestSettings) -> Column:
    """Whether a row says that its key is gone."""
    if settings.op is None:
        return F.col(TOMBSTONE)
    return F.col(TOMBSTONE) | F.coalesce(field(settings.op) == F.lit("d"), F.lit(False))
