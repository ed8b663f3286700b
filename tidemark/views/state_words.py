"""The words for the state of a stream, and what stands behind one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class StreamState(StrEnum):
    """The state of a stream as a whole, from the best to the worst. Five of the words are those of its partitions."""

    OK = "OK"
    # No window yet: nobody knows whether it works.
    NEW = "NEW"
    # Its ingest is paused in Airflow: nothing is read until somebody resumes it.
    PAUSED = "PAUSED"
    WARNING = "WARNING"
    # Many of the messages that its last windows have read are dead letters.
    DEAD_LETTERS = "DEAD LETTERS"
    # The latency alarm is raised.
    LATE = "LATE"
    # The audit that ended last has found something.
    FINDINGS = "FINDINGS"
    STALLED = "STALLED"
    # A policy has left out offsets that Kafka still holds, and no window has read them since.
    SKIPPED = "SKIPPED"
    # The ingest is past offsets that no window has read.
    HOLES = "HOLES"
    # The last run of its ingest has failed in Airflow.
    FAILED = "FAILED"
    # Kafka may soon delete offsets that nobody has read.
    EXPIRING = "EXPIRING"
    # A topic of its file does not exist.
    NO_TOPIC = "NO TOPIC"
    REWOUND = "REWOUND"
    # Kafka has deleted offsets that nobody has read.
    LOST = "LOST"
    # A run of its ingest is due, and Airflow does not begin it.
    OVERDUE = "OVERDUE"
    STOPPED = "STOPPED"
    # Airflow's scheduler or DAG processor gives no sign of life.
    NO_HEARTBEAT = "NO HEARTBEAT"
    # Airflow has dropped its DAG, or cannot import it.
    NO_DAG = "NO DAG"
    # Its ledger has moved elsewhere, and its file still names this one.
    RETIRED = "RETIRED"
    # Nobody can say: a server does not answer, or the ledger contradicts itself.
    UNREACHABLE = "UNREACHABLE"
    # Its file is wrong, so it has no DAGs and nothing reads it.
    INVALID = "INVALID"


SEVERITY = list(StreamState)


@dataclass(frozen=True)
class StateReason:
    """Something that is wrong with a stream: in a few words and in a sentence, both with its number, and what to do.

    `number` compares streams in the same state, the largest is the worst; 0 where their lag says which is.
    """

    state: StreamState
    brief: str
    sentence: str
    remedy: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.state}: {'. '.join(part for part in (self.sentence, self.remedy) if part)}"


def worst_first(reasons: Iterable[StateReason]) -> list[StateReason]:
    """Reasons of one state stay in their order."""
    return sorted(reasons, key=lambda reason: -SEVERITY.index(reason.state))
