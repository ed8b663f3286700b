"""The sinks with Spark: a folder for each type, and the contract (`contract.py`). The stream file chooses its sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession

from tidemark.errors import WrongUse
from tidemark.ledger.elsewhere import for_readers
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.kinds import kind_of
from tidemark.spark.sinks.contract import Sink

__all__ = ["Sink", "make_sinks", "refusals", "results"]


def make_sinks(opened: OpenStream) -> list[Sink]:
    """The stream's sinks, in the order of its file."""
    for settings in opened.stream.sinks:
        # The sweep after the commit needs this class: an error in loading the class has to appear before any read.
        kind_of(settings.type).make_admin()
    return [kind_of(settings.type).make_spark().writer(opened, settings) for settings in opened.stream.sinks]


def refusals(sinks: Sequence[Sink], fields: Fields) -> list[Column]:
    """The refusals of the sinks, for rows that they can never take."""
    refusals_ = (sink.refusal(fields) for sink in sinks)
    return [one for one in refusals_ if one is not None]


def results(spark: SparkSession, opened: OpenStream, sink: str) -> DataFrame:
    """The results of one sink that count: coordinate, `_index`, `_tombstone`, and the stream's fields with their types.

    Some types differ:

    - `hbase_latest`: the newest value of each key, which may be a tombstone.
    - `hbase_aggregates`: only key and values of each key; a sum of integers is a decimal.
    - `kafka`: the message's `topic`, `key` and `value` instead of the fields.

    Raises WrongUse when the stream has no sink of this name.
    """
    settings = next((one for one in opened.stream.sinks if one.name == sink), None)
    if settings is None:
        known = ", ".join(one.name for one in opened.stream.sinks)
        raise WrongUse(f"{opened.stream.name} has no sink {sink!r}; it has: {known}")
    shown = replace(opened, ledger=for_readers(opened.ledger))
    rows: DataFrame = kind_of(settings.type).make_spark().results(spark, shown, settings)
    return rows
