"""When a stream's state is worth an alarm."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidemark.settings.parts import Part

# The number of the ingest's last windows that its state is judged by.
LAST_WINDOWS = 20


class Alarm(Part):
    """The limits for lateness and lag."""

    latency_minutes: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Raise the [latency alarm](monitoring.md#the-latency-alarm) if the oldest message of each of the last "
        "`windows` windows was older than this at the commit.",
    )
    windows: Annotated[
        int, Field(ge=1, le=LAST_WINDOWS, description="The number of consecutive windows that raise the latency alarm.")
    ] = 3
    allowed_lag: Annotated[
        int,
        Field(
            ge=0,
            description="Up to this many unread offsets per partition do not count as lag for the "
            "[status](monitoring.md#status).",
        ),
    ] = 0
