"""The columns of a lake's table with aggregates of each key: those of the key, and one for each aggregate."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.latest.rows import BUCKET
from tidemark.types.fields import FieldType, arrow_type


def totals_fields(settings: AggregatesSettings, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """The columns with their types. `fields`: those of the history."""
    return {
        **{name: fields[name] for name in settings.key},
        **{one.name: one.type for one in settings.aggregates(fields)},
    }


def totals_columns(settings: AggregatesSettings, fields: Mapping[str, FieldType]) -> pa.Schema:
    """The same, and the bucket that the table is partitioned by."""
    columns = ((name, arrow_type(kind)) for name, kind in totals_fields(settings, fields).items())
    return pa.schema([*columns, (BUCKET, pa.int32())])
