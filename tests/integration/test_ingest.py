"""Ingest on real servers: what was read, exactly once, for two streams that have nothing in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import happybase
import pyarrow as pa
import pytest
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, OFFSETS, Example
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.reading import hbase_rows, parquet_tables
from tidemark.spark.jobs import window_work
from tidemark.spark.rows.reading import read_offsets
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.both
@pytest.mark.covers("P2", "O9", "E9", "E46")
def test_what_counts_is_what_the_topics_hold(live: LiveStream) -> None:
    live.produce(1_000)
    (record,) = live.ingest()
    wanted = live.expected()
    assert len(wanted.rows) > 900
    assert len(set(wanted.dead.values())) >= 2
    assert sum(tally.read.number for tally in record.tallies) == 1_000
    assert sum(tally.invalid.number for tally in record.tallies) == len(wanted.dead)
    live.assert_exactly_what_was_read()
    # Nothing is fetched again, dead letters neither.
    assert live.ingest() == []


class Offsets(AccumulatorParam[Counter[tuple[str, int, int]]]):
    """How often Spark's tasks have got each message from Kafka."""

    def zero(self, value: Counter[tuple[str, int, int]]) -> Counter[tuple[str, int, int]]:
        return Counter()

    def addInPlace(
        self, value1: Counter[tuple[str, int, int]], value2: Counter[tuple[str, int, int]]
    ) -> Counter[tuple[str, int, int]]:
        value1.update(value2)
        return value1


