"""The way of a message to its rows, on which the sinks, the dead letters, the tallies and the audit work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.clients.connections import Connections
from tidemark.clients.environment import from_environment
from tidemark.clients.schema_registry import registry_endpoint
from tidemark.commit.fence import HeadFence
from tidemark.errors import WrongUse
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.tallies import PartitionTally
from tidemark.schemes.kinds import FunctionScheme, RegexScheme, SchemeWithSchemas
from tidemark.spark.columns import INDEX
from tidemark.spark.rows import outcomes
from tidemark.spark.rows.constants import wrong_constant
from tidemark.spark.rows.failing_messages import SPARKS, cause_of, failing
from tidemark.spark.rows.fetching_functions import refuse_fetching
from tidemark.spark.rows.reading import no_messages
from tidemark.spark.rows.row_by_row import row_by_row
from tidemark.spark.rows.selecting import only
from tidemark.spark.rows.tallying import AS_READ, as_read, read_tallies
from tidemark.spark.rows.transform import apart, bounded, given_to, made_of, refuse_invented, repeats, transformed
from tidemark.spark.rows.trials import failing_messages
from tidemark.spark.runtime.single_computation import computed_once, draws, marked, repeatable
from tidemark.spark.schemes.function import check_function
from tidemark.spark.schemes.schema_ids import schemas_of
from tidemark.streams.model import Stream

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rows:
    """The rows of some messages, as `outcomes` describes them, and the frames that Spark keeps so that Kafka is read once.

    `read` is what was counted of the messages before anything was made of them. It is None where each row is an expression
    of its one message: then counting the rows is counting the messages.
    """

    frame: DataFrame
    kept: ExitStack
    read: tuple[PartitionTally, ...] | None = None

    def close(self) -> None:
        """Give back the memory that the rows take in Spark."""
        self.kept.close()


def rows_of(
    messages: DataFrame,
    stream: Stream,
    refusals: Sequence[Column] = (),
    fence: HeadFence | None = None,
    connections: Connections = from_environment,
) -> Rows:
    """The way of a message, stage by stage: from what Kafka gave to the rows that a stream makes of it.

    Spark has computed the rows when this returns. A message for which the scheme, a check or the transform throws is a dead
    letter by then. `refusals` are those of the sinks. `fence` is looked at while a function of the user's own takes its time.
    Raises WrongUse for a transform that does not give what it has to, TransformRefused for rows that it cannot have made.
    """
    scheme, several = stream.scheme, _several(stream)
    registered = isinstance(scheme, SchemeWithSchemas) and scheme.registry is not None and not scheme.asked
    read: tuple[PartitionTally, ...] | None = None
    # What Spark keeps until the rows are made.
    with ExitStack() as scratch:
        # Counted as read, where a later stage could lose a message.
        messages = as_read(messages)
        if registered or several:
            messages = _kept(messages, scratch)
            read = read_tallies(messages)
        if registered:
            stream = _with_schemas(stream, messages, connections)
        try:
            # Exploded, decoded by the scheme, and checked.
            rows = outcomes.with_outcomes(messages if read is None else messages.drop(*AS_READ), stream, fence)
            return _made(rows, stream, refusals, read)
        except SPARKS as problem:
            # A function's own errors are dead letters before. Nobody calls it for nothing.
            if cause_of(problem) is None or isinstance(scheme, FunctionScheme):
                raise
            log.warning("the scheme or a check fails on messages of this window; looking for them")
            if read is None:
                messages = _kept(messages, scratch)
                read = read_tallies(messages)
            messages = messages.drop(*AS_READ)
            causes = _kept(_failing(messages.withColumn(INDEX, F.lit(0)), partial(_parsed, stream), read), scratch)
            # A check by itself is null where it throws, so that none may be left.
            if not causes.count() and not stream.checks:
                raise
            return _made(outcomes.without_failing(messages, causes, stream), stream, refusals, read)


def _parsed(stream: Stream, messages: DataFrame) -> DataFrame:
    """Messages as `rows_of` has them, exploded, decoded and checked."""
    return outcomes.with_outcomes(messages.drop(INDEX), stream, apart=True)


def _made(rows: DataFrame, stream: Stream, refusals: Sequence[Column], read: tuple[PartitionTally, ...] | None) -> Rows:
    """The last stages, from decoded and checked rows on. Messages on which the transform fails become dead letters."""
    scheme, transform, several = stream.scheme, stream.transform, _several(stream)
    once = _may_differ(rows, stream)
    if transform is None:
        return _finished(rows, stream, refusals, read, once=once)
    selected = None if several or read is not None else row_by_row(rows, scheme.fields, transform)
    if selected is not None:
        try:
            return _finished(selected, stream, refusals, None, once=once)
        except SPARKS as problem:
            if cause_of(problem) is None:
                raise
    with ExitStack() as scratch:
        rows = _kept(outcomes.slimmed(rows, several=True), scratch, once=once)
        read = read or read_tallies(rows)
        rows = outcomes.settled(rows) if several else rows.drop(*AS_READ)
        once = once or not repeats(rows, scheme.fields, transform)
        while True:
            try:
                made = transformed(rows, scheme.fields, transform)
                return _finished(made, stream, refusals, read, once=once, joined=True)
            except SPARKS as problem:
                if cause_of(problem) is None:
                    raise
                log.warning("the transform fails on messages of this window; looking for them")
                causes, number = _found(
                    given_to(rows, scheme.fields), partial(bounded, transform=transform), read, scratch
                )
                if not number:
                    raise
                # What it fails on only beside others is found once these are out of its way.
                rows = outcomes.failed(rows, causes, number)


def _finished(
    rows: DataFrame,
    stream: Stream,
    refusals: Sequence[Column],
    read: tuple[PartitionTally, ...] | None,
    *,
    once: bool,
    joined: bool = False,
) -> Rows:
    """The last stages: no row is larger than a sink takes, all are hashed and kept, and each message has one outcome.

    `joined`: the rows of a transform were put beside their messages again.
    """
    several = _several(stream)
    rows = outcomes.within_limits(outcomes.in_utf8(rows, stream), refusals)
    if not joined:
        rows = outcomes.slimmed(rows, several=several)
    with ExitStack() as kept:
        rows = _kept(outcomes.hashed(rows, stream.fields), kept, once=once)
        if joined:
            rows = refuse_invented(rows)
        if several or joined:
            rows = outcomes.settled(rows)
        elif not once:
            # Whatever a message makes Spark throw, it throws here.
            rows.count()
        return Rows(rows, kept.pop_all(), read)


def _several(stream: Stream) -> bool:
    """Whether a message may have more than one row before the transform."""
    return stream.explode is not None or isinstance(stream.scheme, FunctionScheme)


def _may_differ(rows: DataFrame, stream: Stream) -> bool:
    """Whether rows before the transform may come out otherwise when they are computed again.

    Even where the transform draws something, which it does for the rows that come of these.
    """
    return isinstance(stream.scheme, FunctionScheme) or draws(stream.sql) or not repeatable(rows)


def _kept(rows: DataFrame, stack: ExitStack, *, once: bool = False) -> DataFrame:
    """Rows that Spark keeps until `stack` is closed. With `once` they are computed now, and never again."""
    frame = (marked(rows) if once else rows).persist()
    stack.callback(frame.unpersist)
    return computed_once(frame) if once else frame


def _with_schemas(stream: Stream, messages: DataFrame, connections: Connections) -> Stream:
    """The stream with the registry's schemas, once it is known which ones the messages name."""
    # Only the driver asks: Spark's workers do without this library.
    from tidemark.clients.schema_registry import SchemaRegistry

    scheme = cast("SchemeWithSchemas", stream.scheme)
    registry = SchemaRegistry(registry_endpoint(connections(scheme.registry or "")))
    return stream.model_copy(update={"scheme": scheme.with_writers(schemas_of(messages, registry, scheme.type))})


