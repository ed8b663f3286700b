"""The registry of the stores of dead letters, one line each.

Other packages add types by the entry point `tidemark.dead_letters`.
"""

from __future__ import annotations

from tidemark.clients.connections import Connections
from tidemark.errors import DELTALAKE, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.settings.packages import kinds_of_packages, refusing
from tidemark.sinks.dead_letters.contract import DeadLetters, DeadLetterSettings, DeadLettersType
from tidemark.sinks.dead_letters.delta.settings import DeltaDeadLetters
from tidemark.sinks.dead_letters.hbase.settings import HBaseDeadLetters
from tidemark.sinks.dead_letters.parquet.settings import ParquetDeadLetters
from tidemark.sinks.dead_letters.sql.settings import SQLDeadLetters

GROUP = "tidemark.dead_letters"

_WITHOUT, _WITH = "tidemark.sinks.dead_letters", "tidemark.spark.sinks.dead_letters"

_BUILT_IN: dict[str, DeadLettersType] = {
    "hbase": DeadLettersType(
        HBaseDeadLetters,
        f"{_WITHOUT}.hbase.letters:open_letters",
        "tidemark.sinks.hbase.sink:HBaseAdmin",
        f"{_WITH}.hbase:InHBase",
    ),
    "parquet": DeadLettersType(
        ParquetDeadLetters,
        f"{_WITHOUT}.parquet.letters:open_letters",
        f"{_WITHOUT}.parquet.removal:LettersInFolders",
        f"{_WITH}.parquet:InParquet",
    ),
    "delta": DeadLettersType(
        DeltaDeadLetters,
        f"{_WITHOUT}.delta.letters:open_letters",
        "tidemark.sinks.delta.sink:DeltaLetters",
        f"{_WITH}.delta:InDelta",
        requires=(DELTALAKE,),
        publishes=True,
    ),
    "sql": DeadLettersType(
        SQLDeadLetters,
        f"{_WITHOUT}.sql.letters:open_letters",
        f"{_WITHOUT}.sql.removal:LettersInTables",
        f"{_WITH}.sql:InSQL",
        publishes=True,
    ),
}


def dead_letters_of(settings: DeadLetterSettings, ledger: Ledger, connections: Connections) -> DeadLetters:
    """The dead letters of a stream. Opening them asks no server."""
    return KINDS[settings.type].opened(settings.place(connections), ledger, connections)


def kind_of_receipts(type_: str) -> DeadLettersType | None:
    """The type of store that receipts name so; None for any other type of place. Raises WrongUse for one that is refused."""
    known = next((kind for kind in KINDS.values() if kind.settings.receipts() == type_), None)
    if known is not None and known.refused:
        raise WrongUse(f"the places of type {type_!r}: {known.refused}")
    return known


def publishes(type_: str) -> bool:
    """Whether windows in places that receipts name so are published after their commit."""
    return any(kind.publishes for kind in KINDS.values() if kind.settings.receipts() == type_)


def required_kind(type_: str) -> DeadLettersType:
    """As `kind_of_receipts`. Raises WrongUse for any other type of place."""
    if (kind := kind_of_receipts(type_)) is None:
        raise WrongUse(
            f"dead letters are in a place of type {type_!r}, which no package here knows: install the one that brings it"
        )
    return kind


def _refused(type_: str, why: str) -> DeadLettersType:
    return DeadLettersType(refusing(DeadLetterSettings, type_, why), "", "", "", refused=why)  # type: ignore[type-abstract]


KINDS: dict[str, DeadLettersType] = {
    **_BUILT_IN,
    **kinds_of_packages(GROUP, DeadLettersType, DeadLetterSettings, _refused, _BUILT_IN),
}
