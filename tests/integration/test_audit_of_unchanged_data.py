"""An audit computes rows again where messages, code or stream file may have changed, and finds the same everywhere else."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from msgspec import structs
from pyspark.sql import SparkSession

from tests.support.damage import delete_rows, place, rows_at
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, ORDERS, Example
from tests.support.transactions import transaction
from tidemark.audit.levels import Level
from tidemark.audit.report import AuditReport
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.ledger.ledger import Ledger, blocks_key
from tidemark.ledger.records import JobProgress, LaneKind
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.sinks.hbase.rows import PartitionKeys
from tidemark.sinks.hbase.table import ResultTable
from tidemark.spark.jobs import expected_rows
from tidemark.spark.jobs.audit import _most_dead_letters, audit
from tidemark.spark.jobs.compare import compare
from tidemark.spark.readers.places import hbase_places

pytestmark = pytest.mark.usefixtures("spark")

DRAWN: dict[str, Any] = {
    "source": {},
    "scheme": {
        "type": "function",
        "function": "tests.support.own_functions:drawn",
        "fields": {"number": "integer", "word": "string"},
    },
    "sinks": [{"type": "hbase", "table": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}


# What becomes of a message, which differs each time.
ANY: Any = None


def audited(live: LiveStream, within: RangeSet | None = None, level: Level = Level.FULL) -> AuditReport:
    return audit(live.opened, live.new_run(), within, level)


def both(live: LiveStream) -> AuditReport:
    """The report of `full`, after `recompute` has found the same."""
    found, again = audited(live), audited(live, level=Level.RECOMPUTE)
    assert again.unchanged == 0
    same = {"run": found.run, "at": found.at, "level": found.level, "unchanged": found.unchanged}
    assert structs.replace(again, **same) == found
    return found


def change_dead_letter(live: LiveStream, offset: int) -> None:
    """Another reason in a dead letter, behind Tidemark's back: its mark still says the digest of the old one."""
    at = TopicPartition(live.topics[0], 0)
    generation = live.opened.ledger.authority().of(at, offset)
    table = live.opened.dead_letter_table()
    assert isinstance(table, ResultTable)
    row = BatchMutation(
        row=PartitionKeys(at).key(offset, 0), mutations=[Mutation(column=b"d:reason", value=b"none at all")]
    )
    name = live.opened.stream.dead_letters.place(live.opened.connections)["table"].encode()
    table._gateway.once(lambda client: client.mutateRowsTs(name, [row], generation, {}))


@pytest.mark.full
@pytest.mark.covers("N6")
def test_the_same_is_found_with_and_without_computing_rows_again(make: Make) -> None:
    live = make(ORDERS)
    for _ in range(3):
        live.produce(200)
        live.ingest()
    clean = both(live)
    assert (clean.clean, clean.expected, clean.unchanged) == (True, 600, 600), clean.sentence()
    assert clean.sentence().endswith(
        "; 600 messages are as they were read: their rows were compared with tallies of the windows"
    )
    assert clean.dead_letters > 0

    (gone,) = rows_at(live, 0, 1, 1)
    delete_rows(live, live.name, 0, 1, gone)
    dead = min(offset for topic, partition, offset in live.expected().dead if (topic, partition) == (live.topics[0], 0))
    change_dead_letter(live, dead)
    broken = both(live)
    assert broken.unchanged == 600
    assert place(broken, "hbase").missing_at == (f"{live.topics[0]}/1@{gone}",)
    assert place(broken, "dead letters").different_at == (f"{live.topics[0]}/0@{dead}",)
    assert broken.findings is not None
    live.select(LaneKind.REPLAY, live.opened.ledger.selection(broken.findings))
    mended = both(live)
    # A newer window has taken some of what the older ones had counted.
    assert (mended.clean, mended.unchanged) == (True, 600), mended.sentence()


