"""Which audits run without being asked for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from tidemark.offsets.shares import parts
from tidemark.settings.parts import Part
from tidemark.streams.schedule import Cron

LevelName = Literal["ledger", "source", "sinks", "full", "recompute"]


def _share(text: str) -> str:
    parts(text)
    return text


class Audits(Part):
    """Audits after commits, and audits by the clock. Neither repairs anything."""

    after_commit: LevelName | None = Field(
        default=None,
        description="The [level](audit.md#levels) of the audit after each run that has committed windows.",
    )
    cron: Cron | None = Field(
        default=None, description="When an audit runs on schedule, in the time zone of [`schedule`](#schedule)."
    )
    level: Annotated[LevelName, Field(description="The level of the scheduled audit.")] = "sinks"
    hours: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="An audit of rows covers what was committed within this many hours; without this key, everything.",
    )

    share: Annotated[str, AfterValidator(_share)] | None = Field(
        default=None,
        description="An audit of rows covers this [share](audit.md#a-share-of-the-data) of the data, such as `5%`, another "
        "part each day; without this key, everything.",
    )

    @model_validator(mode="after")
    def _of_rows(self) -> Audits:
        if self.share is not None and not {self.after_commit, self.level_by_clock} & {"sinks", "full", "recompute"}:
            raise ValueError(
                "share: no audit here reads rows; give after_commit or cron with level sinks, full or recompute"
            )
        return self

    @property
    def level_by_clock(self) -> LevelName | None:
        return None if self.cron is None else self.level
