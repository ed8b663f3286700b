"""Windows whose rows are made and written while they are read: the same results and tallies as on the longer way."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.rows import GIVEN_BACK, messages_of, stream_of
from tests.support.waiting import until
from tidemark.commit.protocol import Step
from tidemark.ledger.records import LaneKind, Record
from tidemark.offsets.blocks import WHOLE
from tidemark.planning import splitting
from tidemark.spark.columns import COORDINATE, DIGEST, INDEX, OUTCOME, REASON, TOMBSTONE, content_digest, field
from tidemark.spark.jobs import window_work
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows import one_pass, outcomes
from tidemark.spark.rows.pipeline import rows_of
from tidemark.spark.rows.reading import counted_ranges, lines_of, read_offsets
from tidemark.spark.rows.row_by_row import row_by_row
from tidemark.spark.rows.tallying import tallies_and_blocks
from tidemark.spark.rows.transform import transformed
from tidemark.spark.runtime.progress import AttemptProgress
from tidemark.spark.sinks import make_sinks, refusals
from tidemark.streams.model import Stream

FIELDS = {"id": "integer", "of": "string", "share": "double", "ok": "boolean", "at": "timestamp"}
PARQUET, HBASE = {"type": "parquet", "folder": "-"}, {"type": "hbase", "table": "-"}
STREAM: dict[str, Any] = {
    "source": {"topics": []},
    "scheme": {
        "type": "delimited",
        "fields": FIELDS,
        "keep": ["headers", "key"],
        "timestamp": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    },
    "checks": [{"invalid_when": "id < 0", "reason": "negative"}],
    "sinks": [PARQUET],
    "dead_letters": {"type": "hbase", "table": "-"},
}
SEVERAL = Example(
    "several", STREAM, ("one", "two"), 2, lambda count, first: iter(()), lambda value: Outcome(None, None)
)
BLOCK = 50
SELECTED = f"SELECT {GIVEN_BACK}, id, upper(of) AS of, %s AS share, ok, at FROM messages WHERE id <> 7"


def values(count: int) -> Iterator[bytes | None]:
    """Lines of every kind: whole ones, with empty and missing fields, invalid ones, and tombstones."""
    chance = random.Random(5)
    for number in range(count):
        kind = chance.randrange(12)
        if kind == 0:
            yield None
        elif kind == 1:
            yield b"\xff\xfe" if chance.random() < 0.5 else f"{number},too few".encode()
        elif kind == 2:
            yield f"{-number},a,1.5,true,2026-11-21T07:10:00Z".encode()
        else:
            of = chance.choice(["", "ü", "host " * chance.randrange(1, 9)])
            share = chance.choice(["-0.0", "1.5", "1e300", "NaN", f"{chance.random()}"])
            ok, at = chance.choice(["true", "false"]), f"20{chance.randrange(10, 99)}-11-21T07:10:00.{number:06d}Z"
            yield f"{number % 10},{of},{share},{ok},{at}".encode()


def produce(live: LiveStream, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    for number, value in enumerate(values(count)):
        key = None if number % 3 == 0 and value is not None else f"k{number}".encode()
        headers = [("a", b"x"), ("b", b"\xff"), ("a", b"")][: number % 4]
        place = {"topic": live.topics[number % 2], "partition": number // 2 % 2}
        # Spark cannot hold some times.
        time = -(2**62) - number if number % 40 == 11 else None
        producer.send(**place, value=value, key=key, headers=headers, timestamp_ms=time)
    producer.flush()
    producer.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[one_pass.OnePass | None]:
    """For each window, the rows that one pass makes; None if it takes the longer way."""
    found: list[one_pass.OnePass | None] = []

    def watched(*given: Any, **how: Any) -> one_pass.OnePass | None:
        found.append(one_pass.one_pass(*given, **how))
        return found[-1]

    monkeypatch.setattr(window_work, "one_pass", watched)
    return found


def ways(made: list[one_pass.OnePass | None]) -> list[bool]:
    """For each window, whether its rows took one pass."""
    return [rows is not None for rows in made]


def reader(spark: SparkSession, live: LiveStream, record: Record) -> one_pass.Messages:
    """How the messages of a window are read, from its first one to its last one."""
    incarnations = {one.topic: one.incarnation for one in record.window.ranges}
    hull, endpoint = record.window.hull(), live.opened.log.endpoint

    def messages(counted: Any) -> DataFrame:
        return read_offsets(spark, endpoint, "read_committed", hull, incarnations, counted=counted)

    return messages


def written(spark: SparkSession, live: LiveStream, record: Record) -> one_pass.OnePass:
    """The rows of a window in one pass, in blocks of BLOCK offsets. All are computed, and none stored."""
    made = one_pass.one_pass(spark, reader(spark, live, record), live.opened.stream, (), BLOCK)
    assert made is not None
    made.stored.write.format("noop").mode("overwrite").save()
    return made


def counted_again(spark: SparkSession, live: LiveStream, record: Record) -> None:
    """The longer way gives the same tallies, by partition and by blocks."""
    opened = live.opened
    messages = reader(spark, live, record)(None)
    rows = rows_of(messages, opened.stream, refusals(make_sinks(opened), opened.stream.fields))
    tallies, _ = tallies_and_blocks(rows.frame, WHOLE, rows.read)
    assert sorted(record.tallies, key=str) == sorted(tallies, key=str)
    _, expected = tallies_and_blocks(rows.frame, BLOCK, rows.read)
    rows.close()
    assert sorted(written(spark, live, record).tallies_and_blocks[1], key=str) == sorted(expected, key=str)


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.covers("G1")
@pytest.mark.parametrize(
    "sinks",
    [*(pytest.param([one], marks=pytest.mark.full) for one in (PARQUET, HBASE)), [HBASE, PARQUET]],
    ids=["files", "rows", "both"],
)
def test_rows_and_tallies_are_those_of_the_longer_way(
    make: Make, spark: SparkSession, made: list[one_pass.OnePass | None], sinks: list[dict[str, Any]]
) -> None:
    live = make(replace(SEVERAL, stream={**STREAM, "sinks": sinks}))
    produce(live, 400)
    (record,) = live.ingest()
    assert ways(made) == [True]
    counted_again(spark, live, record)
    dead = sum(tally.dead_letters for tally in record.tallies)
    assert 0 < dead < 400
    letters = live.independent.hbase(f"{live.name}_dead").rows
    assert len(letters) == dead
    assert sum("timestamp" not in fields for _, fields in letters) == 10
    assert "timestamp out of range" in {fields["reason"] for _, fields in letters}
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
    assert (report.expected, report.dead_letters) == (400, dead)
    # The digests that Java has computed are those of Spark.
    if PARQUET in sinks:
        folder = next(one.place["folder"] for one in record.places if one.type == "parquet")
        digest = content_digest(tuple(live.opened.fields))
        files = spark.read.option("recursiveFileLookup", True).parquet(folder)
        assert files.where(F.col(DIGEST) != digest).count() == 0
        assert files.count() == sum(tally.rows.number for tally in record.tallies) > 0


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("once", [True, False])
def test_a_window_without_acknowledgements_shows_what_is_read(
    make: Make, monkeypatch: pytest.MonkeyPatch, *, once: bool
) -> None:
    if not once:
        monkeypatch.setattr(window_work, "takes_one_pass", lambda stream: False)
    progress: list[AttemptProgress] = []

    def begun(spark: SparkSession) -> AttemptProgress:
        progress.append(AttemptProgress(spark))
        return progress[-1]

    monkeypatch.setattr(window_work, "AttemptProgress", begun)
    live = make(SEVERAL)
    produce(live, 400)
    read = {f"{topic}/{number}": 100 for topic in live.topics for number in range(2)}
    stored: list[int] = []

    def look(step: Step) -> None:
        if step == Step.READ:
            # A thread asks Spark now and then.
            until(lambda: progress[0]()[1] == read, "it does not show what was read")
        elif step == Step.DEAD_LETTERS_STORED:
            stored.append(sum(progress[0]()[1].values()))

    live.ingest(on_step=look)
    # What was read is not what the dead letters' server acknowledges.
    assert 0 < stored[0] < 400
    until(lambda: not any(one.name == "reading" for one in threading.enumerate()), "a thread still looks")


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.covers("E34", "G1")
def test_a_transform_of_single_rows_takes_one_pass_and_a_failing_message_the_longer_way(
    make: Make, spark: SparkSession, made: list[one_pass.OnePass | None]
) -> None:
    failing = {"sql": SELECTED % "10.0D / id", "fields": FIELDS}
    live = make(replace(SEVERAL, stream={**STREAM, "sinks": [PARQUET, HBASE], "transform": failing}))
    produce(live, 400)
    (record,) = live.ingest()
    # 10.0 / 0: the pass ends, and its files with it. A second attempt finds the message, which is a dead letter.
    assert ways(made) == [True]
    reasons = {fields["reason"] for _, fields in live.independent.hbase(f"{live.name}_dead").rows}
    assert "transform: DIVIDE_BY_ZERO" in reasons
    assert sum(tally.skipped.number for tally in record.tallies) > 0
    files, rows = live.independent.parquet([*FIELDS]), live.independent.hbase()
    assert (files.twice(), rows.twice(), files.debris) == (0, 0, 0)
    assert len(files.rows) == len(rows.rows) == sum(tally.rows.number for tally in record.tallies)

    # Without such a message, one pass is enough.
    live.rewrite(transform={"sql": SELECTED % "id / 10.0D", "fields": FIELDS})
    made.clear()
    (replayed,) = live.select(LaneKind.REPLAY, record.window.hull())
    assert ways(made) == [True]
    counted_again(spark, live, replayed)
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()


def messages_read(spark: SparkSession, rows: one_pass.OnePass | None) -> int:
    """How many messages the pass has read, and all that used its rows after it."""
    assert rows is not None
    return sum(tally.read.number for tally, _ in counted_ranges(lines_of(spark, rows.counts.read)))


def blocks_of(spark: SparkSession, number: int, tasks: int) -> list[int]:
    """The blocks of an RDD that Spark has."""
    java: Any = spark.sparkContext._jvm
    manager = java.org.apache.spark.SparkEnv.get().blockManager()
    block = java.org.apache.spark.storage.RDDBlockId
    return [at for at in range(tasks) if manager.getStatus(block(number, at)).isDefined()]


@pytest.mark.full
@pytest.mark.covers("E46")
@pytest.mark.parametrize(
    ("kept", "few"),
    [
        ("all", True),
        ("some", False),
        ("lost", False),
        *(pytest.param(*one, marks=pytest.mark.full) for one in (("all", False), ("none", True))),
    ],
)
def test_dead_letters_that_are_not_kept_are_read_again(
    make: Make,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    made: list[one_pass.OnePass | None],
    kept: str,
    *,
    few: bool,
) -> None:
    for name in ("RECORDS_PER_TASK", "_SHORT", "_MAX_PER_TASK"):
        monkeypatch.setattr(splitting, name, 50)
    # Some messages are skipped.
    live = make(replace(SEVERAL, stream={**STREAM, "transform": {"sql": SELECTED % "share", "fields": FIELDS}}))
    produce(live, 400)
    if not few:
        monkeypatch.setattr(one_pass, "_FEW", 5)
    (first,) = live.ingest()
    (rows,) = made
    assert messages_read(spark, rows) == 400

    tasks = rows.rows.getNumPartitions()
    most = {"all": one_pass._MAX_HELD, "none": 0, "some": rows.counts.dead_bytes.value() // tasks}
    monkeypatch.setattr(one_pass, "_MAX_HELD", most.get(kept, one_pass._MAX_HELD))

    def lose(step: Step) -> None:
        if step != Step.READ:
            return
        last = made[-1]
        assert last is not None
        assert (len(blocks_of(spark, last.held.id(), tasks)) == tasks) == (kept in ("all", "lost"))
        if kept == "lost":
            last.held.unpersist(True)

    (record,) = live.select(LaneKind.REPLAY, first.window.hull(), on_step=lose)
    assert ways(made) == [True, True]
    read = messages_read(spark, made[-1])
    assert {"all": read == 400, "some": 400 < read < 800, "none": read == 800, "lost": read == 800}[kept], read
    dead = live.independent.hbase(f"{live.name}_dead")
    assert len(dead.rows) == sum(tally.dead_letters for tally in record.tallies) > 20
    assert dead.twice() == 0
    report = audit(live.opened, live.new_run())
    assert report.clean, report.sentence()
    # Nothing stays in Spark's memory.
    numbers = [rows.held.id() for rows in made if rows is not None]
    until(lambda: not any(blocks_of(spark, number, tasks) for number in numbers), "Spark still keeps dead letters")


@pytest.mark.full
def test_dead_letters_of_a_program_that_was_killed_go_with_its_objects(make: Make, spark: SparkSession) -> None:
    live = make(SEVERAL)
    produce(live, 400)
    (record,) = live.ingest()

    number = int(written(spark, live, record).held.id())
    assert blocks_of(spark, number, 1) == [0]

    def gone() -> bool:
        gc.collect()
        spark.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]
        return not blocks_of(spark, number, 1)

    until(gone, "Spark still keeps dead letters")


def selecting(sql: str) -> Stream:
    return stream_of(
        scheme={"type": "delimited", "fields": {"id": "integer", "of": "string"}},
        transform={"sql": sql, "fields": {"twice": "integer", "of": "string"}},
        checks=[{"invalid_when": "id = 3", "reason": "three"}],
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {GIVEN_BACK}, id * 2 AS twice, upper(of) AS of FROM messages",
        f"SELECT {GIVEN_BACK}, y + 1 AS twice, of FROM (SELECT *, 10 * id AS y FROM messages WHERE id <> 2) WHERE y > 0",
        # What is left out is not computed.
        f"SELECT {GIVEN_BACK}, 10 div id AS twice, of FROM messages WHERE id <> 0",
        # A condition that is null passes nothing.
        f"SELECT {GIVEN_BACK}, id AS twice, of FROM messages WHERE nullif(id, 1) > 0",
        # Columns under the names of ours, which are dropped.
        f"SELECT {GIVEN_BACK}, id AS twice, of, 5 AS _outcome, true AS _tombstone FROM messages",
    ],
)
def test_a_query_of_single_rows_gives_what_the_transform_gives(spark: SparkSession, sql: str) -> None:
    stream = selecting(sql)
    given = outcomes.with_outcomes(messages_of(spark, [b"1,a", None, b"2,b", b"3,c", b"x,y", b"0,d", b",e"]), stream)
    assert stream.transform is not None
    found = row_by_row(given, stream.scheme.fields, stream.transform)
    assert found is not None
    columns = [*COORDINATE, OUTCOME, TOMBSTONE, REASON]
    fields = [F.when(F.col(OUTCOME) == 0, field(name)).alias(name) for name in stream.fields]
    ours, theirs = (
        frame.select(*columns, *fields).orderBy(*COORDINATE).collect()
        for frame in (found, transformed(given, stream.scheme.fields, stream.transform))
    )
    assert ours == theirs
    assert INDEX in found.columns


@pytest.mark.full
@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {GIVEN_BACK}, id AS twice, of FROM messages ORDER BY id",
        f"SELECT {GIVEN_BACK}, id AS twice, of FROM messages LIMIT 3",
        f"SELECT {GIVEN_BACK}, count(*) OVER (PARTITION BY of) AS twice, of FROM messages",
        f"SELECT {GIVEN_BACK}, (SELECT max(id) FROM messages) AS twice, of FROM messages",
        f"SELECT {GIVEN_BACK}, id AS twice, explode(split(of, '')) AS of FROM messages",
        f"SELECT {GIVEN_BACK}, cast(10 * rand() AS bigint) AS twice, of FROM messages",
        f"SELECT DISTINCT {GIVEN_BACK}, id AS twice, of FROM messages",
        f"SELECT {GIVEN_BACK}, id AS twice, of FROM messages UNION ALL SELECT {GIVEN_BACK}, id, of FROM messages",
        f"SELECT {GIVEN_BACK}, id AS twice, of FROM messages WHERE id IN (SELECT max(id) FROM messages)",
        # It does not give the coordinate back.
        "SELECT _topic, _incarnation, _partition, _offset + 0 AS _offset, _index, id AS twice, of FROM messages",
        "SELECT _topic, _incarnation, _index AS _partition, _offset, _partition AS _index, id AS twice, of FROM messages",
    ],
)
def test_other_queries_take_the_longer_way(spark: SparkSession, sql: str) -> None:
    stream = selecting(sql)
    given = outcomes.with_outcomes(messages_of(spark, [b"1,a"]), stream)
    assert stream.transform is not None
    assert row_by_row(given, stream.scheme.fields, stream.transform) is None
