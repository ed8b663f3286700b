"""The facet `tidemark_windows` of OpenLineage's events. Only imported where OpenLineage is installed."""

from __future__ import annotations

from typing import Any

from attrs import define
from openlineage.client.facet_v2 import RunFacet


@define
class WindowsRunFacet(RunFacet):
    """A run's committed windows: totals of all, and the first ones with their ranges, generations and counts."""

    stream: str
    lanes: list[str]
    run: str
    committed: int
    read: int
    stored: int
    skipped: int
    dead_letters: int
    offsets_lost: int
    offsets_skipped: int
    windows: list[dict[str, Any]]
