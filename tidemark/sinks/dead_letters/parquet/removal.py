"""Sweeping and erasing dead letters in Parquet files."""

from __future__ import annotations

from collections.abc import Mapping

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
        committed = {window.generation for window in erasing.standing.windows}
        for attempt in files.on_disk(place["base"]):
            if attempt.generation in committed:
                files.rewrite_without(attempt.folder, erasing.erased)
