"""Selections of scattered records: far ones against all records, and near ones against what encloses them.

Both sides only read: a replay's other work grows with the records that are wanted, and would hide what reading costs.
"""

from __future__ import annotations

import random

from bench.pairs import Pairs, in_pairs
from bench.workbench import Workbench
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.offsets.ranges import RangeSet
from tidemark.spark.rows.reading import read_offsets

AMONG, _FAR = 10_000_000, 200
# Nine of ten records, so that nearly all that is read is wanted, and the ranges are many.
_OF, _NEAR = 10, 9
# So far apart that reading each of them or all that lies between costs about the same.
_APART = 1_000
# So many that a read takes a second or more.
BESIDE = 4_000_000


def far(bench: Workbench) -> Pairs:
    topic = bench.lines(AMONG)
    every = bench.everything(topic)
    chance = random.Random(5)  # noqa: S311
    some = RangeSet.of_intervals(
        (
            one.partition,
            [(at, at + 1) for at in chance.sample(range(one.start, one.until), _FAR // len(every.partitions))],
        )
        for one in every
    )
    return in_pairs(bench.pairs, lambda: _read(bench, some), lambda: _read(bench, every))


def near(bench: Workbench) -> Pairs:
    return _against_all(bench, _OF, _NEAR)


def between(bench: Workbench) -> Pairs:
    return _against_all(bench, _APART, 1)


def _against_all(bench: Workbench, every: int, wanted: int) -> Pairs:
    """The first `wanted` of `every` so many records, against the range from the first to the last of them."""
    topic = bench.lines(BESIDE)
    some = RangeSet.of_intervals(
        (one.partition, [(at, at + wanted) for at in range(one.start, one.until - wanted, every)])
        for one in bench.everything(topic)
    )
    return in_pairs(bench.pairs, lambda: _read(bench, some), lambda: _read(bench, some.hull()))


def _read(bench: Workbench, wanted: RangeSet) -> None:
    topics = {at.topic: at.incarnation for at in wanted.partitions}
    messages = read_offsets(bench.spark, KafkaEndpoint(bench.servers), READ_COMMITTED, wanted, topics)
    # Computes all columns, and writes none.
    messages.write.format("noop").mode("overwrite").save()