@pytest.mark.covers("E34")
def test_kafka_is_read_once_for_all_sinks_and_dead_letters(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make(CDN, limits={"max_invalid": {"share": 0.5}})
    live.produce(400)
    read = spark.sparkContext.accumulator(Counter(), Offsets())

    def counted(*what: Any, **how: Any) -> DataFrame:
        messages = read_offsets(*what, **how)

        def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                places = (batch.column(name).to_pylist() for name in ("_topic", "_partition", "_offset"))
                read.add(Counter(zip(*places, strict=True)))
                yield batch

        return messages.mapInArrow(count, messages.schema)

    monkeypatch.setattr(window_work, "read_offsets", counted)
    live.ingest()
    wanted = live.expected()
    assert wanted.dead
    assert len(live.opened.stream.sinks) == 2
    assert read.value == {
        (topic, at, one): 1 for (topic, at), until in live.positions().items() for one in range(until)
    }
    live.assert_exactly_what_was_read()


@pytest.mark.covers("O2", "A20")
def test_the_next_run_reads_exactly_what_has_come_since(live: LiveStream) -> None:
    live.produce(300)
    live.ingest()
    before = live.positions()
    live.produce(120)
    (record,) = live.ingest()
    assert {(one.topic, one.partition): one.start for one in record.window.ranges} == before
    assert sum(tally.read.number for tally in record.tallies) == 120
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("A19")
def test_runs_without_anything_new_change_nothing(live: LiveStream) -> None:
    live.produce(50)
    live.ingest()
    before = list(live.opened.ledger.store.scan(()))
    for _ in range(10):
        assert live.ingest() == []
    assert list(live.opened.ledger.store.scan(())) == before
    live.produce(10)
    (record,) = live.ingest()
    assert sum(tally.read.number for tally in record.tallies) == 10


@pytest.mark.full
@pytest.mark.covers("A30", "S18")
def test_a_capped_run_goes_on_window_after_window_to_the_end_that_it_saw(make: Make) -> None:
    live = make(CDN, limits={"max_records": 100})
    live.produce(250)

    produced_meanwhile = []

    def produce_more(step: object) -> None:
        if not produced_meanwhile:
            produced_meanwhile.append(step)
            live.produce(60)

    records = live.ingest(on_step=produce_more)
    reads = [sum(tally.read.number for tally in record.tallies) for record in records]
    assert sum(reads) == 250
    assert len(reads) == 3
    assert all(number <= 104 for number in reads)
    (last,) = live.ingest()
    assert sum(tally.read.number for tally in last.tallies) == 60
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("O1")
def test_offsets_are_published_as_spark_jobs_keep_them_in_hbase(make: Make, example: Example) -> None:
    live = make(example)
    live.produce(90)
    first, second = live.ingest()[0], None
    live.produce(30)
    second = live.ingest()[0]
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    table = connection.table(OFFSETS)
    assert table.families()[b"offsets"]["time_to_live"] == 2_592_000
    for topic in live.topics:
        rows = list(table.scan(row_prefix=f"{topic}:{live.name}:".encode()))
        assert [key.decode().split(":")[2] for key, _ in rows] == [str(first.committed_at), str(second.committed_at)]
        # The last row by a reverse scan holds the offsets to go on from.
        _, newest = next(iter(table.scan(row_prefix=f"{topic}:{live.name}:".encode(), reverse=True, limit=1)))
        until = {int(column.split(b":")[1]): int(value) for column, value in newest.items()}
        assert until == {partition: offset for (name, partition), offset in live.positions().items() if name == topic}
    connection.close()


@pytest.mark.full
def test_a_record_says_what_was_read_by_whom_with_what(live: LiveStream) -> None:
    live.produce(80)
    run = live.new_run()
    (record,) = live.ingest(run)
    assert record.attempt.run == run
    assert record.attempt.stream_digest == live.opened.file.digest
    assert record.attempt.code_version
    assert record.window.isolation == "read_committed"
    assert set(record.window.topic_ids) == set(live.topics)
    assert all(one.leader_epoch is not None for one in record.window.ranges)
    for tally in record.tallies:
        assert tally.read.number == (tally.last or 0) - (tally.first or 0) + 1
        assert tally.bytes > 0
        assert tally.first_timestamp is not None


@pytest.mark.full
@pytest.mark.covers("S12")
def test_a_changed_stream_file_is_another_digest_and_changed_code_another_version(
    live: LiveStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.produce(20)
    (first,) = live.ingest()
    before = live.positions()
    live.rewrite(description="changed")
    monkeypatch.setenv("TIDEMARK_CODE_VERSION", "newer")
    live.produce(20)
    (second,) = live.ingest()
    # The stream goes on where it was.
    assert {(one.topic, one.partition): one.start for one in second.window.ranges} == before
    assert first.attempt.code_version != second.attempt.code_version
    assert second.attempt.code_version.endswith("+newer")
    assert first.attempt.stream_digest != second.attempt.stream_digest
    assert second.attempt.stream_digest == live.opened.file.digest


@pytest.mark.full
def test_the_readers_show_what_counts(live: LiveStream, spark: SparkSession) -> None:
    live.produce(400)
    live.ingest()
    wanted = live.expected().rows
    opened = live.opened
    table = stream_table(opened, "hbase_default", live.name)
    plain = {
        (row.place.partition.topic, row.place.partition.partition, row.place.offset, row.place.index): {
            name: value.decode() for name, value in row.fields.items()
        }
        for row in hbase_rows(opened.ledger, table, "hbase")
    }
    assert plain == wanted
    assert sum(table.num_rows for table in parquet_tables(opened.ledger, "parquet")) == len(wanted)
    for sink in ("hbase", "parquet"):
        rows = results(spark, opened, sink)
        assert dict(rows.dtypes)[live.fields[-1]] in ("double", "boolean")
        places = {(row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in rows.collect()}
        assert places == set(wanted)


@pytest.mark.covers("C2")
@pytest.mark.usefixtures("spark")
def test_a_run_in_windows_of_so_many_bytes(make: Make) -> None:
    live = make(CDN, limits={"max_bytes": 200_000})
    line = b'203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET http://h/%s HTTP/1.1" 200 5321 0.132'
    path = b"x" * (10_000 - len(line) + 2)
    live.kafka.send([(live.topics[0], number % 4, None, line % path) for number in range(100)])
    # The first window goes by the size of the logs, the others by what was read.
    records = live.ingest()
    sizes = [sum(tally.bytes for tally in record.tallies) for record in records]
    assert sum(sizes) == 1_000_000
    assert 5 <= len(sizes) <= 7
    assert all(size <= 200_000 for size in sizes)
    assert all(size >= 150_000 for size in sizes[:-1])
    # The partitions go on together.
    first = {tally.partition: tally.read.number for tally in records[0].tallies}
    assert len(set(first.values())) == 1
    # A message larger than the limit passes by itself.
    live.rewrite(limits={"max_bytes": 5_000})
    live.kafka.send([(live.topics[0], 0, None, line % path) for _ in range(3)])
    assert [sum(tally.read.number for tally in one.tallies) for one in live.ingest()] == [1, 1, 1]
    live.assert_exactly_what_was_read()
