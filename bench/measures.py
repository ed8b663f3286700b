"""The measures: each with what it is measured against, and what it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import (
    against_clients,
    against_spark,
    audits,
    latest_publishing,
    ledger,
    selections,
    shapes,
    sizes,
    small_windows,
)
from bench.pairs import Pairs
from bench.workbench import Workbench


@dataclass(frozen=True)
class Measure:
    """`interval` says what is within the time of each side. `speed`: the ratio is ours to theirs in speed, not in time.

    `target`: None for an option whose price is to be known. `messages`: how many a measure takes; None for as many as were
    asked for, 0 for none.
    """

    name: str
    what: str
    interval: str
    target: float | None
    run: Callable[[Workbench], Pairs]
    speed: bool = False
    messages: int | None = None

    def met(self, median: float) -> bool | None:
        if self.target is None:
            return None
        return median >= self.target if self.speed else median <= self.target


_OURS = (
    "ours: plan, pin, take, read, dead letters, results, verification, commit, settling; Spark runs already, and the tables "
    "are there. "
)

_SPARK_ALONE = (
    "Theirs: Spark's own source, the same parsing, and a Parquet write of all columns and the reason; nothing kept"
)

MEASURES = (
    Measure(
        "parquet",
        "CDN lines to Parquet, against Spark alone: read, parse, write",
        _OURS + _SPARK_ALONE,
        1.40,
        against_spark.parquet,
        messages=against_spark.LINES,
    ),
    Measure(
        "hbase-java",
        "CDN lines to HBase, four cells a row, against Java's BufferedMutator",
        _OURS + "Theirs: two threads put the same cells, which are in memory already, and flush; no Kafka, no parsing",
        0.65,
        against_clients.buffered_mutator,
        speed=True,
    ),
    Measure(
        "hbase-happybase",
        "the same against Spark's foreachPartition with happybase's batch(batch_size=1000)",
        _OURS + "Theirs: Spark's own source, the same patterns, nothing kept, and a put for each row",
        1.5,
        against_clients.foreach_partition,
        speed=True,
    ),
    Measure(
        "hbase-consumer",
        "the same against a loop of kafka-python and happybase",
        _OURS
        + "Theirs: one consumer reads the same ranges, Python's `re` parses, happybase's batch(batch_size=1000) puts",
        2.0,
        against_clients.consumer_loop,
        speed=True,
    ),
    Measure(
        "hbase-packed",
        "CDN lines to HBase, one cell a row (`packed`), against four cells a row",
        "both: " + _OURS.removeprefix("ours: "),
        None,
        against_clients.packed,
    ),
    Measure(
        "hbase-gateways",
        "CDN lines to HBase through two Thrift gateways on the same machine, against one",
        "both: " + _OURS.removeprefix("ours: "),
        None,
        against_clients.two_gateways,
    ),
    Measure(
        "wide-24",
        "lines of 24 fields to Parquet, against Spark alone: read, parse, write",
        _OURS + _SPARK_ALONE,
        1.3,
        partial(against_spark.wide, number=24),
    ),
    Measure(
        "wide-60",
        "lines of 60 fields to Parquet, against Spark alone: read, parse, write",
        _OURS + _SPARK_ALONE,
        1.3,
        partial(against_spark.wide, number=60),
    ),
    Measure(
        "streaming",
        "CDN lines to Parquet, against Structured Streaming: availableNow, its own file sink, the same patterns and columns",
        _OURS + "Theirs: a new query with a new checkpoint, until it ends",
        1.15,
        against_spark.structured_streaming,
        messages=against_spark.LINES,
    ),
    Measure(
        "skew",
        "one partition of four holds 90 % of the lines, against an even spread",
        "both: " + _OURS.removeprefix("ours: "),
        1.15,
        shapes.skew,
    ),
    Measure(
        "memory",
        "peak memory of a job, 10 million lines against 1 million",
        "both: the largest resident memory of spark-submit, its JVM and its Python workers together, with all of the heap "
        "taken from the start",
        1.1,
        shapes.memory,
        messages=shapes.MANY,
    ),
    Measure(
        "partitions",
        "pin, take and commit of a window with 1,000 partitions, against the bare round trips of the same sizes",
        "ours: the protocol on the HBase ledger, without Kafka and without Spark. Theirs: the same reads and writes of the "
        "same bytes, one after the other",
        3.0,
        ledger.thousand_partitions,
        messages=0,
    ),
    Measure(
        "large",
        "2,000 records of 1 MB, against the same bytes in records of 1 KB (peak memory)",
        "both: the largest resident memory of spark-submit, its JVM and its Python workers together; every record arrives",
        1.5,
        shapes.large_records,
        messages=shapes.LARGE,
    ),
    Measure(
        "sparse",
        "reading 200 records that are spread over 10 million, against reading all",
        "both: plan the read, and Spark reads all columns and keeps none; no parsing, no results, no ledger",
        0.2,
        selections.far,
        messages=selections.AMONG,
    ),
    Measure(
        "dense",
        "reading nine of each ten records, against reading all that encloses them",
        "both: plan the read, and Spark reads all columns, leaves out what is not wanted, and keeps none",
        1.1,
        selections.near,
        messages=selections.BESIDE,
    ),
    Measure(
        "between",
        "reading each thousandth record, where both ways cost about the same, against reading all that encloses them",
        "both: plan the read, and Spark reads all columns, leaves out what is not wanted, and keeps none",
        1.1,
        selections.between,
        messages=selections.BESIDE,
    ),
    Measure(
        "audit",
        "an audit of unchanged data (CDN lines in Parquet), level full, against a bare read of the same data",
        "ours: the ledger, messages and their digests, the digests of rows and dead letters, tallies, the report. Theirs: "
        "Spark reads all columns of the topic and all columns of the Parquet files, and happybase scans the dead letters; "
        "nothing is done with them",
        1.2,
        audits.against_a_read,
    ),
    Measure(
        "audit-scattered",
        "an audit after four replays of 1,200 scattered records over 100 windows (Parquet and Delta), against one before them",
        "both: the whole audit, level full",
        2.0,
        audits.after_replays,
        messages=audits.SCATTERED,
    ),
    Measure(
        "audit-scattered-heap",
        "the same in what lives in the driver's heap afterwards",
        "both: the heap in use after the audit and a collection of garbage",
        1.1,
        audits.heap_after_replays,
        messages=audits.SCATTERED,
    ),
    Measure(
        "small",
        "`tidemark run` of 1,000 lines to HBase in a warm engine, against 4 s",
        "ours: the command from its start to its end, after ten runs. Theirs: 4 seconds",
        1.0,
        small_windows.wall,
        messages=small_windows.SMALL,
    ),
    Measure(
        "small-processor",
        "the processor time of the same, against 3 s",
        "ours: user and system time of the command, the run, the engine's JVM and its Python workers. Theirs: 3 seconds",
        1.0,
        small_windows.processor,
        messages=small_windows.SMALL,
    ),
    Measure(
        "airflow-small",
        "1,000 lines of the example with its four sinks through Airflow, in a warm engine, against 10 s",
        "ours: from the trigger until Airflow says success, after three runs. Theirs: 10 seconds",
        1.0,
        small_windows.airflow_small,
        messages=small_windows.SMALL,
    ),
    Measure(
        "airflow-larger",
        "50,000 lines of the same, against 15 s",
        "ours: from the trigger until Airflow says success, after three runs. Theirs: 15 seconds",
        1.0,
        small_windows.airflow_larger,
        messages=small_windows.LARGER,
    ),
    Measure(
        "hour",
        "200 streams of 1,000 lines each, two at a time, in a warm engine, against 10 minutes",
        "ours: `tidemark run` for each of them, once. Theirs: 600 seconds",
        1.0,
        small_windows.hour,
        messages=small_windows.STREAMS * small_windows.SMALL,
    ),
    Measure(
        "sizes-ledger",
        "ten windows in a ledger in PostgreSQL that has 1,000, against one that has 100",
        "both: pin, take, commit and settle windows of 20 partitions, without Kafka and without Spark",
        1.15,
        sizes.ledger_in_sql,
        messages=0,
    ),
    Measure(
        "sizes-letters",
        "dead letters of ten windows in a table of PostgreSQL that has 100,000, against one that has 10,000",
        "both: write a hundred for each window, clear those of older attempts, and read what counts",
        1.15,
        sizes.letters_in_postgresql,
        messages=0,
    ),
    Measure(
        "sizes-letters-mariadb",
        "the same in MariaDB",
        "both: the same",
        1.15,
        sizes.letters_in_mariadb,
        messages=0,
    ),
    Measure(
        "sizes-parquet",
        "a window in a bucket, results and dead letters in Parquet, after 1,000 windows, against one after 100",
        "both: " + _OURS.removeprefix("ours: ") + "Twenty rows and a dead letter; the ledger is in PostgreSQL",
        1.15,
        sizes.parquet_in_a_bucket,
        messages=0,
    ),
    Measure(
        "sizes-delta",
        "the same in two tables of Delta",
        "both: the same",
        1.15,
        sizes.delta_in_a_bucket,
        messages=0,
    ),
    Measure(
        "unknown-keys",
        "JSON objects of twelve keys, of which the stream has nine, against the same without the count of the others",
        "both: " + _OURS.removeprefix("ours: "),
        1.15,
        shapes.unknown_keys,
    ),
    Measure(
        "latest-history",
        "publishing 1,000 changes of 100,000 keys in a table of newest rows after 1,000 windows, against after 100",
        "both: from the ledger's commit to the table's version; the older windows have no rows",
        1.2,
        latest_publishing.after_many,
        messages=0,
    ),
    Measure(
        "latest-merge",
        "the same, against delta-rs' merge of the same rows with the guard and the buckets in its condition",
        "ours: from the ledger's commit to the table's version. Theirs: the merge, with nothing that takes rows out again",
        2.0,
        latest_publishing.beside_a_merge,
        messages=0,
    ),
    Measure(
        "latest-hbase",
        "the same into HBase, against puts of the same cells alone",
        "ours: from the ledger's commit to HBase's answer, with the look at the rows that are there. Theirs: one put",
        3.0,
        latest_publishing.beside_puts,
        messages=0,
    ),
    Measure(
        "totals-hbase",
        "the same of a table with aggregates, against puts of the same number of cells alone",
        "ours: from the ledger's commit to HBase's answer, with the look at the rows that are there. Theirs: one put",
        3.0,
        latest_publishing.totals_beside_puts,
        messages=0,
    ),
)
