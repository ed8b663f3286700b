"""Which open transactions hold back messages under read_committed. Pure: takes what Kafka says as values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidemark.clients.kafka.topics import TopicLog
from tidemark.offsets.counting import number_of
from tidemark.offsets.times import in_words

Place = tuple[str, int]


@dataclass(frozen=True)
class OpenProducer:
    """A producer with an open transaction in one partition, as the partition's leader knows it.

    `start` is the transaction's first offset there, `last_timestamp` that of the producer's newest message (ms).
    """

    producer_id: int
    epoch: int
    start: int
    last_timestamp: int | None


@dataclass(frozen=True)
class CoordinatedTransaction:
    """The coordinator's view of a producer's transaction. `started` is None when no transaction is open.

    `ending`: the outcome is decided, and only the markers are not yet written.
    """

    transactional_id: str
    epoch: int
    ending: bool
    started: int | None
    partitions: Collection[Place]


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that holds back the end of a partition. Times are milliseconds since 1970.

    `start` is the offset where the transaction holds the end back. `behind` is the number of offsets from there to the
    high watermark. `started` is known only while the coordinator knows the transaction too. No timeout ends a transaction
    that the coordinator does not know.
    """

    topic: str
    partition: int
    start: int
    behind: int
    producer_id: int
    epoch: int
    transactional_id: str | None
    started: int | None
    last_timestamp: int | None

    def sentence(self, now: int) -> str:
        """One sentence for people: which transaction holds back which offsets."""
        if self.started is not None:
            age = f"open for {in_words(now - self.started)}, counted from its start"
        elif self.last_timestamp is not None:
            age = f"age {in_words(now - self.last_timestamp)}, counted from its producer's last message"
        else:
            age = "age unknown"
        name = "unknown" if self.transactional_id is None else self.transactional_id
        return (
            f"{self.topic}/{self.partition}: an open transaction holds the end back at offset {self.start}, "
            f"{number_of(self.behind, 'offset', 'follows', 'follow')} it: transactional id {name}, "
            f"producer {self.producer_id}, epoch {self.epoch}, {age}"
        )


def held_back(logs: Mapping[str, TopicLog], high: Mapping[Place, int]) -> dict[Place, int]:
    """The partitions whose last stable offset is below the high watermark, with that high watermark."""
    return {
        (topic, number): high[topic, number]
        for topic, log in logs.items()
        for number, partition in log.partitions.items()
        if partition.end < high[topic, number]
    }


def open_transactions(
    held: Mapping[Place, int],
    producers: Mapping[Place, Iterable[OpenProducer]],
    coordinated: Mapping[int, CoordinatedTransaction],
) -> tuple[OpenTransaction, ...]:
    """The open transactions in partitions that are held back, by partition and offset.

    `coordinated` is by producer id. An empty result is normal: after a commit, an end trails for a moment.
    """
    open_ = []
    for place, high in sorted(held.items()):
        for producer in sorted(producers.get(place, ()), key=lambda producer: producer.start):
            known = coordinated.get(producer.producer_id)
            theirs = known is not None and place in known.partitions
            if producer.start >= high or (known is not None and theirs and known.ending):
                continue
            # With another epoch, the producer id belongs to a newer transaction, and this one hangs.
            same = known is not None and theirs and known.epoch == producer.epoch
            open_.append(
                OpenTransaction(
                    topic=place[0],
                    partition=place[1],
                    start=producer.start,
                    behind=high - producer.start,
                    producer_id=producer.producer_id,
                    epoch=producer.epoch,
                    transactional_id=known.transactional_id if known is not None else None,
                    started=known.started if known is not None and same else None,
                    last_timestamp=producer.last_timestamp,
                )
            )
    return tuple(open_)
