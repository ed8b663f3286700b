"""The settings of a sink of Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tidemark.clients.connections import Connections
from tidemark.clients.lake import lake_folder
from tidemark.settings.parts import ConnectionName, Items, Name, form
from tidemark.sinks.contract import OwnedPlace, SettingsContext, SinkSettings, StoreSettings
from tidemark.types.fields import FieldType

_KEY = re.compile(
    r"(?:(?P<part>date|hour)\((?P<of>[A-Za-z][A-Za-z0-9_-]{0,62})\)|(?P<field>[A-Za-z][A-Za-z0-9_-]{0,62}))"
)
# Types that have few values and one way to write them; for a time, its date or its hour.
_WHOLE: frozenset[FieldType] = frozenset({"string", "integer", "int", "boolean", "date"})
_TIMES: frozenset[FieldType] = frozenset({"timestamp", "timestamp_ntz"})

Folder = Annotated[
    str,
    form(
        r"^[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*$",
        "a folder below the connection's path, without / at its beginning or end: letters, digits, _, dots, = and -",
    ),
]

# Codecs that Spark, Arrow and most other readers have without another library.
Compression = Literal["snappy", "gzip", "zstd", "none"]


@dataclass(frozen=True)
class FolderKey:
    """The value that names a folder below a window's: a field, or the date or hour (in UTC) of a field that is a time."""

    field: str
    part: Literal["date", "hour"] | None = None

    @classmethod
    def read(cls, text: str) -> FolderKey:
        """`field`, `date(field)` or `hour(field)`. Raises ValueError."""
        parts = _KEY.fullmatch(text)
        if parts is None:
            raise ValueError(f"{text!r}: expected a field, or date(field) or hour(field)")
        part = parts["part"]
        return cls(parts["of"] or parts["field"], part if part is None else "date" if part == "date" else "hour")

    @property
    def column(self) -> str:
        """The folder's column, never named like the field: the files have that column, with the exact value."""
        return f"by_{self.field}" if self.part is None else f"by_{self.part}_{self.field}"


def _readable(text: str) -> str:
    FolderKey.read(text)
    return text


class InFolder(StoreSettings):
    """The settings that sinks and dead letters in files share: a folder below the connection's path."""

    files: ConnectionName = Field(default="lake_default", description="The connection, with `path` among its extras.")
    folder: Annotated[Folder, Field(description="The folder, below the connection's path.")]

    @property
    def connection(self) -> str:
        return self.files

    @property
    def file_system(self) -> str:
        return self.files

    @property
    def own_folder(self) -> str:
        return self.folder


class FolderSettings(InFolder, SinkSettings):
    """The settings that all sinks of files share."""

    def owned(self) -> Iterable[OwnedPlace]:
        # Not every file system tells names apart that differ in case alone.
        parts = self.folder.lower().split("/")
        said = f"folder {self.folder!r}"
        return [OwnedPlace(("folder", self.files, *parts), f"{said} is named by two sinks; give each its own", said)]

    def base(self, connections: Connections) -> str:
        """The folder that the sink writes below, as a URI."""
        base = lake_folder(connections(self.files))
        root = base if "://" in base else f"file://{PurePosixPath(base) if base else ''}"
        return f"{root}/{self.folder}"


class ParquetSink(FolderSettings):
    """A folder for each window and attempt, below the connection's path."""

    type: Literal["parquet"]
    name: Name = Field(default="parquet", description="The name of the sink. Two sinks of one type need names.")
    compression: Compression = Field(default="snappy", description="The compression of the files.")
    # Each further field multiplies the number of files.
    partition_by: Annotated[
        Items[Annotated[str, AfterValidator(_readable)]],
        Field(
            max_length=4,
            description="Fields that are a string, an integer, a date or a boolean, by their names; or the date or the hour "
            "(UTC) of a timestamp, `date(time)` or `hour(time)`.",
        ),
    ] = ()

    @model_validator(mode="after")
    def _keys_apart(self) -> ParquetSink:
        columns = [key.column.lower() for key in self.folder_keys()]
        if len(set(columns)) < len(columns):
            raise ValueError(f"partition_by: two of them would be the folders {max(columns, key=columns.count)}=...")
        return self

    def folder_keys(self) -> tuple[FolderKey, ...]:
        return tuple(FolderKey.read(part) for part in self.partition_by)

    def problem_with(self, others: SettingsContext) -> str | None:
        fields = others.fields
        for key in self.folder_keys():
            kind = fields.get(key.field)
            if kind is None:
                return f"sink {self.name} names the field {key.field}, which the stream does not have"
            if key.part is not None and kind not in _TIMES:
                return f"sink {self.name}: {key.part}({key.field}) needs a timestamp, and {key.field} is of type {kind}"
            if key.part is None and kind not in _WHOLE:
                of = f"date({key.field}) and hour({key.field})" if kind in _TIMES else ", ".join(sorted(_WHOLE))
                return f"sink {self.name}: {key.field} is of type {kind}; partition_by takes {of}"
            if key.column.lower() in {name.lower() for name in fields}:
                return f"sink {self.name}: its folders {key.column}=... would have the name of a field; rename that"
        return None
