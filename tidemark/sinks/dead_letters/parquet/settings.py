"""The settings of dead letters in Parquet files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tidemark.clients.connections import Connections
from tidemark.sinks.contract import OwnedPlace
from tidemark.sinks.dead_letters.contract import NAME, DeadLetterSettings
from tidemark.sinks.parquet.settings import Compression, Folder, FolderSettings, InFolder, ParquetSink

# No message of Kafka comes near: nothing of it is left out.
_MAX_BYTES = 2**31 - 1


class FileDeadLetters(InFolder, DeadLetterSettings):
    """The settings that dead letters in files share."""

    server: ClassVar[str] = "the lake"

    folder: Annotated[Folder, Field(description="The folder, below the connection's path. No sink may have it.")]
    compression: Compression = Field(default="snappy", description="The compression of the files.")

    @property
    def sink(self) -> FolderSettings:
        """A sink of the same files: what writes its rows writes dead letters."""
        return FolderSettings(type=self.type, name=NAME, files=self.files, folder=self.folder)

    @property
    def most_bytes(self) -> int:
        return _MAX_BYTES

    def owned(self) -> Iterable[OwnedPlace]:
        return self.sink.owned()

    def place(self, connections: Connections) -> dict[str, str]:
        return {"base": self.sink.base(connections)}


class ParquetDeadLetters(FileDeadLetters):
    """The folder of the dead letters."""

    type: Literal["parquet"]

    @property
    def sink(self) -> ParquetSink:
        return ParquetSink(
            type="parquet", name=NAME, files=self.files, folder=self.folder, compression=self.compression
        )
