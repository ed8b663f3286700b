"""The settings of a sink in a Delta table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import Field

from tidemark.clients.lake import beside
from tidemark.settings.parts import Name
from tidemark.sinks.contract import OwnedPlace, SettingsContext
from tidemark.sinks.parquet.settings import Compression, FolderSettings
from tidemark.types.ddl import Type
from tidemark.types.fields import type_of


class DeltaSink(FolderSettings):
    """A Delta table in a folder below the connection's path, partitioned by the generation that wrote a row."""

    type: Literal["delta"]
    name: Name = Field(default="delta", description="The name of the sink. Two sinks of one type need names.")
    compression: Compression = Field(default="snappy", description="The compression of the files.")

    def problem_with(self, others: SettingsContext) -> str | None:
        return no_column(self.name, others) or super().problem_with(others)

    def owned(self) -> Iterable[OwnedPlace]:
        for one in super().owned():
            yield one
            # What attempts write stands beside the table.
            *above, name = one.place
            yield OwnedPlace((*above, beside(f"/{name}")[1:]), one.problem, one.said)


def no_column(sink: str, others: SettingsContext) -> str | None:
    """Why Delta refuses a table with these fields; None where it takes them.

    A table with local times has to say so. delta-rs says it of those that it finds, and it does not look into maps.
    """
    found = {name: [*_local_times(type_of(kind))] for name, kind in others.fields.items()}
    if any(False in within for within in found.values()):
        return None
    for name, within in found.items():
        if within:
            return (
                f"sink {sink}: {name} is of type {others.fields[name]}, and Delta takes no timestamp_ntz as a map's value; "
                "make it timestamp or string, or name an Iceberg table"
            )
    return None


def _local_times(kind: Type, *, in_map: bool = False) -> Iterator[bool]:
    """For each `timestamp_ntz` within a type, whether it lies in a map."""
    if kind.name == "timestamp_ntz":
        yield in_map
    parts = [kind.of] if kind.of is not None else [one.type for one in kind.members]
    for part in parts:
        yield from _local_times(part, in_map=in_map or kind.name == "map")
