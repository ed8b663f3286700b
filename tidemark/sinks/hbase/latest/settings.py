"""The settings of a sink with the newest value of each key."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidemark.settings.parts import Name
from tidemark.sinks.contract import Surroundings
from tidemark.sinks.hbase.settings import HBaseTableSettings
from tidemark.sinks.keys import UNSENT, Key, Unsent


class HBaseLatestSink(HBaseTableSettings):
    """A row for each key, of which the newest message's is the one on top."""

    type: Literal["hbase_latest"]
    name: Name = Field(default="hbase_latest", description="The name of the sink. Two sinks of one type need names.")
    key: Key
    unsent: Unsent = UNSENT

    def problem_with(self, others: Surroundings) -> str | None:
        if unknown := [name for name in self.key if name not in others.fields]:
            return f"sink {self.name} names the field {unknown[0]}, which the stream does not have"
        if problem := others.no_key(self.name, self.key):
            return problem
        if others.guarantee == "none":
            return (
                f"sink {self.name}: with guarantee none every run writes everything once more, and a version has "
                "room for 16,383 such attempts; use at_least_once"
            )
        return None
