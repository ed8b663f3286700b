"""The settings of a table with the newest row of each key."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from tidemark.clients.connections import Connections
from tidemark.settings.parts import FieldName
from tidemark.sinks.contract import SettingsContext
from tidemark.sinks.keys import UNSENT, Key, Unsent
from tidemark.sinks.latest.rows import history_of
from tidemark.sinks.parquet.settings import Compression, FolderKey, FolderSettings


@dataclass(frozen=True)
class HistoryFolder:
    """The folder with what the windows have written, as compactions of folders take it."""

    name: str
    type: str
    compression: Compression
    folder: str

    def base(self, connections: Connections) -> str:
        return self.folder

    def folder_keys(self) -> tuple[FolderKey, ...]:
        return ()


class HistorySettings(FolderSettings):
    """The settings of all sinks with a row for each key, which is made of a history of the windows' rows."""

    key: Key
    buckets: int = Field(
        default=16,
        ge=1,
        le=1024,
        description="The number of buckets for keys. A table keeps the number that it was created with.",
    )
    compression: Compression = Field(default="snappy", description="The compression of the files.")

    @property
    def fields_named(self) -> tuple[str, ...]:
        """The fields of the stream that the sink names."""
        return self.key

    def problem_with(self, others: SettingsContext) -> str | None:
        if unknown := [name for name in self.fields_named if name not in others.fields]:
            return f"sink {self.name} names the field {unknown[0]}, which the stream does not have"
        if problem := others.no_key(self.name, self.key):
            return problem
        if others.guarantee != "at_least_once":
            return (
                f"sink {self.name}: with guarantee {others.guarantee}, what a window has written is not known when it is "
                "committed, and the table is made of that; use at_least_once"
            )
        return None

    def history(self, connections: Connections) -> HistoryFolder:
        return HistoryFolder(self.name, self.type, self.compression, history_of(self.base(connections)))


class LatestSettings(HistorySettings):
    """The settings that all sinks with the newest row of each key share."""

    op: FieldName | None = Field(
        default=None,
        description="The field with the operation of the message, as Debezium writes it: `c`, `u`, `r`, or `d` for a delete. "
        "Without it, only tombstones delete.",
    )
    unsent: Unsent = UNSENT

    @property
    def fields_named(self) -> tuple[str, ...]:
        return (*self.key, *([self.op] if self.op is not None else []))

    def problem_with(self, others: SettingsContext) -> str | None:
        if problem := super().problem_with(others):
            return problem
        if self.op is not None and others.fields[self.op] != "string":
            return f"sink {self.name}: op is a text such as c or d, and {self.op} is of type {others.fields[self.op]}"
        return None


class VersionedTable(HistorySettings):
    """The settings of sinks whose tables have versions, which are files."""

    keep_hours: int = Field(
        default=24,
        ge=1,
        description="How long files stay that only older versions of the table reference; `tidemark compact` removes them "
        "afterwards.",
    )
