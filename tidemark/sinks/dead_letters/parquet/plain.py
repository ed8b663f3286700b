"""Sweeping and erasing dead letters in Parquet files."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Standing
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import PlainSink


class PlainDeadLetters(PlainSink):
    # An erasure writes the files again that hold it.
    left_by_erasing = ""

    def reach(self, connections: Connections, place: Mapping[str, str], standing: Standing) -> None:
        from tidemark.sinks.parquet.folders import check_there

        check_there(place["base"], standing)

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        # As for the sink: Arrow takes a third of a second to load.
        from tidemark.sinks.parquet import files

        files.sweep(place["base"], record)

    def erase_beside(
        self,
        connections: Connections,
        place: Mapping[str, str],
        record: Record,
        covers: RangeSet,
        erased: RangeSet,
        standing: Standing,
    ) -> None:
        """Remove the folders of dead attempts with erased rows, and write the files of committed windows without them.

        Files with results stay until a compaction; dead letters have none, and they are few.
        """
        from tidemark.sinks.parquet import files, folders

        folders.check_there(place["base"], standing)
        files.erase_dead(place["base"], erased, standing, record.attempt.generation)
        committed = {one.generation for one in standing.windows}
        for one in files.on_disk(place["base"]):
            if one.generation in committed:
                files.rewrite_without(one.folder, erased)
