"""How a table is partitioned, and the partition that a file lies in. Spark puts rows of one partition into a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform, Transform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from tidemark.errors import WrongUse
from tidemark.sinks.iceberg.schema import names_today
from tidemark.sinks.iceberg.settings import PartitionKey
from tidemark.sinks.parquet import folders


@dataclass(frozen=True)
class IdentityPartition:
    """A column by whose very values a table is partitioned."""

    field: str

    @property
    def name(self) -> str:
        return self.field


AnyKey = PartitionKey | IdentityPartition


def spec_of(keys: Iterable[AnyKey], schema: Schema, ids: Iterable[int] | None = None) -> PartitionSpec:
    """A table's partitions. `ids`: those of its fields, from the lowest on that the table has not used."""
    fields = (
        PartitionField(schema.find_field(key.field).field_id, number, _transform(key), key.name)
        for key, number in zip(keys, ids if ids is not None else count(PARTITION_FIELD_ID_START), strict=False)
    )
    return PartitionSpec(*fields)


def _transform(key: AnyKey) -> Transform[Any, Any]:
    if isinstance(key, IdentityPartition):
        return IdentityTransform()
    match key.part:
        case "day":
            return DayTransform()
        case "hour":
            return HourTransform()
    return BucketTransform(key.buckets)


def check_spec(where: object, keys: Iterable[AnyKey], metadata: TableMetadata, renamed: Mapping[str, str]) -> None:
    """Raises WrongUse for a table that is partitioned by something else. `renamed`: columns that are about to be, to what."""
    wanted = [(key.field, str(_transform(key))) for key in keys]
    schema = metadata.schema()
    sources = [(schema.find_field(field.source_id).name, str(field.transform)) for field in metadata.spec().fields]
    spec_keys = [(renamed.get(name, name), transform) for name, transform in sources]
    if spec_keys != wanted:
        said = ", ".join(f"{transform} of {field}" for field, transform in spec_keys) or "nothing"
        raise WrongUse(
            f"{where} is partitioned by {said}, and the stream file now says something else: name another table"
        )


def partition_of(metadata: TableMetadata, name: str) -> Record:
    """The partition of a file, by its first row: all others are of the same one."""
    spec, schema = metadata.spec(), metadata.schema()
    if not spec.fields:
        return Record()
    sources = [schema.find_field(field.source_id) for field in spec.fields]
    first = _first_row(metadata, name, {source.name for source in sources})
    transforms = (
        field.transform.transform(source.field_type) for field, source in zip(spec.fields, sources, strict=True)
    )
    return Record(*(apply(_plain(first[one.name])) for apply, one in zip(transforms, sources, strict=True)))


def _first_row(metadata: TableMetadata, name: str, columns: set[str]) -> dict[str, pa.Scalar]:
    today = names_today(metadata)
    with (
        folders.opened(name) as (filesystem, path),
        filesystem.open_input_file(path) as file,
        pq.ParquetFile(file) as parquet,
    ):
        named = {one: now for one in parquet.schema_arrow.names if (now := today.get(one, one)) in columns}
        batch = next(parquet.iter_batches(1, columns=[*named]))
        return {now: batch.column(one)[0] for one, now in named.items()}


def _plain(value: pa.Scalar) -> Any:
    """A value as transforms take it: times in microseconds."""
    return value.value if isinstance(value, pa.TimestampScalar) else value.as_py()


def buckets(values: pa.Array, number: int) -> pa.Array:
    """The bucket of each value of a string or an integer; null of null."""
    text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    apply = BucketTransform(number).transform(StringType() if text else LongType())
    return pa.array([apply(value) for value in values.to_pylist()], pa.int32())