def _failing(
    given: DataFrame, compute: Callable[[DataFrame], DataFrame], read: tuple[PartitionTally, ...]
) -> DataFrame:
    """The coordinates of the messages that a computation fails on, with ERROR and DETAIL."""
    failed = failing_messages(given, compute, sum(one.read.number for one in read))
    return _by_jobs(given, compute, read) if failed is None else failed


def _found(
    given: DataFrame,
    compute: Callable[[DataFrame], DataFrame],
    read: tuple[PartitionTally, ...],
    scratch: ExitStack,
) -> tuple[DataFrame, int]:
    """As `_failing`, kept, and how many there are: at least one, where the computation fails on what it was given."""
    causes = _kept(_failing(given, compute, read), scratch)
    if number := causes.count():
        return causes, number
    # No single task has all of those that it fails on together.
    causes = _kept(_by_jobs(given, compute, read), scratch)
    return causes, causes.count()


def _by_jobs(
    given: DataFrame, compute: Callable[[DataFrame], DataFrame], read: tuple[PartitionTally, ...]
) -> DataFrame:
    offsets = RangeSet(OffsetRange(one.at, one.first or 0, (one.last or 0) + 1) for one in read)
    causes = failing(
        offsets,
        # Computes all columns, and writes none.
        lambda part: compute(apart(only(given, part))).write.format("noop").mode("overwrite").save(),
    )
    return outcomes.listed(given.sparkSession, causes)


def check_rows(spark: SparkSession, stream: Stream) -> None:
    """Check a stream's parts before any message is read.

    Raises WrongUse for a function, policy, pattern, check, transform or schema file that cannot be used, and for a
    constant of their SQL that is wrong for every row, such as a regular expression that is none, or a function that fetches
    what a message names.
    """
    check_function(stream)
    if (
        not stream.checks
        and stream.transform is None
        and not isinstance(stream.scheme, SchemeWithSchemas | RegexScheme)
    ):
        return
    rows = outcomes.with_outcomes(no_messages(spark), stream.model_copy(update={"checks": ()}))
    outcomes.check_checks(rows, stream)
    if stream.transform is not None:
        made = made_of(given_to(rows, stream.scheme.fields), stream.transform)
        refuse_fetching(made, "transform")
        if stream.transform.sql is not None and (wrong := wrong_constant(made)) is not None:
            raise WrongUse(f"transform.sql: {wrong}")
