"""What a stream file may say of a sink in an Iceberg table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from tidemark.settings.parts import ConnectionName, Name, form
from tidemark.sinks.contract import Owned
from tidemark.sinks.parquet.settings import Compression, FolderSettings

TableName = Annotated[
    str,
    form(
        r"^[a-z][a-z0-9_]{0,62}(\.[a-z][a-z0-9_]{0,62})+$",
        "a namespace and a table with a dot between them: small letters, digits and _",
    ),
]


class IcebergSink(FolderSettings):
    """An Iceberg table in a folder below the connection's path, named in a catalog."""

    type: Literal["iceberg"]
    name: Name = Field(default="iceberg", description="The name of the sink. Two sinks of one type need names.")
    table: Annotated[TableName, Field(description="Namespace and name in the catalog, such as `lake.orders`.")]
    catalog: ConnectionName = Field(
        default="iceberg_default",
        description="The connection to the catalog's database: PostgreSQL, or a file of SQLite.",
    )
    catalog_name: Name = Field(
        default="tidemark", description="What readers call the catalog: a database may hold several."
    )
    compression: Compression = Field(default="snappy", description="How the files are compressed.")
    keep_hours: int = Field(
        default=24, ge=1, description="How long a snapshot is kept at least; `tidemark compact` lets older ones expire."
    )

    @property
    def other_connections(self) -> frozenset[str]:
        return frozenset({self.catalog})

    def owned(self) -> Iterable[Owned]:
        yield from super().owned()
        said = f"table {self.table!r} of the catalog {self.catalog_name!r}"
        place = ("iceberg", self.catalog, self.catalog_name, self.table)
        yield Owned(place, f"{said} is named by two sinks; give each its own", said)
