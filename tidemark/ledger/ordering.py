"""Order epochs: which of two messages of a topic is the newer one, when their offsets do not say. Pure.

A key stays in its partition, where the higher offset is newer. When partitions are added, keys move, and the newer message
may have the lower offset. So the topic's epoch rises: messages at or above the ends that its logs had then are newer than
all messages below. All messages of the added partitions are newer too. A topic that is recreated or cut begins a new epoch
with its new incarnation.

A producer learns of added partitions up to some minutes later (its `metadata.max.age.ms`). Until then, it writes to the
same partitions as before. So the epoch of the older partitions rises a second time, at the first plan after those minutes.
The added partitions have the higher epoch from their beginning. Messages that a late producer still writes to an older
partition have a lower one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tidemark.ledger.incarnations import Topics, newest
from tidemark.ledger.records import RaisedOrder, TopicIncarnation
from tidemark.offsets.ranges import TopicPartition

if TYPE_CHECKING:
    import numpy as np

# Kafka's producers look for partitions again after five minutes, unless configured otherwise. This is twice as long.
PRODUCERS_LOOK_MS = 10 * 60 * 1000


def noted(topics: Topics, ends: Mapping[TopicPartition, int], now: int) -> Topics:
    """The topics with today's numbers of partitions, and where their order changed; unchanged when nothing is new.

    `ends`: the log ends of all partitions of topics in their newest incarnation. `now` is in milliseconds since 1970.
    """
    by_topic: dict[str, dict[TopicPartition, int]] = {}
    for at, end in ends.items():
        by_topic.setdefault(at.topic, {})[at] = end
    changed = {}
    for topic, incarnations in by_topic.items():
        last = newest(topics, topic)
        if all(at.incarnation == last.incarnation for at in incarnations):
            edited = _noted(last, {at.partition: end for at, end in incarnations.items()}, now)
            if edited is not last:
                changed[topic] = tuple(edited if incarnation is last else incarnation for incarnation in topics[topic])
    return {**topics, **changed} if changed else topics


def _noted(last: TopicIncarnation, ends: dict[int, int], now: int) -> TopicIncarnation:
    if last.partitions is None:
        return structs.replace(last, partitions=len(ends))
    raised, before = last.raised, last.raised[-1] if last.raised else None
    added = len(ends) > last.partitions
    if before is not None and before.later is None and (added or now - before.at >= PRODUCERS_LOOK_MS):
        later = tuple((partition, ends[partition]) for partition, _ in before.ends if partition in ends)
        raised = (*raised[:-1], structs.replace(before, later=later))
    if added:
        # Kafka numbers partitions from 0 without holes.
        older = tuple((partition, end) for partition, end in sorted(ends.items()) if partition < last.partitions)
        raised = (*raised, RaisedOrder(at=now, ends=older))
    return last if raised is last.raised else structs.replace(last, partitions=len(ends), raised=raised)


class Epochs:
    """The order epoch of every message. Spark sends copies to its workers."""

    def __init__(self, topics: Mapping[str, tuple[TopicIncarnation, ...]]) -> None:
        self._first: dict[tuple[str, int], int] = {}
        # The highest epoch of a message of any topic; 0 if no topic is known.
        self.highest = 0
        self._raised: dict[tuple[str, int], list[tuple[dict[int, int], dict[int, int] | None]]] = {}
        for topic, incarnations in topics.items():
            epoch = 1
            for incarnation in sorted(incarnations, key=lambda incarnation: incarnation.incarnation):
                place = (topic, incarnation.incarnation)
                self._first[place] = epoch
                self._raised[place] = [
                    (dict(change.ends), None if change.later is None else dict(change.later))
                    for change in incarnation.raised
                ]
                epoch += 1 + 2 * len(incarnation.raised)
            self.highest = max(self.highest, epoch - 1)

    def of(self, at: TopicPartition, offset: int) -> int:
        """The epoch of a message, 1 or more. It never changes: an epoch only rises above all offsets that were read."""
        return int(self._of(at, offset))

    def of_all(
        self, topics: np.ndarray, incarnations: np.ndarray, partitions: np.ndarray, offsets: np.ndarray
    ) -> np.ndarray:
        """The epochs of many messages, of which each array has one value."""
        import numpy as np

        epochs = np.zeros(len(offsets), dtype=np.int64)
        for topic, incarnation, partition in {*zip(topics, incarnations, partitions, strict=True)}:
            here = (partitions == partition) & (incarnations == incarnation) & (topics == topic)
            epochs[here] = self._of(TopicPartition(topic, int(partition), int(incarnation)), offsets[here])
        return epochs

    def _of(self, at: TopicPartition, offset: Any) -> Any:
        """The epoch of an offset, or those of an array of offsets."""
        place = (at.topic, at.incarnation)
        epoch = self._first[place]
        for ends, later in self._raised[place]:
            if at.partition not in ends:
                epoch = epoch + 2
            else:
                epoch = epoch + (offset >= ends[at.partition])
                epoch = epoch + (later is not None and offset >= later.get(at.partition, 0))
        return epoch
