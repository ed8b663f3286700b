"""Sweeping and erasing dead letters in Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.clients.connections import Connections
from tidemark.sinks.contract import Erasing
from tidemark.sinks.parquet.attempts import InFolders


class LettersInFolders(InFolders):
    # An erasure writes the files again that hold it.
    left_by_erasing = ""

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        """Remove the folders of dead attempts with erased rows, and write the files of committed windows without them.

        Files with results stay until a compaction; dead letters have none, and they are few.
        """
        from tidemark.sinks.parquet import files

        super().erase(connections, place, erasing)
        for folder in files.left_by_committed(place["base"], [erasing]):
            files.rewrite_without(folder, erasing.erased)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        from tidemark.sinks.parquet import files

        base = place["base"]
        return sum(1 for _ in (*files.left_by_dead(base, done), *files.left_by_committed(base, done)))
