"""How often things have to end well among many seeds: a search in which everything is refused has found nothing."""

from __future__ import annotations

from collections.abc import Mapping

# The least in 1,000 seeds, about a third of what there is.
FLOORS: dict[str, int] = {
    "replay done": 350,
    "erase done": 350,
    "backfill done": 50,
    "plan accepted": 10,
    "found among dead letters": 20,
    "windows of a ingest": 2_300,
    "windows of a replay": 600,
    "restored streams": 30,
    "tables of Iceberg seen by others": 5,
}
# Among fewer seeds, chance decides too much.
_FEWEST_SEEDS = 300


def too_rare(met: Mapping[str, int], seeds: int) -> dict[str, tuple[int, int]]:
    """What has happened too rarely among so many seeds: how often, and the least."""
    if seeds < _FEWEST_SEEDS:
        return {}
    least = {name: floor * seeds // 1_000 for name, floor in FLOORS.items()}
    return {name: (met.get(name, 0), number) for name, number in least.items() if met.get(name, 0) < number}
