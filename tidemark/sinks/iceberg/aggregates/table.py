"""An Iceberg table with aggregates of each key.

    BASE/data/bucket-NUMBER-*.parquet     the totals of a bucket's keys: the key's columns, and one for each total
    BASE/metadata/...
    BASE/_history/...                     what the windows have written, see `tidemark.sinks.latest.history`

The table is that of newest rows (`tidemark.sinks.iceberg.latest.table`) with another fold.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.sinks.aggregates.fold import TotalsFold
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.aggregates.table import totals_fields
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.aggregates.settings import TYPE
from tidemark.sinks.iceberg.catalog import CatalogTable
from tidemark.sinks.iceberg.latest.table import OF_BUCKET, PARTITIONS, IcebergLatest, as_stored, keep_marks
from tidemark.sinks.latest.marks import marks
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import NEVER, Names


def totals_table(where: CatalogTable) -> IcebergLatest:
    return IcebergLatest(where, TYPE, TotalsFold(where.base))


def prepare(
    where: CatalogTable,
    settings: AggregatesSettings,
    fields: Mapping[str, FieldType],
    stream: str,
    ledger: str,
    was: Names = NEVER,
) -> None:
    """Make the table, or check its owner, its key, its buckets and its totals. `fields`: as the history has them.

    Raises what `iceberg_table.prepare` raises, and WrongUse for a table with another key, number of buckets or totals.
    """
    kept = marks(settings.key, settings.buckets, settings.compression, settings.described(fields))
    is_there = iceberg_table.owner(where).get("stream") == stream
    if is_there:
        # Before it gets columns: it may be that of another type of sink.
        keep_marks(where, kept, was)
    columns = totals_fields(settings, fields)
    as_stored(where, columns, {name: was[name] for name in settings.key if name in was})
    iceberg_table.prepare(where, columns, stream, ledger, PARTITIONS, more=OF_BUCKET, kept=kept, of_messages=False)
    if not is_there:
        # Another attempt may have made it meanwhile.
        keep_marks(where, kept, was)