@pytest.mark.full
def test_a_job_notes_what_it_has_read_of_each_partition(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[JobProgress] = []
    note = Ledger.note_progress

    def noting(ledger: Ledger, progress: JobProgress) -> None:
        note(ledger, progress)
        noted.append(progress)

    monkeypatch.setattr(Ledger, "note_progress", noting)
    live = make(ORDERS)
    for _ in range(2):
        live.produce(200)
        live.ingest()
    whole = {f"{topic}/{number}": end for (topic, number), end in sorted(live.positions().items())}

    def read(run: str) -> JobProgress:
        """What was noted at the end of the step that reads."""
        assert live.opened.ledger.last_progress() == noted[-1]
        found = [one for one in noted if one.run == run and one.step.startswith("reading ")][-1]
        noted.clear()
        assert found.total == tuple(whole.items())
        return found

    # As they were read; and computed again, in one pass and on the longer way.
    for level in (Level.FULL, Level.RECOMPUTE):
        report = audited(live, level=level)
        assert report.unchanged == (400 if level is Level.FULL else 0)
        assert read(report.run).done == whole
    monkeypatch.setattr(expected_rows, "takes_one_pass", lambda stream: False)
    assert read(audited(live, level=Level.RECOMPUTE).run).done == whole
    run, everything = live.new_run(), live.opened.ledger.store_selection(live.opened.ledger.authority().covered())
    found = compare(live.opened, run, everything.digest)
    assert (found.messages, read(run).done) == (400, whole)


@pytest.mark.full
@pytest.mark.covers("N6")
def test_after_a_change_of_code_or_file_rows_are_computed_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    live = make(ORDERS)
    live.produce(300)
    live.ingest()
    with monkeypatch.context() as patched:
        patched.setenv("TIDEMARK_CODE_VERSION", "another")
        assert audited(live).unchanged == 0
    live.rewrite(description="Nothing of the rows has changed.")
    report = both(live)
    assert (report.clean, report.unchanged) == (True, 0)
    # What the file of today has read is taken from its tallies.
    live.produce(60)
    live.ingest()
    report = both(live)
    assert (report.clean, report.expected, report.unchanged) == (True, 360, 60)
    # A bug fix: what was read before it has other rows than today's code gives.
    live.rewrite(checks=[{"invalid_when": "amount < 50", "reason": "too little"}])
    report = both(live)
    assert (report.clean, report.unchanged) == (False, 0)
    assert place(report, "hbase").extra > 0
    assert place(report, "dead letters").missing > 0


@pytest.mark.full
@pytest.mark.covers("N6")
def test_contents_of_dead_letters_are_compared_where_rows_are_made(make: Make) -> None:
    """Beside tallies, which do not have them. The reason of a check is no other number of dead letters."""
    live = make(ORDERS)
    live.rewrite(checks=[{"invalid_when": "amount < 50", "reason": "too little"}])
    live.produce(300)
    live.ingest()
    live.rewrite(checks=[{"invalid_when": "amount < 50", "reason": "less than fifty"}])
    live.produce(60)
    live.ingest()
    report = both(live)
    assert (report.clean, report.unchanged) == (False, 60), report.sentence()
    assert place(report, "hbase").found == place(report, "hbase").expected
    assert place(report, "dead letters").different > 0


@pytest.mark.full
@pytest.mark.covers("N6")
def test_rows_of_another_table_are_always_computed_again(make: Make, spark: SparkSession, tmp_path: Path) -> None:
    """A table that a transform joins may have changed since."""
    prices = (tmp_path / "prices").as_uri()

    def write(factor: int) -> None:
        spark.createDataFrame([(factor,)], "factor int").write.mode("overwrite").parquet(prices)

    write(1)
    live = make(ORDERS)
    sql = f"SELECT m.* EXCEPT (amount), amount * factor AS amount FROM messages m JOIN parquet.`{prices}`"
    live.rewrite(transform={"sql": sql, "fields": live.opened.stream.fields})
    live.produce(60)
    live.ingest()
    assert both(live).clean
    write(2)
    report = both(live)
    # All but the tombstones, and an amount of 0.
    assert report.stored - 5 < place(report, "hbase").different < report.stored


@pytest.mark.full
@pytest.mark.covers("N6")
@pytest.mark.parametrize(
    ("condition", "unchanged"),
    [
        ("amount < 50", True),
        ("current_timestamp() < timestamp'2020-01-01'", False),
        ("date'Today' < date'2020-01-01'", False),
        ("cast(' now' AS timestamp) < timestamp'2020-01-01'", False),
    ],
)
def test_a_check_that_looks_beyond_its_message(make: Make, condition: str, unchanged: bool) -> None:
    live = make(ORDERS)
    live.rewrite(checks=[{"invalid_when": condition, "reason": "too little"}])
    live.produce(30)
    live.ingest()
    report = both(live)
    assert (report.clean, report.unchanged) == (True, 30 if unchanged else 0), report.sentence()


@pytest.mark.full
@pytest.mark.covers("N6")
def test_rows_of_a_function_are_always_computed_again(make: Make) -> None:
    """Nobody knows what a user's function does today."""
    live = make(Example("drawn", DRAWN, ("calls",), 1, lambda count, first: iter([(b"key", b"any")] * count), ANY))
    live.produce(5)
    live.ingest()
    report = audited(live)
    assert (report.unchanged, place(report, "hbase").different) == (0, 5)


@pytest.mark.full
@pytest.mark.covers("N6")
def test_offsets_that_kafka_has_deleted_and_a_part_of_all(make: Make) -> None:
    live = make(CDN)
    for _ in range(2):
        live.produce(400)
        live.ingest()
    live.kafka.delete_records(live.topics[0], 0, 30)
    report = both(live)
    assert report.clean, report.sentence()
    # Of partition 0, the first window is no longer there as a whole.
    assert (report.expected, report.unchanged, report.by_tallies) == (770, 700, 30)
    found = audited(live, live.ranges(0, 1, (0, 150)))
    assert (found.clean, found.expected, found.unchanged) == (True, 150, 100)


@pytest.mark.full
def test_partitions_without_dead_letters_hide_none_of_the_others(make: Make, spark: SparkSession) -> None:
    live = make(CDN)
    good = [value for _, value in live.example.generate(40, 0) if value and live.example.outcome(value).reason is None]
    for partition, values in enumerate((good[:9], [b"a", b"b"], good[9:18], [b"c", *good[18:]])):
        live.kafka.send((live.topics[0], partition, None, value) for value in values)
    live.ingest()
    # An audit would look a second time, and find them.
    table = live.opened.dead_letter_table()
    assert hbase_places(spark, live.opened.ledger, table, None, (), rows=3).count() == 3
    report = both(live)
    assert report.clean, report.sentence()
    (found,) = (place.found for place in report.places if place.name == "dead letters")
    assert report.dead_letters == found == 3


@pytest.mark.full
def test_dead_letters_are_not_taken_for_few_where_receipts_do_not_say_how_many(make: Make) -> None:
    """As those of windows that were committed before they were read."""
    live = make(CDN)
    live.produce(400)
    (record,) = live.ingest()
    view = live.opened.ledger.view()
    (window,) = view.windows
    covered = view.authority.covered()
    dead = sum(tally.dead_letters for tally in record.tallies)
    assert 0 < _most_dead_letters(view, covered) == dead < covered.count() == 400
    assert _most_dead_letters(view, live.ranges(0, 0, (0, 1))) == 1
    assert record.receipt is not None
    for receipt in (None, structs.replace(record.receipt, tallies=())):
        without = replace(window, record=structs.replace(record, receipt=receipt))
        assert _most_dead_letters(replace(view, windows=[without]), covered) == 400


@pytest.mark.full
@pytest.mark.covers("N6")
def test_tallies_that_the_ledger_has_lost_are_a_problem_of_the_ledger(make: Make) -> None:
    """Nothing else would say so before Kafka deletes the messages, when only the tallies could prove the rows."""
    live = make(CDN)
    # So many of one partition that it has two blocks.
    live.kafka.send((live.topics[0], 0, *message) for message in CDN.generate(11_000, 0))
    (record,) = live.ingest()
    assert audited(live).unchanged == 11_000
    store, key = live.opened.ledger.store, blocks_key(record.lane, record.seq, record.attempt)
    stored = store.read(key)
    assert stored is not None
    store.put(key, stored.replace(b"[", b" [", 1))
    report = audited(live)
    (problem,) = report.ledger_problems
    assert "is not what the receipt of window ingest/1 names: it was changed" in problem
    assert not report.clean
    # All else was computed again, and is right.
    assert (report.expected, report.unchanged, report.differences, report.findings) == (11_000, 0, 0, None)
    store.put(key, stored)
    assert audited(live).clean


@pytest.mark.full
@pytest.mark.covers("N3")
def test_offsets_without_a_message_are_explained_without_computing_rows(make: Make) -> None:
    live = make(CDN)
    with closing(KafkaProducer(bootstrap_servers=live.kafka.servers, transactional_id=live.name)) as producer:
        producer.init_transactions()
        transaction(live, producer, 10, end="commit")
        transaction(live, producer, 7, end="abort")
    live.kafka.wait_for_stable_end(live.topics[0], 0, 19)
    live.ingest()
    report = both(live)
    assert (report.clean, report.expected, report.unchanged) == (True, 10, 10), report.sentence()
    (gap,) = report.gaps
    assert (gap.offsets, gap.messages, gap.aborted, gap.markers, gap.unexplained) == (19, 10, 7, 2, 0)


@pytest.mark.full
@pytest.mark.covers("N6")
def test_dead_letters_that_were_redriven_beside_tallies_of_before(make: Make) -> None:
    """The tallies of the window that has read a message first say what today's code makes of it, whatever a redrive stored."""
    checks = [{"invalid_when": "amount < 50", "reason": "too little"}]
    live = make(ORDERS)
    live.rewrite(checks=checks)
    for _ in range(2):
        live.produce(200)
        live.ingest()

    def redriven() -> str:
        dead = redrive(live.opened, DeadLetterFilter("too little")).ranges
        first = next(iter(dead))
        live.select(LaneKind.REPLAY, RangeSet([replace(first, until=first.start + 1)]))
        return f"{first.partition}@{first.start}"

    # It is a dead letter again.
    again = redriven()
    report = both(live)
    assert (report.clean, report.unchanged) == (True, 400), report.sentence()
    # A fix of the stream file stores it. Of today's file is that redrive alone.
    live.rewrite(checks=[])
    assert redriven() == again
    assert both(live).unchanged == 1
    # With the file of before, today's code would not.
    live.rewrite(checks=checks)
    report = both(live)
    assert (report.clean, report.unchanged) == (False, 400), report.sentence()
    assert place(report, "hbase").extra_at == place(report, "dead letters").missing_at == (again,)
