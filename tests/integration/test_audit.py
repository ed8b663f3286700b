"""The audit finds what was done to the results behind Tidemark's back, and names it; a replay repairs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kafka import KafkaProducer

from tests.jobs.misbehaving_job import MisbehavingSink, in_several_tasks, says_done_too_early
from tests.support.damage import delete_rows, place, rows_at
from tests.support.live_streams import RAW, LiveStream, Make
from tests.support.oracle import CDN, Fields, Place
from tidemark.audit import repair
from tidemark.audit.levels import Level
from tidemark.audit.repair import verdict
from tidemark.audit.report import AuditReport
from tidemark.cli.commands.results import read_rows, readable
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.ledger import selections
from tidemark.ledger.codec import decode
from tidemark.ledger.ledger import record_key
from tidemark.ledger.records import LaneKind
from tidemark.offsets.hashing import content_hash, coordinate_hash, row_hash
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.shares import Share
from tidemark.runs.auditing import repair_of
from tidemark.runs.requests import answers, selecting
from tidemark.sinks.hbase.rows import MARK, PartitionKeys
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.stored_rows import Mark
from tidemark.sinks.values import value_of
from tidemark.spark.audit import differences
from tidemark.spark.jobs import window as window_job
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.reading import read_offsets
from tidemark.spark.sinks import make_sinks

pytestmark = pytest.mark.usefixtures("spark")


def audited(
    live: LiveStream, within: RangeSet | None = None, level: Level = Level.FULL, share: Share | None = None
) -> AuditReport:
    return audit(live.opened, live.new_run(), within, level, share)


def digests(live: LiveStream, rows: dict[Place, Fields]) -> dict[tuple[str, int], str]:
    """The content digest of each partition, from its rows alone."""
    found: dict[tuple[str, int], int] = {}
    for (topic, partition, offset, index), fields in rows.items():
        row = row_hash(coordinate_hash(TopicPartition(topic, partition), offset), index)
        kinds = live.opened.fields
        columns = [value_of(kinds[name], fields[name].encode() if name in fields else None) for name in live.fields]
        found[topic, partition] = found.get((topic, partition), 0) ^ content_hash(row, columns)
    return {at: f"{digest:016x}" for at, digest in found.items()}


@pytest.mark.full
@pytest.mark.covers("N6")
def test_a_clean_stream(live: LiveStream) -> None:
    live.produce(300)
    (record,) = live.ingest()
    report = audited(live)
    wanted = live.expected()
    # What the ledger keeps of each range, computed again from Kafka and from the sink.
    kept = {(tally.topic, tally.partition): tally.content for tally in record.tallies}
    assert kept == digests(live, wanted.rows) == digests(live, live.independent.hbase().by_place())
    assert report.clean, report.sentence()
    assert (report.expected, report.stored, report.dead_letters) == (300, len(wanted.rows), len(wanted.dead))
    assert "missing 0, different 0, extra 0, twice 0, debris 0" in report.sentence()
    assert report.findings is None
    assert {one.partition: (one.start, one.position) for one in report.coverage} == {
        f"{topic}/{partition}": (0, offset) for (topic, partition), offset in live.positions().items()
    }


@pytest.mark.covers("N6", "N10", "N31")
def test_missing_rows_are_named_and_a_replay_of_the_findings_repairs_them(live: LiveStream) -> None:
    live.produce(300)
    live.ingest()
    gone = rows_at(live, 0, 1, 4)
    delete_rows(live, live.name, 0, 1, *gone)
    # A share of a quarter has the block with the damage for one of four seeds, and says no more of the others.
    covered = live.opened.ledger.authority().covered()
    shares = [audited(live, share=Share("25%", seed)) for seed in range(2)]
    for seed, found in enumerate(shares):
        looked_at, _ = Share("25%", seed).of(covered, Level.FULL.piece)
        hit = (TopicPartition(live.topics[0], 1), gone[0]) in looked_at
        assert (place(found, "hbase").missing, place(found, "parquet").missing) == (4 if hit else 0, 0)
        assert found.expected == looked_at.count() < covered.count()
        assert found.sentence().startswith(f"a share of 25% with seed {seed}: {looked_at.count()} of 300 offsets; ")
        assert [one.covered for one in found.coverage] == [covered.count(at) for at in covered.partitions]
    report = audited(live)
    names = tuple(f"{live.topics[0]}/1@{offset}" for offset in gone)
    assert place(report, "hbase").missing_at == names
    assert (place(report, "hbase").missing, place(report, "parquet").missing) == (4, 0)
    assert not report.clean
    assert report.findings is not None
    live.select(LaneKind.REPLAY, live.opened.ledger.selection(report.findings))
    after = audited(live)
    assert after.clean, after.sentence()
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("N10")
def test_a_repair_replays_what_kafka_still_has_and_names_the_rest(live: LiveStream) -> None:
    live.produce(300)
    live.ingest()
    gone = {partition: rows_at(live, 0, partition, 2) for partition in (0, 1)}
    for partition, offsets in gone.items():
        delete_rows(live, live.name, 0, partition, *offsets)
    report = audited(live)
    expired = gone[1][0]
    live.kafka.delete_records(live.topics[0], 1, expired + 1)

    planned = repair_of(live.opened, report)
    assert planned is not None
    lost = live.ranges(0, 1, (expired, expired + 1))
    assert planned.replay.left_out == {answers.EXPIRED: lost}
    assert planned.replay.ranges == planned.findings - lost
    assert planned.sentence().endswith(f"; 1 findings cannot be replayed: {answers.EXPIRED}: {next(iter(lost))}")
    live.select(LaneKind.REPLAY, selecting.stored_selection(live.opened, planned.selection))
    after = audited(live, selecting.stored_selection(live.opened, planned.audit_after))
    assert not any(one.missing for one in after.places)
    assert not verdict(report, after).clean

    # Nothing of the findings is left to replay.
    live.kafka.delete_records(live.topics[0], 0, max(gone[0]) + 1)
    live.kafka.delete_records(live.topics[0], 1, max(gone[1]) + 1)
    planned = repair_of(live.opened, report)
    assert planned is not None
    assert (planned.replay.ranges, planned.selection, planned.replay.left_out) == (
        RangeSet(),
        "",
        {answers.EXPIRED: planned.findings},
    )


@pytest.mark.full
@pytest.mark.covers("N6", "N10", "N20")
def test_the_sinks_are_audited_without_reading_kafka(live: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the windows' tallies: a block that differs is named, and a replay of it repairs the results."""
    live.produce(300)
    (record,) = live.ingest()
    gone = rows_at(live, 0, 1, 2)
    delete_rows(live, live.name, 0, 1, *gone)

    asked: list[RangeSet] = []

    def read(spark: object, cluster: object, isolation: str, ranges: RangeSet, *more: Any, **others: Any) -> Any:
        asked.append(ranges)
        return read_offsets(spark, cluster, isolation, ranges, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr("tidemark.spark.jobs.expected_rows.read_offsets", read)
    report = audited(live, level=Level.SINKS)
    assert not any(asked)
    assert (report.level, report.by_tallies, report.unproven) == (Level.SINKS, 300, 0)
    at = TopicPartition(live.topics[0], 1)
    (block,) = place(report, "hbase").blocks_at
    assert (block.expected - block.found, block.window) == (2, "ingest/1")
    assert (place(report, "hbase").blocks, place(report, "parquet").blocks, report.gone) == (1, 0, 0)
    assert report.sentence().startswith("sinks: 300 of 300 offsets compared with the tallies of their blocks")
    # What Kafka still has of the block can be replayed.
    planned = repair_of(live.opened, report)
    assert planned is not None
    assert planned.findings == record.window.hull().only([at])
    assert all((at, offset) in planned.replay.all for offset in gone)
    live.select(LaneKind.REPLAY, planned.findings)
    # The other windows' tallies hold for the rest, and the replay's for what it has read.
    again = audited(live, level=Level.SINKS)
    assert (again.clean, again.by_tallies) == (True, 300), again.sentence()
    after = audited(live, planned.replay.all)
    assert verdict(report, after).clean
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_a_block_that_differs_is_a_finding_as_a_whole(live: LiveStream) -> None:
    """Also when only some of it was asked for: nobody knows which of its rows is wrong."""
    live.produce(300)
    (record,) = live.ingest()
    some = live.ranges(0, 1, (0, 2))
    gone = max(rows_at(live, 0, 1, 1_000))
    assert gone >= 2
    delete_rows(live, live.name, 0, 1, gone)
    report = audited(live, some, Level.SINKS)
    assert (report.clean, report.by_tallies, report.gone, report.not_compared) == (False, 2, 0, ())
    planned = repair_of(live.opened, report)
    assert planned is not None
    assert planned.findings == record.window.hull().only(some.partitions)


@pytest.mark.full
@pytest.mark.covers("N6")
def test_changed_and_extra_rows_are_named(live: LiveStream) -> None:
    live.produce(300)
    live.ingest()
    last = live.head().last
    assert last is not None
    changed, *_ = rows_at(live, 0, 0, 1)
    at = TopicPartition(live.topics[0], 0)
    table = stream_table(live.opened, "hbase_default", live.name)
    name = live.name.encode()
    # Behind Tidemark's back, but with its timestamp: one cell changed, and one row that no message gave.
    cell = Mutation(column=b"d:" + live.fields[1].encode(), value=b"someone else's")
    row = BatchMutation(row=PartitionKeys(at).key(changed, 0), mutations=[cell])
    table._gateway.once(lambda client: client.mutateRowsTs(name, [row], last.attempt.generation, {}))
    mark = Mark(last.attempt.generation, 5, "ingest", 1)
    table.write_cells([(PartitionKeys(at).key(changed, 9), MARK, mark.encode())], last.attempt.generation)
    report = audited(live)
    assert place(report, "hbase").different_at == (f"{live.topics[0]}/0@{changed}",)
    assert place(report, "hbase").extra_at == (f"{live.topics[0]}/0@{changed}",)
    assert report.findings is not None
    live.select(LaneKind.REPLAY, live.opened.ledger.selection(report.findings))
    assert audited(live).clean
    assert live.independent.hbase().debris == 0


@pytest.mark.full
@pytest.mark.covers("N6", "N10")
def test_dead_letters_are_audited_too(live: LiveStream) -> None:
    live.produce(600)
    live.ingest()
    topic, partition, offset = min(live.expected().dead)
    delete_rows(live, f"{live.name}_dead", live.topics.index(topic), partition, offset)
    report = audited(live)
    assert place(report, "dead letters").missing_at == (f"{topic}/{partition}@{offset}",)
    assert report.findings is not None
    live.select(LaneKind.REPLAY, live.opened.ledger.selection(report.findings))
    assert audited(live).clean


@pytest.mark.covers("E50")
def test_late_messages_and_the_borders_of_windows_are_no_differences(make: Make) -> None:
    """The times of messages run backwards over the windows, from half an hour ahead to five days ago."""
    live = make(CDN, **RAW)
    ahead = live.opened.ledger.clock() + 1_800_000
    for first in (0, 20):
        producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
        for number in range(first, first + 20):
            at = ahead - number * 3 * 3_600_000
            producer.send(live.topics[0], b"%d" % number, partition=number % 2, timestamp_ms=at).get(timeout=30)
        producer.close()
        live.ingest()
    report = audited(live)
    assert (report.clean, report.expected) == (True, 40), report.sentence()
    newest, oldest = (live.opened.ledger.record("ingest", seq)[1].tallies[0] for seq in (1, 2))  # type: ignore[index]
    assert oldest.last_timestamp < newest.first_timestamp


def parquet_folder(live: LiveStream) -> Path:
    last = live.head().last
    assert last is not None
    sink = next(one for one in last.receipt.sinks if one.type == "parquet")
    return Path(sink.place["folder"].removeprefix("file://"))


@pytest.mark.full
@pytest.mark.covers("N6")
def test_a_row_that_is_there_twice_and_one_that_is_missing_are_seen_by_audit_and_by_an_independent_reader(
    live: LiveStream,
) -> None:
    live.produce(240)
    live.ingest()
    folder = parquet_folder(live)
    assert live.independent.parquet(live.fields).twice() == 0
    file = next(one for one in sorted(folder.glob("part-*.parquet")) if pq.read_metadata(one).num_rows > 2)
    table = pq.read_table(file)
    # One row once more, and another one no more; times as Spark writes them.
    pq.write_table(table.slice(0, 1), folder / "part-planted.parquet", use_deprecated_int96_timestamps=True)
    file.unlink()
    (folder / f".{file.name}.crc").unlink()
    pq.write_table(table.slice(0, table.num_rows - 1), file, use_deprecated_int96_timestamps=True)
    found = live.independent.parquet(live.fields)
    wanted = live.expected().rows
    assert found.twice() == 1
    assert len(wanted.keys() - found.by_place().keys()) == 1
    report = audited(live)
    assert (place(report, "parquet").twice, place(report, "parquet").missing) == (1, 1)
    first, last = table.slice(0, 1).to_pylist()[0], table.slice(table.num_rows - 1, 1).to_pylist()[0]
    assert place(report, "parquet").twice_at == (f"{first['_topic']}/{first['_partition']}@{first['_offset']}",)
    assert place(report, "parquet").missing_at == (f"{last['_topic']}/{last['_partition']}@{last['_offset']}",)


@pytest.mark.full
def test_a_missing_row_in_hbase_is_seen_by_the_independent_reader(live: LiveStream) -> None:
    live.produce(120)
    live.ingest()
    (gone,) = rows_at(live, 0, 2, 1)
    delete_rows(live, live.name, 0, 2, gone)
    found = live.independent.hbase()
    assert live.expected().rows.keys() - found.by_place().keys() == {(live.topics[0], 2, gone, 0)}


@pytest.mark.full
def test_a_record_that_was_removed_or_changed_is_found(make: Make) -> None:
    live = make(CDN)
    for _ in range(3):
        live.produce(20)
        live.ingest()
    store = live.opened.ledger.store
    second = store.read(record_key("ingest", 2))
    assert second is not None
    changed = second.replace(b'"run":"test', b'"run":"best')
    assert store.swap(record_key("ingest", 2), second, changed)
    report = audited(live)
    assert report.ledger_problems == ("lane ingest: window 2 is not the one that window 3 followed: one was changed",)
    assert not report.clean


@pytest.mark.full
def test_the_audit_counts_debris_and_is_clean_all_the_same(make: Make) -> None:
    live = make(CDN)
    live.produce(200)
    live.ingest()
    at = TopicPartition(live.topics[0], 0)
    table = stream_table(live.opened, "hbase_default", live.name)
    table.write_cells([(PartitionKeys(at).key(3, 7), MARK, Mark(5, 1, "ingest", 1).encode())], 5)
    report = audited(live)
    assert (place(report, "hbase").debris, report.clean) == (1, True)


@pytest.mark.full
def test_an_audit_of_some_offsets_looks_only_at_those(live: LiveStream) -> None:
    live.produce(300)
    live.ingest()
    gone = rows_at(live, 0, 1, 2)
    delete_rows(live, live.name, 0, 1, *gone)
    elsewhere = audited(live, live.ranges(0, 0, (0, 20)))
    assert (elsewhere.expected, elsewhere.clean) == (20, True)
    here = audited(live, live.ranges(0, 1, (gone[0], gone[0] + 1)))
    assert (here.expected, place(here, "hbase").missing) == (1, 1)


@pytest.mark.full
def test_findings_that_one_value_of_the_ledger_does_not_hold_are_replayed_at_once(
    live: LiveStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.produce(300)
    live.ingest()
    gone = rows_at(live, 0, 1, 60)[::2]
    delete_rows(live, live.name, 0, 1, *gone)
    opened, run = live.opened, live.new_run()
    monkeypatch.setattr(selections, "PIECE_BYTES", 150)
    report = audit(opened, run)
    assert report.findings is not None
    assert (report.findings.offsets, place(report, "hbase").missing) == (len(gone), len(gone))
    stored = decode(live.opened.ledger.report(run) or b"", AuditReport, run)
    assert (stored.findings, stored.clean) == (report.findings, False)
    live.select(LaneKind.REPLAY, live.opened.ledger.selection(report.findings))
    assert audited(live).clean


@pytest.mark.full
def test_more_differences_than_findings_have_room_for(live: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    live.produce(300)
    live.ingest()
    gone = rows_at(live, 0, 1, 6)
    delete_rows(live, live.name, 0, 1, *gone)
    for module in (differences, repair):
        monkeypatch.setattr(module, "MAX_FINDINGS", 4)
    report = audited(live)
    assert report.findings is not None
    at = TopicPartition(live.topics[0], 1)
    first = RangeSet(OffsetRange(at, offset, offset + 1) for offset in gone[:4])
    assert (place(report, "hbase").missing, live.opened.ledger.selection(report.findings)) == (6, first)
    assert [one for one in repair.beyond_repair(report) if one.startswith("some of 4 differences or more")]
    live.select(LaneKind.REPLAY, first)
    rest = audited(live)
    assert rest.findings is not None
    assert live.opened.ledger.selection(rest.findings).count() == 2


@pytest.mark.full
def test_what_kafka_has_forgotten_and_a_replay_has_taken_apart_is_unproven(live: LiveStream) -> None:
    live.produce(300)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 40)))
    gone = next(one for one in rows_at(live, 0, 0, 50) if 40 <= one < 48)
    live.kafka.delete_records(live.topics[0], 0, 48)
    report = audited(live)
    assert report.clean, report.sentence()
    assert (report.expected, report.by_tallies, report.unproven) == (252, 48, 0)
    # A row of what the replay did not take: it may as well be that the replay has stored one message less.
    delete_rows(live, live.name, 0, 0, gone)
    report = audited(live)
    assert report.clean, report.sentence()
    assert (report.by_tallies, report.unproven) == (40, 8)
    assert "48 offsets are no longer in Kafka, 40 of them were compared" in report.sentence()


