"""Finding the messages that a computation fails on, however many they are, by trying it on some at a time in one task.

A job that fails names one error. Here the computation is planned once, over rows that our Java class Trial.java hands to
it. So a task can run it again and again, catch its errors, and go on with halves of the failing messages.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import TidemarkError
from tidemark.functions.caller import MAX_DETAIL
from tidemark.spark.columns import COORDINATE, INDEX
from tidemark.spark.rows.failing_messages import DETAIL, ERROR, RAISED
from tidemark.spark.runtime.compiling import compiled, new_instance
from tidemark.spark.runtime.frames import frame_of, rows_of
from tidemark.spark.runtime.own_errors import CALLED_BY_ALL, NEVER, OF_SERVERS
from tidemark.spark.runtime.session import setting

log = logging.getLogger(__name__)

Compute = Callable[[DataFrame], DataFrame]

_TRIAL = Path(__file__).with_name("Trial.java")
_CONDITION, _SAID = "_condition", "_said"
# A task in which many messages fail computes each some ten times.
_MESSAGES_PER_TASK = 20_000
# A shuffle, or a kept frame, as RDD.toDebugString shows them: a task cannot compute either again.
_OF_MORE_TASKS = re.compile(r"\+-\(|Replicated\]")


def failing_messages(given: DataFrame, compute: Compute, messages: int) -> DataFrame | None:
    """The coordinates of the messages that `compute` fails on when it gets them alone, with ERROR and DETAIL of each.

    `given` has at most `messages` messages. None when no single task can run `compute`: it has a shuffle, or computes
    something once from all messages. Computing the result raises errors that no message causes.
    """
    computed = _in_a_task(given, compute)
    if computed is None:
        return None
    spark = given.sparkSession
    tasks = max(2 * spark.sparkContext.defaultParallelism, math.ceil(messages / _MESSAGES_PER_TASK))
    placed = given.repartition(tasks, *COORDINATE).sortWithinPartitions(*COORDINATE, INDEX)
    tried = rows_of(placed).mapPartitions(_trial(spark, computed, placed.columns.index(INDEX)))
    said = [T.StructField(name, T.StringType()) for name in (_CONDITION, _SAID)]
    failed = frame_of(spark, tried, T.StructType([*given.schema, *said]))
    return failed.select(*COORDINATE, _error().alias(ERROR), F.substring(_SAID, 1, MAX_DETAIL).alias(DETAIL))


def _in_a_task(given: DataFrame, compute: Compute) -> Any | None:
    """The computation over the rows that a thread tries, as an RDD that needs no job; None if it needs one."""
    spark = given.sparkSession
    context: Any = spark.sparkContext._jsc
    tried = context.parallelize([0], 1).mapPartitions(_trial(spark, None, 0))
    # With all rows in one task, Spark shuffles none.
    rows = frame_of(spark, tried, given.schema).coalesce(1)
    try:
        with setting(spark, "spark.sql.adaptive.enabled", "false"):
            made: Any = compute(rows)._jdf
            computed = made.queryExecution().toRdd()
    except (Py4JError, PySparkException, TidemarkError) as problem:
        log.info("it cannot be computed for some messages at a time: %s", problem)
        return None
    return None if _OF_MORE_TASKS.search(computed.toDebugString()) else computed


def _error() -> Column:
    raised = F.nullif(F.regexp_extract(_SAID, RAISED, 1), F.lit(""))
    return F.coalesce(F.col(_CONDITION), raised, F.lit("an exception"))


def _trial(spark: SparkSession, computed: Any | None, index: int) -> Any:
    lists = ("\n".join(names) for names in (NEVER, OF_SERVERS, CALLED_BY_ALL))
    return new_instance(compiled(spark.sparkContext, _TRIAL), computed, index, *lists)
