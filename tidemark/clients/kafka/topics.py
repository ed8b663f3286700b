"""The state of a topic at one moment, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True)
class PartitionLog:
    """Offsets [start, end) can be read; under read_committed `end` is the last stable offset."""

    start: int
    end: int
    leader_epoch: int | None


@dataclass(frozen=True)
class TopicLog:
    """A topic as it is now. Another `topic_id` under the same name is another topic."""

    topic_id: str
    partitions: Mapping[int, PartitionLog]
