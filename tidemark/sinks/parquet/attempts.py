"""Places with a folder for each attempt, whose files nobody changes: the sink `parquet`, and dead letters in files."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.clients.connections import Connections
from tidemark.ledger.ledger import CommittedSnapshot
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing, SinkAdmin

# Arrow takes a third of a second to load, and most programs that open a stream never sweep: it is loaded when needed.


class InFolders(SinkAdmin):
    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        from tidemark.sinks.parquet import files

        return files.owner(place["base"])

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        from tidemark.sinks.parquet import files

        files.take_over(place["base"], ledger)

    def reach(self, connections: Connections, place: Mapping[str, str], standing: CommittedSnapshot) -> None:
        from tidemark.sinks.parquet.folders import check_there

        check_there(place["base"], (window.record for window in standing.windows))

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        """Remove folders that can never count. The files of windows are immutable: a compaction writes new ones."""
        from tidemark.sinks.parquet import files

        self.reach(connections, place, erasing.standing)
        files.erase_dead(place["base"], erasing)

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        from tidemark.sinks.parquet import files
        from tidemark.sinks.parquet.folders import check_there

        check_there(place["base"], [record])
        files.sweep(place["base"], record)
