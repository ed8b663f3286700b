"""Steps 3 to 5 of the commit protocol on one window, with Spark: read, store, verify."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from tidemark.commit.error_budget import SHOWN_REASONS, ErrorBudget, spent, too_many
from tidemark.commit.fence import HeadFence
from tidemark.commit.protocol import Fence, Listener, Step
from tidemark.errors import TidemarkError, VerificationFailed
from tidemark.ledger.limits import most_blocks
from tidemark.ledger.records import (
    Attempt,
    BlocksRef,
    BlockTallies,
    Guarantee,
    Receipt,
    UnknownFields,
    Window,
    reads_again,
    replays,
)
from tidemark.ledger.register import note_places
from tidemark.offsets.blocks import WHOLE, PartitionBlocks, block_size, fields_digest
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import Acknowledgements, PartitionTally, check_read, verify
from tidemark.runs.live.conditions import sizes_for
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.processing import OnePassImpossible
from tidemark.runs.windows.changes_since_pin import check_since_pin
from tidemark.sinks.mounts import FolderMarks
from tidemark.spark.columns import COORDINATE
from tidemark.spark.jobs.redrive_counts import dead_letters_so_far
from tidemark.spark.readers.parquet import rows_at_a_time
from tidemark.spark.rows import outcomes, unknown_names
from tidemark.spark.rows.failing_messages import cause_of
from tidemark.spark.rows.one_pass import DEAD_LETTERS_PER_TASK, one_pass, takes_one_pass
from tidemark.spark.rows.pipeline import rows_of
from tidemark.spark.rows.reading import ReadProgress, counter, read_offsets
from tidemark.spark.rows.tallying import tallies_and_blocks
from tidemark.spark.runtime.masking import masked
from tidemark.spark.runtime.progress import AttemptProgress
from tidemark.spark.schemes.regex import MAY_DIFFER
from tidemark.spark.sinks import Sink, refusals
from tidemark.spark.sinks.contract import FileSink, NeedsMessageColumns, OnePassSink, WriteContext
from tidemark.spark.sinks.dead_letters import Writer

log = logging.getLogger(__name__)

# This many rows, from messages of this many bytes together, are written from the driver.
_FEW, _FEW_BYTES = 5_000, 4 << 20


@dataclass(frozen=True)
class _Made:
    """The outcomes of a window's messages: the rows that sinks store, and the dead letters."""

    stored: Callable[[], DataFrame]
    dead_letters: Callable[[], DataFrame]
    # Whether the driver has memory for all dead letters.
    few_dead_letters: Callable[[], bool] = lambda: False
    close: Callable[[], None] = lambda: None


