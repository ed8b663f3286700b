"""Dead letters in a Delta table, to read from.

    BASE/_delta_log/...
    BASE/_generation=GENERATION/*.parquet

Each attempt that has dead letters writes its files beside the table, and they are published as those of the sink. So the
generation that counts at an offset names the files that may have its dead letter. What is published later takes rows out, and
then other files hold what is left of an attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.errors import LedgerContradiction
from tidemark.ledger.ledger import Ledger
from tidemark.sinks.dead_letters.parquet.letters import TYPES, LettersInFiles
from tidemark.sinks.delta import attempts, table
from tidemark.types.fields import FieldType

# No folder of the table names the window that has written a dead letter.
WINDOW = "window"
COLUMNS: dict[str, FieldType] = {WINDOW: "string", **TYPES}


def open_letters(place: Mapping[str, str], ledger: Ledger, _connections: Connections) -> LettersInDelta:
    return LettersInDelta(place["base"], ledger)


class LettersInDelta(LettersInFiles):
    """The dead letters in the table of a base folder."""

    window_columns = (WINDOW,)

    def owner(self) -> Mapping[str, Any]:
        return table.owner(self._base)

    def _listed(self) -> Mapping[int, list[str]]:
        # Those beside the table first: what is published in between is in both.
        return {**attempts.written(self._base), **table.files_of(self._base)}

    def _window_of(self, file: str, row: Mapping[str, Any]) -> tuple[str, int]:
        lane, _, seq = row[WINDOW].decode().rpartition("/")
        return lane, int(seq)

    def _gone(self, file: str) -> str:
        if (there := attempts.published(self._base, file)) is not None:
            return there
        raise LedgerContradiction(
            f"{file} is gone, and the table {self._base} has named it. If somebody has vacuumed the table just now, ask again; "
            "else replay the offsets of its windows"
        )
