"""The present step of a job that holds no window: for whoever waits, in the log and in the ledger. Nothing depends on it."""

from __future__ import annotations

import logging
import threading
from argparse import ArgumentParser
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from tidemark.commit.fence import BEAT_SECONDS
from tidemark.errors import TidemarkError
from tidemark.ledger.records import JobProgress
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.spark.rows.reading import ReadProgress

log = logging.getLogger(__name__)


def add_try_number(parser: ArgumentParser) -> None:
    """The argument of a job that notes its progress with `Steps`."""
    parser.add_argument(
        "--try-number", type=int, default=0, help="which try of its task in Airflow this is, for whoever waits"
    )


class Steps:
    """Notes each step of a job that is `what`, such as an audit. While a step reads Kafka, it notes every few seconds how far.

    Use it as a context, which ends the notes.
    """

    def __init__(self, spark: SparkSession, opened: OpenStream, what: str, run: str, try_number: int) -> None:
        self._spark, self._opened, self._what, self._run = spark, opened, what, run
        self._try_number = try_number
        self._step = ""
        self._total: tuple[tuple[str, int], ...] = ()
        self._read = ReadProgress(spark)
        # A note of an older step never comes after one of a newer step.
        self._noting = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="steps", daemon=True)

    def __enter__(self) -> Steps:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(BEAT_SECONDS)

    def begin(self, step: str, to_read: RangeSet | None = None) -> None:
        """Begin a step, which reads these offsets."""
        total = tuple((str(at), to_read.count(at)) for at in to_read.partitions) if to_read else ()
        with self._noting:
            if self._total:
                # All of what was read.
                self._note()
            log.info("%s of %s: %s", self._what, self._opened.ledger.stream, step)
            self._step, self._read, self._total = step, ReadProgress(self._spark), total
            self._note()

    def watch(self, counted: Any) -> None:
        """This step reads the counts of this accumulator of `read_offsets`."""
        self._read.watch(counted)

    def _go_on(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with self._noting:
                if self._total:
                    self._note()

    def _note(self) -> None:
        ledger = self._opened.ledger
        done = self._read() if self._total else {}
        try:
            ledger.note_progress(
                JobProgress(
                    run=self._run,
                    at=ledger.clock(),
                    step=self._step,
                    try_number=self._try_number,
                    done=done,
                    total=self._total,
                )
            )
        except TidemarkError as problem:
            log.warning("the step of the %s of %s cannot be shown: %s", self._what, ledger.stream, problem)