class SparkWork:
    """The work on one window. Use an instance for one attempt, and close it. `longer`: not in one pass."""

    def __init__(
        self,
        spark: SparkSession,
        opened: OpenStream,
        sinks: Sequence[Sink],
        dead_letters: Writer,
        lane: str,
        mounts: FolderMarks,
        *,
        longer: bool = False,
    ) -> None:
        self._longer = longer
        self._mounts = mounts
        self._spark = spark
        self._opened = opened
        self._all_sinks = sinks
        self._dead_letters = dead_letters
        self._lane = lane
        self._stored: dict[str, Acknowledgements] = {}
        self._dead: Acknowledgements = {}
        self._made: _Made | None = None
        self._started_at = opened.ledger.clock()
        self.progress = AttemptProgress(spark)

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        """Read the window's messages and count them. If one pass is enough, the first sink has stored its rows then."""
        self.progress.begin("reading")
        self._window, self._covers, self._attempt, self._fence = window, covers, attempt, _of_head(fence)
        self._sinks = [one for one in self._all_sinks if window.counts_for(one.name)]
        self._context = WriteContext(self._lane, window.seq, attempt.generation, self._fence, self.progress.report)
        self._note_places()
        self._block_size = block_size(covers, most_blocks(self._opened.ledger.store, covers.partitions))
        # What one sink refuses is a dead letter, even where the window writes others alone: a message has one outcome in
        # all sinks.
        self._refusals = refusals(self._all_sinks, self._opened.stream.fields)
        first = self._first_sink()
        try:
            if first is None or not self._in_one_pass(first):
                self._keep()
            check_read(self._tallies, covers)
            self._context = replace(self._context, few=_few(self._tallies))
            self._check_budget()
        except TidemarkError:
            if first is not None:
                self._discard(first)
            raise

    def _note_places(self) -> None:
        """Before the first write: an attempt that never commits has no receipt, and an erasure clears what it has left."""
        places = [sink.receipt(self._context) for sink in self._sinks]
        if self._writes_dead_letters:
            places += self._dead_letters.places(self._context)
        note_places(self._opened.ledger, places)

    def _messages(self, counted: Any = None) -> DataFrame:
        source = self._opened.stream.source
        return read_offsets(
            self._spark,
            self._opened.log.endpoint,
            self._window.isolation,
            self._covers,
            # What is only erased may belong to an earlier incarnation.
            {at.topic: at.incarnation for at in self._covers.partitions},
            source.fetch,
            sizes=sizes_for(self._opened, self._covers),
            counted=counted,
        )

    def _first_sink(self) -> OnePassSink | None:
        """The sink that may take the rows as they are read. Other sinks of the window then read what it has written."""
        if self._longer or not takes_one_pass(self._opened.stream):
            return None
        if self._window.guarantee == Guarantee.AT_MAX_ONCE:
            # It is committed already, so no second attempt could take the longer way.
            return None
        if len(self._sinks) == 1:
            return self._sinks[0] if isinstance(self._sinks[0], OnePassSink) else None
        if any(isinstance(one, NeedsMessageColumns) and one.needs_messages for one in self._sinks):
            return None
        return next((one for one in self._sinks if isinstance(one, FileSink)), None)

    def _in_one_pass(self, first: OnePassSink) -> bool:
        """Read the messages, and store their rows in the first sink. False if the stream's plan does not allow it.

        Raises OnePassImpossible where a message is in the way.
        """
        # What a server has acknowledged to a task that is tried again cannot be taken back, as a file can.
        never = "" if isinstance(first, FileSink) else MAY_DIFFER
        stream = self._opened.stream
        rows = one_pass(self._spark, self._messages, stream, self._refusals, self._block_size, never=never, names=True)
        if rows is None:
            return False
        # A window with one sink needs its rows no more.
        stored = (
            partial(first.written, self._spark, self._context) if isinstance(first, FileSink) else lambda: rows.stored
        )
        self._made = _Made(stored, lambda: rows.dead_letters, lambda: rows.few_dead_letters, rows.close)
        self.progress.begin(f"reading, and storing {first.name}")
        if isinstance(first, FileSink):
            # A file is there when its task has ended, which nobody acknowledges before.
            self.progress.watch(ReadProgress(self._spark, rows.counts.read))
        try:
            acknowledged = first.store(rows.stored, self._context)
        except (Py4JError, PySparkException) as problem:
            self._discard(first)
            if cause_of(problem) is not None or (never and never in str(problem)):
                raise OnePassImpossible(
                    f"a message of this window cannot go through one pass: {masked(problem)}"
                ) from problem
            raise
        self._stored[first.name] = acknowledged
        self._tallies, self._blocks = rows.tallies_and_blocks
        self._unknown = rows.unknown_fields
        return True

    def _discard(self, sink: OnePassSink) -> None:
        """Remove what this attempt has written. It never counts, so nothing depends on it."""
        try:
            sink.discard(self._context)
        except Exception as problem:
            log.warning("what this attempt has written into %s stays there: %s", sink.name, problem)

    def _keep(self) -> None:
        """Make the rows, and have Spark keep them for all sinks, so that Kafka is read once. Counting is their first use."""
        counted = counter(self._spark)
        self.progress.watch(ReadProgress(self._spark, counted))
        messages = self._messages(counted)
        rows = rows_of(messages, self._opened.stream, self._refusals, self._fence, self._opened.connections)
        stored = outcomes.stored(rows.frame)
        self._made = _Made(lambda: stored, lambda: outcomes.dead_letters(rows.frame), close=rows.close)
        self._tallies, self._blocks = tallies_and_blocks(rows.frame, self._block_size, rows.read)
        self._unknown = unknown_names.of_rows(rows.frame, several=self._opened.stream.explode is not None)

    def _check_budget(self) -> None:
        """Raises TooManyInvalid, before anything counts."""
        limit = self._opened.stream.limits.max_invalid
        if limit is None:
            return
        budget, used = ErrorBudget(limit.number, limit.share), spent(self._tallies)
        if used.exceeds(budget):
            window = f"window {self._window.seq} of {self._opened.ledger.stream}/{self._lane}"
            raise too_many(window, used, budget, outcomes.frequent_reasons(self._rows.dead_letters(), SHOWN_REASONS))

    @property
    def _rows(self) -> _Made:
        if self._made is None:
            raise RuntimeError("a window is read before its rows are stored")
        return self._made

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        if any(tally.invalid.number or tally.failed.number for tally in self._tallies):
            if self._writes_dead_letters:
                self.progress.begin("storing dead letters")
                self._dead = self._store_dead_letters(attempt, self._context)
            else:
                self._name_what_is_left_out()
        on_step(Step.DEAD_LETTERS_STORED)
        with rows_at_a_time(self._spark, self._tallies):
            for sink in self._sinks:
                if sink.name not in self._stored:
                    self.progress.begin(f"storing {sink.name}")
                    self._stored[sink.name] = self._store(sink)
                place = (self._opened.ledger.stream, self._lane, self._window.seq)
                log.info("%s/%s window %s: sink %s stored", *place, sink.name)
                on_step(Step.SINK_STORED)

    def _store(self, sink: Sink) -> Acknowledgements:
        try:
            return sink.store(self._rows.stored(), self._context)
        except (Py4JError, PySparkException):
            # A newer attempt that has committed has swept the files that this sink reads.
            self._fence.check()
            raise

    @property
    def _writes_dead_letters(self) -> bool:
        """A window that writes some sinks alone neither stores nor resolves dead letters."""
        return self._window.counts_for(None)

    def _name_what_is_left_out(self) -> None:
        """Log the messages that have no row in the sinks of this window, by reason, since no dead letter names them."""
        number = sum(tally.dead_letters for tally in self._tallies)
        reasons = outcomes.frequent_reasons(self._rows.dead_letters(), SHOWN_REASONS)
        said = "; ".join(f"{one.reason} ({one.number}, first {one.example})" for one in reasons)
        names = ", ".join(one.name for one in self._sinks)
        log.warning(
            "%s/%s window %s: %s messages are invalid or failed. They have no row in %s, and no dead letter was stored: %s",
            *(self._opened.ledger.stream, self._lane, self._window.seq, number, names, said),
        )

    def _store_dead_letters(self, attempt: Attempt, context: WriteContext) -> Acknowledgements:
        earlier = None
        if reads_again(self._lane):
            # What an erasure reads again was not redriven.
            more = 1 if replays(self._lane) else 0
            earlier = dead_letters_so_far(self._spark, self._opened, self._window, self._covers, more)
        messages = self._rows.dead_letters()
        number = sum(tally.dead_letters for tally in self._tallies)
        tasks = math.ceil(number / DEAD_LETTERS_PER_TASK)
        if self._rows.few_dead_letters():
            context = replace(context, few=True)
        elif not context.few and tasks <= self._spark.sparkContext.defaultParallelism:
            # Dead letters are mostly few: one Python task for each piece of the window would cost more than the writing.
            messages = messages.repartition(tasks, *COORDINATE)
        now = self._opened.ledger.clock()
        return self._dead_letters.store(messages, context, attempt.code_version, now, earlier)

    def verify(self) -> Receipt:
        self.progress.step = "verifying"
        if self._stored.keys() != {one.name for one in self._sinks}:
            raise VerificationFailed(f"{sorted(self._stored)} were written, not the window's sinks")
        verify(self._tallies, self._stored, self._dead if self._writes_dead_letters else None)
        check_since_pin(self._opened, self._lane, self._window)
        places = tuple(sink.receipt(self._context) for sink in self._sinks)
        letters = self._dead_letters.receipt(self._context) if self._writes_dead_letters else None
        wrote, holding = [*places], [name for name, held in self._stored.items() if held]
        # An attempt without dead letters writes no folder of them.
        if letters is not None and self._dead:
            wrote.append(letters)
            holding.append(letters.name)
        self._mounts.check(wrote, holding)
        return Receipt(
            tallies=self._tallies,
            sinks=places,
            dead_letters=letters,
            started_at=self._started_at,
            finished_at=self._opened.ledger.clock(),
            fields=fields_digest(self._opened.stream.fields),
            blocks=self._store_blocks(),
            unknown=self._unknown,
        )

    def _store_blocks(self) -> BlocksRef | None:
        """Store the tallies of blocks before the commit, so that every receipt names stored ones."""
        blocks = self._counted_blocks()
        if blocks is None:
            return None
        return self._opened.ledger.store_blocks(self._lane, self._window.seq, self._attempt, blocks)

    def _counted_blocks(self) -> BlockTallies | None:
        """The tallies by blocks; None where a partition is one block."""
        return None if self._block_size == WHOLE else BlockTallies(size=self._block_size, partitions=self._blocks)

    def close(self) -> None:
        """Free the memory that the rows take in Spark."""
        self.progress.end()
        if self._made is not None:
            self._made.close()

    # Set by `read`, which the protocol calls first.
    _window: Window
    _sinks: list[Sink]
    _covers: RangeSet
    _attempt: Attempt
    _fence: HeadFence
    _context: WriteContext
    _refusals: list[Column]
    _block_size: int
    _tallies: tuple[PartitionTally, ...]
    _blocks: tuple[PartitionBlocks, ...]
    _unknown: UnknownFields | None


def _few(tallies: Sequence[PartitionTally]) -> bool:
    rows = sum(tally.rows.number + tally.dead_letters for tally in tallies)
    return rows <= _FEW and sum(tally.bytes for tally in tallies) <= _FEW_BYTES


def _of_head(fence: Fence) -> HeadFence:
    if not isinstance(fence, HeadFence):
        raise TypeError("Spark's workers need a fence that they can look at themselves")
    return fence
