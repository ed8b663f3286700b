"""The messages that an audit reads only to see that they are as their windows read them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from tidemark.audit.unchanged_data import CountedRange, stretches
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import PartitionTally, sum_tallies
from tidemark.planning.splitting import RECORDS_PER_TASK
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows.lanes import code_version
from tidemark.spark.rows.one_pass import made_of_messages, may_be_made_of_messages
from tidemark.spark.rows.reading import count_ranges

# Measured when a range took 4 ms to open, and the rows of a message some 2 µs to make.
_SHORT, _FEW = 2_000, 100
_NOTHING_READ = PartitionTally(topic="", incarnation=0, partition=0)


def unchanged(
    spark: SparkSession,
    opened: OpenStream,
    view: LedgerSnapshot,
    wanted: RangeSet,
    incarnations: Mapping[str, int],
    size: int,
    lacking: Callable[[str], None],
    watch: Callable[[Any], None],
) -> tuple[CountedRange, ...]:
    """The stretches of the `wanted` offsets whose messages are as their windows, of today's code and file, read them.

    Their blocks have one size, `size` or more. There are none for a stream whose rows are made of more than their messages.
    `lacking` is told of each window whose tallies the ledger has lost. `watch` is that of `count_ranges`.
    """
    stream = opened.stream
    if not may_be_made_of_messages(stream):
        return ()
    with ThreadPoolExecutor(1) as beside:
        made = beside.submit(inheritable_thread_target(spark)(made_of_messages), spark, stream)
        # Spark's plan says no to much SQL, and hardly ever to a check. To ask takes as long as reading some 200,000 messages.
        if stream.transform is not None and not made.result():
            return ()
        code, file, blocks = code_version(), opened.file.digest, opened.ledger.blocks
        every = stretches(view, wanted, code, file, blocks, lacking, size=size, enough=RECORDS_PER_TASK)
        as_read = _as_read(spark, opened, _worth_reading(every), incarnations, watch)
        return as_read if made.result() else ()


def _as_read(
    spark: SparkSession,
    opened: OpenStream,
    candidates: Sequence[CountedRange],
    incarnations: Mapping[str, int],
    watch: Callable[[Any], None],
) -> tuple[CountedRange, ...]:
    """The stretches whose messages are as their windows read them, whatever their rows are made of."""
    source = opened.stream.source
    ranges = [candidate.offsets for candidate in candidates]
    now = count_ranges(spark, opened.log.endpoint, source.isolation, ranges, incarnations, source.fetch, watch)
    counted = _by_stretch(candidates, now)
    return tuple(one for one, tally in zip(candidates, counted, strict=True) if one.is_as_read(tally))


def _worth_reading(candidates: Sequence[CountedRange]) -> Sequence[CountedRange]:
    """The stretches, without the short ones if these are many: a range takes longer to open than its rows to make."""
    long = [candidate for candidate in candidates if len(candidate.offsets) >= _SHORT]
    return candidates if len(candidates) - len(long) <= _FEW else long


def _by_stretch(ascending: Sequence[CountedRange], counted: Iterable[PartitionTally]) -> list[PartitionTally]:
    """The tallies of parts of stretches, added up for each of them."""
    starts = [(one.at, one.offsets.start) for one in ascending]
    parts: list[list[PartitionTally]] = [[] for _ in ascending]
    for tally in counted:
        parts[bisect.bisect_right(starts, (tally.at, tally.first or 0)) - 1].append(tally)
    return [reduce(sum_tallies, of_one) if of_one else _NOTHING_READ for of_one in parts]
