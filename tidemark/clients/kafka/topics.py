"""The state of a topic at one moment, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


def asked_time(milliseconds: int) -> int:
    """A time in ms since 1970 as Kafka accepts it: the only conversion of a time for Kafka.

    Below 0, Kafka has special values (-1: the end of the log, -2: its beginning, -3: the largest timestamp), and
    refuses the others. No message has such a time, so the first at or after it is the first at or after 1970.
    """
    return min(max(0, milliseconds), 2**63 - 1)


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
        """The end of the log. Only a log that ends below this was cut: a last stable offset may lie below what was read.

        That happens after a change of the isolation level, while a transaction is open.
        """
        return self.end if self.high is None else max(self.end, self.high)


@dataclass(frozen=True)
class TopicLog:
    """A topic as it is now. Another `topic_id` under the same name is another topic."""

    topic_id: str
    partitions: Mapping[int, PartitionLog]
