"""The settings of dead letters in a Delta table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tidemark.sinks.dead_letters.contract import NAME
from tidemark.sinks.dead_letters.parquet.settings import FileDeadLetters
from tidemark.sinks.delta.settings import DeltaSink


class DeltaDeadLetters(FileDeadLetters):
    """The Delta table of the dead letters."""

    type: Annotated[Literal["delta"], Field(description="Optional.")] = "delta"

    @property
    def sink(self) -> DeltaSink:
        return DeltaSink(type="delta", name=NAME, files=self.files, folder=self.folder, compression=self.compression)
