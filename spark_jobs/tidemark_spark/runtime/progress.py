"""How far a window is: which step, and how many messages of each partition have been read or acknowledged in it."""

from __future__ import annotations

from collections.abc import Callable

from pyspark import Accumulator
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from tidemark.offsets.ranges import TopicPartition
from tidemark_spark.runtime.engine_run import attached

# The messages of each partition that have been read so far.
ReadSoFar = Callable[[], dict[str, int]]


class Report:
    """Tells the driver how many messages of a partition have been acknowledged. Travels to Spark's workers.

    Spark passes the numbers on when a task ends, and twice when a task ran twice. So they are only shown, never used to
    decide.
    """

    def __init__(self, counts: Accumulator[dict[str, int]]) -> None:
        self._counts = counts

    def __call__(self, partition: TopicPartition, messages: int) -> None:
        self._counts.add({str(partition): messages})


class Progress:
    """The progress of an attempt, as its heartbeat shows it."""

    def __init__(self, spark: SparkSession) -> None:
        self._counts = spark.sparkContext.accumulator({}, _Counts())
        self.step = "starting"
        self._before: dict[str, int] = {}
        self._read: ReadSoFar | None = None
        self.report = Report(self._counts)

    def begin(self, step: str) -> None:
        """Begin a step whose messages are counted from zero, such as the storing in one sink."""
        self._read = None
        self._before = self._now()
        self.step = step

    def watch(self, read: ReadSoFar) -> None:
        """Show the messages that are read, until the next step: for a step in which nobody acknowledges any."""
        self._read = read

    def __call__(self) -> tuple[str, dict[str, int]]:
        step, read, before = self.step, self._read, self._before
        if read is not None:
            return step, read()
        return step, {name: number - before.get(name, 0) for name, number in self._now().items()}

    def _now(self) -> dict[str, int]:
        if (engine := attached()) is not None:
            engine.collect()
        return dict(self._counts.value)


class _Counts(AccumulatorParam[dict[str, int]]):
    def zero(self, value: dict[str, int]) -> dict[str, int]:
        return {}

    def addInPlace(self, value1: dict[str, int], value2: dict[str, int]) -> dict[str, int]:
        for key, number in value2.items():
            value1[key] = value1.get(key, 0) + number
        return value1
