"""The identity of a message, and how people write it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.errors import WrongUse
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, TopicPartition

# Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic).
_TOPIC = r"(?P<topic>[A-Za-z0-9._-]{1,249})"
_WITH_AT = re.compile(rf"{_TOPIC}/(?P<partition>\d{{1,10}})@(?P<offset>\d{{1,19}})")
_WITH_COMMAS = re.compile(rf"{_TOPIC}\s*,\s*(?P<partition>\d{{1,10}})\s*,\s*(?P<offset>\d{{1,19}})")
_RANGE = re.compile(rf"{_TOPIC}/(?P<partition>\d{{1,10}})@(?P<start>\d{{1,19}})-(?P<until>\d{{1,19}})")
_MAX_PARTITION = 2**31 - 1


@dataclass(frozen=True, order=True, slots=True)
class Coordinate:
    """(topic, partition, offset), with the topic's incarnation inside the partition."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    def as_range(self) -> OffsetRange:
        return OffsetRange(self.partition, self.offset, self.offset + 1)


def parse_coordinates(text: str) -> list[Coordinate]:
    """Coordinates, one per line: `topic/partition@offset` or `topic,partition,offset`. Skips empty lines, `#` comments.

    People write three parts; a caller that knows the ledger adds the incarnation. Raises WrongUse naming the line.
    """
    return [Coordinate(partition, start) for partition, start, _ in _lines(text, (_WITH_AT, _WITH_COMMAS), "offset")]


def parse_ranges(text: str) -> list[OffsetRange]:
    """Half-open ranges, one per line: `topic/partition@from-until`. Raises WrongUse naming the line."""
    return [OffsetRange(*parts) for parts in _lines(text, (_RANGE,), "from-until")]


def _lines(text: str, forms: Iterable[re.Pattern[str]], last: str) -> Iterable[tuple[TopicPartition, int, int]]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].strip()
        if not words:
            continue
        match = next((found for form in forms if (found := form.fullmatch(words))), None)
        if match is None:
            raise WrongUse(
                f"line {number}: {words!r} is not a coordinate; expected topic/partition@{last}, for example logs/3@17"
            )
        parts = match.groupdict()
        start = int(parts.get("offset") or parts["start"])
        until = int(parts.get("until") or start)
        if int(parts["partition"]) > _MAX_PARTITION or max(start, until) >= MAX_OFFSET:
            raise WrongUse(f"line {number}: {words!r} is beyond Kafka's numbers (partition 2^31-1, offset 2^63-2)")
        if parts["topic"] in (".", ".."):
            raise WrongUse(f"line {number}: {parts['topic']!r} is not a topic name")
        yield TopicPartition(parts["topic"], int(parts["partition"])), start, until
