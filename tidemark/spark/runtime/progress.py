"""How far a window is: which step, and how many messages of each partition have been read or acknowledged in it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark import Accumulator
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from tidemark.commit.fence import BEAT_SECONDS
from tidemark.offsets.ranges import TopicPartition
from tidemark.spark.runtime.engine_run import attached


class Report:
    """Tells the driver how many messages of a partition have been acknowledged. Travels to Spark's workers.

    Spark passes the numbers on when a task ends, and twice when a task ran twice. So they are only shown, never used to
    decide.
    """

    def __init__(self, counts: Accumulator[dict[str, int]]) -> None:
        self._counts = counts

    def __call__(self, partition: TopicPartition, messages: int) -> None:
        self._counts.add({str(partition): messages})


class AttemptProgress:
    """The progress of an attempt, as its heartbeat shows it."""

    def __init__(self, spark: SparkSession) -> None:
        self._counts = spark.sparkContext.accumulator({}, _SumsByKey())
        self.step = "starting"
        self._before: dict[str, int] = {}
        self._read: dict[str, int] | None = None
        self._over = threading.Event()
        self.report = Report(self._counts)

    def begin(self, step: str) -> None:
        """Begin a step whose messages are counted from zero, such as the storing in one sink."""
        self.end()
        self._read = None
        self._before = self._now()
        self.step = step

    def watch(self, read: Callable[[], dict[str, int]]) -> None:
        """Show the messages that are read, until the next step begins: for a step in which nobody acknowledges any.

        A thread of its own asks for them, so that no sign of life waits for Spark's JVM.
        """
        self.end()
        over, counts = threading.Event(), dict[str, int]()
        self._over, self._read = over, counts

        def look() -> None:
            while not over.is_set():
                counts.update(read())
                over.wait(BEAT_SECONDS)

        threading.Thread(target=look, name="reading", daemon=True).start()

    def end(self) -> None:
        """Look no more."""
        self._over.set()

    def __call__(self) -> tuple[str, dict[str, int]]:
        step, read, before = self.step, self._read, self._before
        if read is not None:
            return step, dict(read)
        return step, {name: number - before.get(name, 0) for name, number in self._now().items()}

    def _now(self) -> dict[str, int]:
        if (engine := attached()) is not None:
            engine.collect()
        return dict(self._counts.value)


class _SumsByKey(AccumulatorParam[dict[str, int]]):
    def zero(self, value: dict[str, int]) -> dict[str, int]:
        return {}

    def addInPlace(self, value1: dict[str, int], value2: dict[str, int]) -> dict[str, int]:
        for key, number in value2.items():
            value1[key] = value1.get(key, 0) + number
        return value1
