"""The state of a topic at one moment, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True)
class PartitionLog:
    """Offsets [start, end) can be read; under read_committed `end` is the last stable offset.

    `high`: the high watermark, where the log ends whatever open transactions hold back. None where it is `end`.
    """

    start: int
    end: int
    leader_epoch: int | None
    high: int | None = None

    @property
    def written(self) -> int:
        """Where the log ends. Only below this a log was cut: a last stable offset may also lie below what was read.

        So it does after a change of the isolation level, while a transaction is open.
        """
        return self.end if self.high is None else max(self.end, self.high)


@dataclass(frozen=True)
class TopicLog:
    """A topic as it is now. Another `topic_id` under the same name is another topic."""

    topic_id: str
    partitions: Mapping[int, PartitionLog]
