"""A Delta table with aggregates of each key, through delta-rs.

    BASE/_bucket=NUMBER/*.parquet     the totals of a bucket's keys: the key's columns, and one for each total
    BASE/_history/...                 what the windows have written, see `tidemark.sinks.latest.history`

The table is that of newest rows (`tidemark.sinks.delta.latest.table`) with another fold.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.sinks.aggregates.fold import TotalsFold
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.aggregates.table import totals_columns
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.aggregates.settings import TYPE
from tidemark.sinks.delta.latest.table import DeltaLatest, keep_marks
from tidemark.sinks.latest.marks import marks
from tidemark.sinks.latest.rows import BUCKET
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import NEVER, Names


def totals_table(base: str) -> DeltaLatest:
    return DeltaLatest(base, TYPE, TotalsFold(base))


def prepare(
    base: str,
    settings: AggregatesSettings,
    fields: Mapping[str, FieldType],
    stream: str,
    ledger: str,
    was: Names = NEVER,
) -> None:
    """Make the table, or check its owner, its key, its buckets and its totals. `fields`: as the history has them.

    Raises what `delta_table.prepare` raises, and WrongUse for a table with another key, number of buckets or totals.
    """
    kept = marks(settings.key, settings.buckets, settings.compression, settings.described(fields))
    is_there = delta_table.owner(base).get("stream") == stream
    if is_there:
        # Before it gets columns: it may be that of another type of sink.
        keep_marks(base, kept, was)
    schema = totals_columns(settings, fields)
    of_key = {name: was[name] for name in settings.key if name in was}
    delta_table.prepare(base, schema, stream, ledger, of_key, BUCKET, kept, delta_table.NO_STATISTICS)
    if not is_there:
        # Another attempt may have made it meanwhile.
        keep_marks(base, kept, was)
