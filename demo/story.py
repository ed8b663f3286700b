"""The parts of the demonstration, in their order, and the servers that each needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demo.on_one_machine import OnOneMachine
from demo.on_servers import OnServers
from demo.stage import Chapter, Stage
from services.control import AIRFLOW


@dataclass(frozen=True)
class StoryPart:
    servers: Sequence[str]
    chapters: Sequence[Chapter]


def parts(stage: Stage, *, everything: bool) -> list[StoryPart]:
    """One machine, then Airflow; with `everything`, all servers too."""
    one = OnOneMachine(stage)
    found = [StoryPart(("kafka",), one.chapters()), StoryPart(AIRFLOW, [one.in_airflow])]
    if everything:
        all_ = OnServers(stage)
        found.append(StoryPart(all_.servers, all_.chapters()))
    return found
