"""What a stream file may say of a sink with the newest value of each key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tidemark.settings.parts import FieldName, Items, Name
from tidemark.sinks.contract import Surroundings
from tidemark.sinks.hbase.settings import HBaseTableSettings


class HBaseLatestSink(HBaseTableSettings):
    """A row for each key, of which the newest message's is the one on top."""

    type: Literal["hbase_latest"]
    name: Name = Field(default="hbase_latest", description="The name of the sink. Two sinks of one type need names.")
    key: Annotated[
        Items[FieldName],
        Field(
            min_length=1,
            max_length=16,
            description="The field that is the key, or a list of fields. A table keeps the key that it "
            "was made with, and Tidemark refuses another one.",
        ),
    ]

    @field_validator("key", mode="before", json_schema_input_type=FieldName | Items[FieldName])
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return [given] if isinstance(given, str) else given

    @field_validator("key")
    @classmethod
    def _each_once(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(key)) < len(key):
            raise ValueError("a field is named twice")
        return key

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
