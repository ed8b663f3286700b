"""The places that streams write to, and which of them would meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark.ledger.stores.kind import LedgerSettings
from tidemark.sinks.contract import OwnedPlace, SinkSettings, owned_table
from tidemark.sinks.dead_letters.contract import DeadLetterSettings


@dataclass(frozen=True)
class PlaceTaken:
    """A place, and who writes to it. `ledger`: streams may share it, with ledgers of others."""

    owned: OwnedPlace
    by: str
    connection: str
    ledger: bool = False
    file: Path | None = None


class Places:
    """Places of which none is another one, or lies within another one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[PlaceTaken]] = {}
        # Each place that one of them lies within.
        self._around: dict[tuple[str, ...], PlaceTaken] = {}

    def add(self, key: tuple[str, ...], place: PlaceTaken) -> PlaceTaken | None:
        """Take a place in, and return one that it meets; None if it meets none."""
        for length in range(1, len(key) + 1):
            for other in self._known.get(key[:length], []):
                if not (place.ledger and other.ledger and length == len(key)):
                    return other
        if key in self._around:
            return self._around[key]
        self._known.setdefault(key, []).append(place)
        for length in range(1, len(key)):
            self._around.setdefault(key[:length], place)
        return None


def problem_within(places: Iterable[PlaceTaken]) -> str | None:
    """The problem with the places of one stream; None if each thing that it writes has its own."""
    known = Places()
    for place in places:
        if (other := known.add(place.owned.place, place)) is not None:
            same = other.owned.place == place.owned.place and other.owned.said == place.owned.said
            return place.owned.problem if same else meeting(place, other)
    return None


def written(
    ledger: LedgerSettings, dead_letters: DeadLetterSettings, sinks: Iterable[SinkSettings], file: Path | None = None
) -> Iterator[PlaceTaken]:
    """The places that a stream writes to; `file` is its stream file."""
    for owned in dead_letters.owned():
        yield PlaceTaken(owned, "the dead letters", dead_letters.connection, file=file)
    for owned in dead_letters.copied():
        yield PlaceTaken(owned, "the copies of the dead letters", dead_letters.copy_kafka, file=file)
    for table in ledger.tables():
        yield PlaceTaken(owned_table(table), "the ledger", ledger.connection, ledger=True, file=file)
    for sink in sinks:
        for owned in sink.owned():
            yield PlaceTaken(owned, f"sink {sink.name}", sink.connection, file=file)


def meeting(place: PlaceTaken, other: PlaceTaken) -> str:
    """The error for a place that meets another one."""
    where = f" in {other.file}" if other.file else ""
    return (
        f"{_shown(place)} of {place.by} meets {_shown(other)} of {other.by}{where}: they are one, one lies within the other, "
        "or their names differ in case alone, which not every file system tells apart. Name another place, next to it"
    )


def _shown(place: PlaceTaken) -> str:
    return place.owned.said or " ".join(place.owned.place)
