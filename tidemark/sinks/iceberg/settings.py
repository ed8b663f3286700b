"""The settings of a sink in an Iceberg table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tidemark.settings.parts import ConnectionName, Items, Name, form
from tidemark.sinks.contract import OwnedPlace, SettingsContext
from tidemark.sinks.parquet.settings import Compression, FolderSettings
from tidemark.types.fields import leaves, type_of

TableName = Annotated[
    str,
    form(
        r"^[a-z][a-z0-9_]{0,62}(\.[a-z][a-z0-9_]{0,62})+$",
        "a namespace and a table with a dot between them: small letters, digits and _",
    ),
]


_FIELD = "[A-Za-z][A-Za-z0-9_-]{0,62}"
_KEY = re.compile(
    rf"(?P<part>day|hour)\((?P<time>{_FIELD})\)|bucket\((?P<number>[1-9][0-9]{{0,3}}), ?(?P<of>{_FIELD})\)"
)
# Types of fields that a bucket may be of.
_HASHED = frozenset({"string", "integer", "int"})
_TIMES = frozenset({"timestamp", "timestamp_ntz"})


@dataclass(frozen=True)
class PartitionKey:
    """The partition key of a table: the day or the hour (UTC) of a field that is a time, or buckets of a field."""

    field: str
    part: Literal["day", "hour", "bucket"]
    buckets: int = 0

    @classmethod
    def read(cls, text: str) -> PartitionKey:
        """`day(field)`, `hour(field)` or `bucket(16, field)`. Raises ValueError."""
        parts = _KEY.fullmatch(text)
        if parts is None:
            raise ValueError(
                f"{text!r}: expected day(field), hour(field), or bucket(16, field) with a number up to 9999"
            )
        if parts["of"]:
            return cls(parts["of"], "bucket", int(parts["number"]))
        return cls(parts["time"], "day" if parts["part"] == "day" else "hour")

    @property
    def name(self) -> str:
        """The partition field's name in the table, as Iceberg's own programs write it."""
        return f"{self.field}_{self.part}"

    @property
    def column(self) -> str:
        """The column that names the folders of files while they are written. The files do not have it."""
        return f"by_{self.part}_{self.field}"


def _readable(text: str) -> str:
    PartitionKey.read(text)
    return text


class InCatalog(FolderSettings):
    """A table in a folder below the connection's path, named in a catalog."""

    table: Annotated[TableName, Field(description="Namespace and name in the catalog, such as `lake.orders`.")]
    catalog: ConnectionName = Field(
        default="iceberg_default",
        description="The connection of the catalog: a database, in PostgreSQL or an SQLite file, or a REST server.",
    )
    catalog_name: Name = Field(
        default="tidemark",
        description="The catalog's name for readers: a database may hold several. A REST server has one, or uses a warehouse.",
    )

    @property
    def other_connections(self) -> frozenset[str]:
        return frozenset({self.catalog})

    def owned(self) -> Iterable[OwnedPlace]:
        yield from super().owned()
        said = f"table {self.table!r} of the catalog {self.catalog_name!r}"
        place = ("iceberg", self.catalog, self.catalog_name, self.table)
        yield OwnedPlace(place, f"{said} is named by two sinks; give each its own", said)

    def problem_with(self, others: SettingsContext) -> str | None:
        # Iceberg names what is within a column with dots.
        for name, kind in others.fields.items():
            paths = [".".join((name, *path)) for path in leaves(type_of(kind))]
            if twice := [path for path in paths if paths.count(path) > 1]:
                return f"sink {self.name}: {name} has two members that Iceberg calls {twice[0]}; give one another name"
        return super().problem_with(others)


class IcebergSink(InCatalog):
    """An Iceberg table in a folder below the connection's path, named in a catalog."""

    type: Literal["iceberg"]
    name: Name = Field(default="iceberg", description="The name of the sink. Two sinks of one type need names.")
    compression: Compression = Field(default="snappy", description="The compression of the files.")
    keep_hours: int = Field(
        default=24,
        ge=1,
        description="How long a snapshot is kept after it was replaced; `tidemark compact` expires older ones.",
    )

    # Each further one multiplies the number of files.
    partition_by: Annotated[
        Items[Annotated[str, AfterValidator(_readable)]],
        Field(
            max_length=4,
            description="The day or the hour (UTC) of a timestamp, `day(time)` or `hour(time)`; or buckets of a field that is "
            "a string or an integer, `bucket(16, customer)`. A table keeps its partitions.",
        ),
    ] = ()

    @model_validator(mode="after")
    def _keys_apart(self) -> IcebergSink:
        names = [key.name.lower() for key in self.partition_keys()]
        if len(set(names)) < len(names):
            raise ValueError(f"partition_by: two of them would be called {max(names, key=names.count)}")
        return self

    def partition_keys(self) -> tuple[PartitionKey, ...]:
        return tuple(PartitionKey.read(part) for part in self.partition_by)

    def problem_with(self, others: SettingsContext) -> str | None:
        fields = others.fields
        names = {name.lower() for name in fields}
        for key in self.partition_keys():
            kind = fields.get(key.field)
            if kind is None:
                return f"sink {self.name} names the field {key.field}, which the stream does not have"
            if key.part != "bucket" and kind not in _TIMES:
                return f"sink {self.name}: {key.part}({key.field}) needs a timestamp, and {key.field} is of type {kind}"
            if key.part == "bucket" and kind not in _HASHED:
                return f"sink {self.name}: {key.field} is of type {kind}; bucket takes {', '.join(sorted(_HASHED))}"
            if taken := names & {key.name.lower(), key.column.lower()}:
                return f"sink {self.name}: {key.part}({key.field}) is called as the field {min(taken)}; rename that"
        return super().problem_with(others)


def place_of(settings: InCatalog, base: str) -> dict[str, str]:
    """The place of a sink, without an attempt's own folder."""
    return {"base": base, "catalog": settings.catalog, "catalog_name": settings.catalog_name, "table": settings.table}
