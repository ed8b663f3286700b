"""Steps 3 to 5 of the commit protocol on one window, with Spark: read, store, verify."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidemark.attempts import HeadFence
from tidemark.blocks import WHOLE, PartitionBlocks, block_size, fields_digest
from tidemark.error_budget import SHOWN_REASONS, ErrorBudget, spent, too_many
from tidemark.errors import SourceChanged
from tidemark.ledger.limits import most_blocks
from tidemark.ledger.records import Attempt, Blocks, BlocksRef, Receipt, Window, replays
from tidemark.protocol import Fence, Listener, Step
from tidemark.ranges import RangeSet
from tidemark.streams.opened import OpenStream
from tidemark.tallies import Acknowledgements, PartitionTally, verify
from tidemark_spark import outcomes
from tidemark_spark.columns import COORDINATE
from tidemark_spark.progress import Progress
from tidemark_spark.reading import read_offsets
from tidemark_spark.redriven import dead_letters_so_far
from tidemark_spark.rows import Rows, rows_of
from tidemark_spark.sinks import Sink, refusals
from tidemark_spark.sinks.contract import Mission
from tidemark_spark.sinks.hbase import HBaseDeadLetters
from tidemark_spark.tallying import tallies_and_blocks

_DEAD_LETTERS_PER_TASK = 5_000


class SparkWork:
    """The work on one window. Used once, for one attempt, and closed."""

    def __init__(
        self, spark: SparkSession, opened: OpenStream, sinks: Sequence[Sink], dead_letters: HBaseDeadLetters, lane: str
    ) -> None:
        self._spark = spark
        self._opened = opened
        self._sinks = sinks
        self._dead_letters = dead_letters
        self._lane = lane
        self._stored: dict[str, Acknowledgements] = {}
        self._set_aside: Acknowledgements = {}
        self._started_at = opened.book.clock()
        self.progress = Progress(spark)

    def read(self, window: Window, covers: RangeSet, fence: Fence) -> None:
        self._window = window
        self._covers = covers
        incarnations = {one.topic: one.incarnation for one in window.ranges}
        stream = self._opened.stream
        servers = self._opened.log.bootstrap_servers
        read = read_offsets(self._spark, servers, window.isolation, covers, incarnations, stream.source.fetch)
        # Kept between the sinks, so that Kafka is read once; the first use of them is counting them.
        self._rows = rows_of(
            read, stream, refusals(self._sinks, stream.fields), _of_head(fence), self._opened.connections
        )
        self._read = True
        self._block_size = block_size(covers, most_blocks(self._opened.book.store, covers.partitions))
        self._tallies, self._blocks = tallies_and_blocks(self._rows.frame, self._block_size, self._rows.read)
        self._check_budget()

    def _check_budget(self) -> None:
        """Raises TooManyInvalid, before anything is written."""
        limit = self._opened.stream.limits.max_invalid
        if limit is None:
            return
        budget, used = ErrorBudget(limit.number, limit.share), spent(self._tallies)
        if used.exceeds(budget):
            window = f"window {self._window.seq} of {self._opened.book.stream}/{self._lane}"
            raise too_many(window, used, budget, outcomes.frequent_reasons(self._rows.frame, SHOWN_REASONS))

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        mission = Mission(
            self._lane, self._window.seq, attempt.generation, _of_head(fence), self.progress.report, attempt.ordinal
        )
        self._mission, self._attempt = mission, attempt
        if any(tally.invalid.number or tally.failed.number for tally in self._tallies):
            self._set_aside = self._store_dead_letters(attempt, mission)
        on_step(Step.DEAD_LETTERS_STORED)
        for sink in self._sinks:
            self._stored[sink.name] = sink.store(outcomes.stored(self._rows.frame), mission)
            on_step(Step.SINK_STORED)

    def _store_dead_letters(self, attempt: Attempt, mission: Mission) -> Acknowledgements:
        earlier = None
        if replays(self._lane):
            earlier = dead_letters_so_far(self._spark, self._opened, self._window, self._covers)
        messages = outcomes.set_aside(self._rows.frame)
        number = sum(tally.invalid.number + tally.failed.number for tally in self._tallies)
        tasks = math.ceil(number / _DEAD_LETTERS_PER_TASK)
        if tasks <= self._spark.sparkContext.defaultParallelism:
            # Mostly there are few: a task in Python for each piece of the window would cost more than writing them.
            messages = messages.repartition(tasks, *COORDINATE)
        now = self._opened.book.clock()
        return self._dead_letters.store(messages, mission, attempt.code_version, now, earlier)

    def verify(self) -> Receipt:
        verify(self._tallies, self._stored, self._set_aside)
        changes = self._opened.log.changes_since_pin(self._window)
        if changes:
            raise SourceChanged(
                f"Kafka changed while window {self._lane}/{self._window.seq} was processed: {'; '.join(changes)}. "
                "Nothing was committed."
            )
        return Receipt(
            tallies=self._tallies,
            sinks=tuple(sink.receipt(self._mission) for sink in self._sinks),
            dead_letters=self._dead_letters.receipt(self._mission),
            started_at=self._started_at,
            finished_at=self._opened.book.clock(),
            fields=fields_digest(self._opened.stream.fields),
            blocks=self._store_blocks(),
        )

    def _store_blocks(self) -> BlocksRef | None:
        """Before the commit, so that no receipt names what is not there."""
        if self._block_size == WHOLE:
            return None
        blocks = Blocks(size=self._block_size, partitions=self._blocks)
        return self._opened.book.store_blocks(self._lane, self._window.seq, self._attempt, blocks)

    def close(self) -> None:
        """Give back the memory that the rows take in Spark."""
        if self._read:
            self._rows.close()

    # Set by `read` and `store`, which the protocol calls in this order.
    _read = False
    _window: Window
    _covers: RangeSet
    _rows: Rows
    _block_size: int
    _tallies: tuple[PartitionTally, ...]
    _blocks: tuple[PartitionBlocks, ...]
    _mission: Mission
    _attempt: Attempt


def _of_head(fence: Fence) -> HeadFence:
    if not isinstance(fence, HeadFence):
        raise TypeError("Spark's workers need a fence that they can look at themselves")
    return fence
