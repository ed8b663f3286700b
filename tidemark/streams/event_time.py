"""When a span of event time counts as complete."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidemark.settings.parts import Part

_MINUTE_MS = 60_000


class EventTime(Part):
    """The trust in the timestamps of messages."""

    allowed_lateness_minutes: Annotated[
        int,
        Field(
            ge=0,
            description="How late messages may arrive, by their timestamps. An hour is [complete](complete.md) when its "
            "partitions have passed its end by this time; messages that arrive later count as late.",
        ),
    ] = 5

    @property
    def lateness_ms(self) -> int:
        return self.allowed_lateness_minutes * _MINUTE_MS
