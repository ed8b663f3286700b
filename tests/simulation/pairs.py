"""Which two things have met: both have touched one unit, the second after the first, or while the first was asleep.

A unit is a block of offsets, a run's name or a machine. What never meets is not tested, however many steps are played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.simulation.kafka import Kafka
from tidemark.offsets.ranges import RangeSet

Unit = tuple[str, int, int]
# Coarser than most blocks of the settings: neighbours meet.
_BLOCK = 4

# Faults were found, or planted, where these meet. `./run test full` fails when one of them does so too rarely.
LISTED: tuple[tuple[str, str], ...] = (
    ("back up: sleeps", "recreate"),
    ("clock", "ingest: dies"),
    ("compact", "erase"),
    ("compact", "replay"),
    ("cut", "cut"),
    ("cut", "erase key"),
    ("erase", "erase"),
    ("erase", "replay"),
    ("erase: sleeps", "ingest"),
    ("ingest: sleeps", "erase"),
    ("isolation", "ingest"),
    ("isolation", "replay"),
    ("newest: sleeps", "erase"),
    ("recreate", "replay"),
    ("replay", "erase"),
    ("replay: dies", "again"),
    ("replay: sleeps", "erase"),
    ("retain", "replay"),
    ("totals: sleeps", "erase"),
)
FEWEST = 10


def blocks(ranges: RangeSet) -> set[Unit]:
    """The blocks of some offsets, whatever the incarnation."""
    return {
        (f"block of {one.partition.topic}", one.partition.partition, number)
        for one in ranges
        for number in range(one.start // _BLOCK, (one.until - 1) // _BLOCK + 1)
    }


def of_kafka(kafka: Kafka) -> dict[Unit, tuple[object, ...]]:
    """What each block of the logs holds: what a step has changed, it has touched."""
    found: dict[Unit, list[object]] = {}
    for topic, number, log in kafka.parts():
        for at, slot in log.slots.items():
            settled = slot is not None and (slot.transaction in log.running, slot.transaction in log.aborted)
            found.setdefault((f"block of {topic}", number, at // _BLOCK), []).append((at, slot, settled))
    return {unit: tuple(held) for unit, held in found.items()}


@dataclass
class Pairs:
    """Counts in how many programs two things have met."""

    met: Counter[tuple[str, str]] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)

    def add(self, events: Iterable[tuple[str, set[Unit]]]) -> None:
        """The events of one program, in their order."""
        found: set[tuple[str, str]] = set()
        earlier: list[tuple[str, set[Unit]]] = []
        for name, units in events:
            self.names.add(name)
            found |= {(before, name) for before, there in earlier if (before, name) not in found and there & units}
            earlier.append((name, units))
        self.met.update(found)

    def never(self) -> Iterator[tuple[str, str]]:
        """Of what has happened, the pairs of steps that went as usual and never met."""
        plain = sorted(name for name in self.names if ":" not in name)
        return ((one, other) for one in plain for other in plain if not self.met[one, other])

    def too_rare(self) -> dict[tuple[str, str], int]:
        return {pair: self.met[pair] for pair in LISTED if self.met[pair] < FEWEST}

    def said(self) -> str:
        never = [f"{one} > {other}" for one, other in self.never()]
        return f"{len(self.met)} pairs have met of {len(self.names) ** 2} possible ones. Never: {', '.join(never) or 'none'}"