@pytest.mark.full
def test_a_folder_of_results_that_is_gone_is_so_many_missing_rows(make: Make) -> None:
    live = make(CDN)
    live.produce(60)
    live.ingest()
    shutil.rmtree(parquet_folder(live))
    report = audited(live)
    assert place(report, "parquet").missing == len(live.expected().rows)


@pytest.mark.full
@pytest.mark.covers("G1")
def test_what_was_acknowledged_and_is_not_there_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that acknowledges rows and loses them gets its window committed: only who looks at what is there can tell."""
    live = make(CDN)
    live.produce(240)
    with monkeypatch.context() as patched:
        lying = [MisbehavingSink(one, says_done_too_early) for one in make_sinks(live.opened)]
        patched.setattr(window_job, "make_sinks", lambda opened: lying)
        in_several_tasks(patched)
        live.ingest()
    assert live.head().seq == 1
    wanted = live.expected().rows
    lost = set(wanted) - set(live.independent.hbase().by_place())
    assert 0 < len(lost) < len(wanted)
    report = audited(live)
    assert [(one.name, one.missing, one.extra, one.different) for one in report.places] == [
        ("hbase", len(lost), 0, 0),
        ("parquet", 0, 0, 0),
        ("dead letters", 0, 0, 0),
    ]
    assert report.findings is not None
    named = live.opened.ledger.selection(report.findings)
    assert {
        (one.partition.topic, one.partition.partition, at) for one in named for at in range(one.start, one.until)
    } == {place[:3] for place in lost}
    # A replay of what it names puts them there.
    live.select(LaneKind.REPLAY, named)
    live.assert_exactly_what_was_read()
    report = audited(live)
    assert report.clean, report.sentence()


@pytest.mark.full
def test_a_table_that_was_named_after_the_windows_is_so_many_missing_rows(make: Make) -> None:
    """It is made by the first window that writes to it."""
    live = make(CDN)
    live.produce(60)
    live.ingest()
    more = {"type": "hbase", "name": "more", "table": f"{live.name}_more"}
    live.rewrite(sinks=[{"type": "hbase", "table": live.name}, more])
    assert list(read_rows(live.opened, readable(live.opened, "more"), 10)) == []
    report = audited(live)
    assert (place(report, "hbase").missing, place(report, "more").missing) == (0, len(live.expected().rows))
