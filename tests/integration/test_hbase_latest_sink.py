"""The sink `hbase_latest`: of each key the value of its newest message, whatever was written last."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import happybase
import pytest

from tests.support.command_line import asked
from tests.support.cuts import Cut, crash, cut_after, cuts, read_by
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS, Example, Fields, Place
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
from tidemark.errors import OwnedByAnother, WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.runs.windows import lanes
from tidemark.sinks.hbase.keyed_rows import encode_cell
from tidemark.sinks.hbase.latest.rows import ValueVersion, qualifier, row_key
from tidemark.sinks.hbase.latest.table import LatestInHBase, SteadyValues, latest_table
from tidemark.sinks.stored_rows import Mark, StoredRow
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

KEYS = {"cdn": ["host", "method"], "orders": "customer"}


def table_of(live: LiveStream) -> str:
    return f"{live.name}_latest"


def with_sink(live: LiveStream, *, first: bool = False) -> None:
    """Give the stream the sink, besides its others."""
    mine = {"type": "hbase_latest", "table": table_of(live), "key": KEYS[live.example.name], "regions": 2}
    others = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    live.rewrite(sinks=[mine, *others] if first else [*others, mine])


def latest(live: LiveStream) -> LatestInHBase:
    return latest_table(live.opened.connections, "hbase_default", table_of(live))


def newest(live: LiveStream) -> list[StoredRow]:
    return list(SteadyValues.of(live.opened.book, latest(live), "hbase_latest").newest())


def by_oracle(live: LiveStream) -> dict[tuple[Any, ...], tuple[Place, Fields]]:
    """Per topic and key the row with the highest offset, of what the stream has committed: partitions were never added."""
    key = KEYS[live.example.name]
    names = [key] if isinstance(key, str) else key
    found: dict[tuple[Any, ...], tuple[Place, Fields]] = {}
    rows = live.expected().rows
    for place in sorted(rows, key=lambda place: (place[0], place[2], place[1])):
        found[place[0], *(rows[place].get(name) for name in names)] = place, rows[place]
    return found


def assert_newest(live: LiveStream) -> None:
    wanted = by_oracle(live)
    found = newest(live)
    places = [(row.place.partition.topic, row.place.partition.partition, row.place.offset, 0) for row in found]
    texts = [{name: value.decode() for name, value in row.fields.items()} for row in found]
    assert dict(zip(places, texts, strict=True)) == dict(wanted.values())
    assert len(found) == len(wanted)
    assert all(row.mark.tombstone == (not row.fields) for row in found)


@pytest.mark.full
def test_the_newest_value_of_each_key(make: Make, example: Example, ledger: str, spark: Any) -> None:
    live = make(example, ledger=LEDGERS[ledger])
    with_sink(live)
    live.produce(300)
    live.ingest()
    assert_newest(live)
    live.produce(90)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 30)) | live.ranges(-1, 2, (5, 6)))
    assert_newest(live)
    live.assert_exactly_what_was_read()

    # Spark's reader and the command line give the same, and the audit finds every message.
    wanted = {place for place, _ in by_oracle(live).values()}
    frame = results(spark, live.opened, "hbase_latest")
    assert {(row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in frame.collect()} == wanted
    assert dict(frame.dtypes) == {**dict(results(spark, live.opened, "hbase").dtypes)}
    shown = asked("results", str(live.file), "--sink", "hbase_latest", "--limit", "1000")
    assert {one["coordinate"] for one in shown} == {f"{place[0]}/{place[1]}@{place[2]}" for place in wanted}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert [(place.name, place.missing, place.debris) for place in report.places][2] == ("hbase_latest", 0, 0)

    # A table has the key that it was made with, and one owner.
    table = latest(live)
    with pytest.raises(WrongUse, match=r"was made with key .*, the stream file says other"):
        table.prepare(live.name, report_ledger(live), ["other"])
    with pytest.raises(OwnedByAnother, match=f"belongs to stream {live.name}"):
        table.prepare("another", report_ledger(live), ["other"])


def report_ledger(live: LiveStream) -> str:
    found = live.opened.book.register()
    assert found is not None
    return found[1].ledger


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), cuts(3), ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_leaves_values_that_do_not_count(live: LiveStream, step: Step, times: int) -> None:
    with_sink(live, first=times == 1)
    live.produce(120)
    live.ingest()
    live.produce(120)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step, times))
    # What is on top does not count, or all of it does; the value below is found.
    assert_newest(live)
    live.produce(60)
    live.ingest(run)
    live.ingest()
    assert read_by([window.record for window in live.opened.book.committed()]) == 300
    assert_newest(live)
    live.assert_exactly_what_was_read()


class Keyed:
    """A stream of keys and values, in places that the test says."""

    def __init__(self, live: LiveStream) -> None:
        self.live = live
        self.rewrite()

    def rewrite(self, **changes: Any) -> None:
        sink = {"type": "hbase_latest", "table": table_of(self.live), "key": "key"}
        source = {"on_recreated": "accept", **changes.pop("source", {})}
        self.live.rewrite(
            **{"scheme": {"type": "key_value"}, "checks": [], "sinks": [sink], "source": source, **changes}
        )

    def send(self, partition: int, *messages: tuple[str, str | None]) -> None:
        topic = self.live.topics[0]
        self.live.kafka.send(
            (topic, partition, key.encode(), value if value is None else value.encode()) for key, value in messages
        )

    def values(self) -> dict[str, str | None]:
        """What the reader gives: a key to its value, None for a tombstone."""
        return {
            row.fields["key"].decode(): None if row.mark.tombstone else row.fields["value"].decode()
            for row in newest(self.live)
        }

    def generation(self, key: str) -> int:
        (found,) = [row for row in newest(self.live) if row.fields["key"] == key.encode()]
        return found.mark.generation

    def on_top(self) -> dict[str, str | None]:
        """What somebody sees who knows nothing of Tidemark but that the newest timestamp is on top."""
        connection = happybase.Connection("127.0.0.1", self.live.site.port("thrift"))
        found = {}
        for row, cells in connection.table(table_of(self.live)).scan(
            row_stop=b"\xff", columns=[b"d"], include_timestamp=True
        ):
            cell, _ = max(cells.values(), key=lambda one: one[1])
            key = row[2 + row[1] + 5 :].decode()
            found[key] = cell.rpartition(b"5:value")[2].partition(b":")[2].decode() if b"5:value" in cell else None
        connection.close()
        return found


@pytest.mark.covers("N9", "E42")
def test_old_messages_never_hide_newer_state(make: Make, ledger: str) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    keyed, topic = Keyed(live), live.topics[0]
    keyed.send(0, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1"))
    live.ingest()
    state: dict[str, str | None] = {"a": "2", "b": None, "c": "1"}
    assert keyed.values() == keyed.on_top() == state

    # A late replay of the oldest, under a tombstone too.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 2)))
    assert keyed.values() == keyed.on_top() == state
    # A tombstone is a value, and nothing is deleted: what a major compaction leaves is the same.
    compact(live)
    assert keyed.values() == keyed.on_top() == state
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 3)))
    compact(live)
    assert keyed.values() == keyed.on_top() == state

    # Partitions are added and a key moves: its new messages have lower offsets, and are newer.
    live.kafka.admin.create_partitions({topic: 6})
    keyed.send(5, ("a", "3"))
    keyed.send(0, ("c", "2"))
    live.ingest()
    state = {"a": "3", "b": None, "c": "2"}
    assert keyed.values() == keyed.on_top() == state
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 6)))
    assert keyed.values() == keyed.on_top() == state

    # A topic that was recreated begins at offset 0 again.
    live.kafka.recreate(topic, 4)
    keyed.send(0, ("b", "9"))
    live.ingest()
    state["b"] = "9"
    assert keyed.values() == keyed.on_top() == state
    assert audit(live.opened, "audit").clean


@pytest.mark.full
def test_a_replay_that_is_pending_and_one_that_is_given_up(make: Make, ledger: str) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    keyed, topic = Keyed(live), live.topics[0]
    keyed.send(0, ("a", "1"), ("b", "1"), ("a", "2"))
    (first,) = live.ingest()
    # Written, and not committed: the older value counts, and does not lie on top.
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (2, 3)), run, on_step=cut_after(Step.SINK_STORED))
    assert keyed.generation("a") == first.attempt.generation
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    assert protocol.abandon(live.opened.book, lane, "a test", take_over=True) is not None
    assert keyed.generation("a") == first.attempt.generation

    # The same lane again, which writes over neither.
    pending = lanes.plan_lane(live.opened, lane, run)
    assert pending is not None
    (again,) = process_windows(live.opened, lane, pending.window.seq, run)
    assert keyed.generation("a") == again.attempt.generation
    ordinals = (first.attempt.ordinal, again.attempt.ordinal)
    assert ordinals == (0, 2)

    # Attempts that were paused wake up: more debris than is read at once, above and below what counts.
    late = [
        (
            row_key(topic, [b"a"]),
            qualifier(first.window.ranges[0].at, 0),
            ValueVersion(1, 2, ordinal).encode(),
            cell(ordinal),
        )
        for ordinal in (1, *range(3, 9))
    ]
    latest(live).write(late)
    assert keyed.values() == {"a": "2", "b": "1"}
    assert keyed.generation("a") == again.attempt.generation
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert report.places[0].debris == 6

    # What is no longer valid loses its place to the message before it.
    keyed.rewrite(checks=[{"invalid_when": "value = '2'", "reason": "two"}])
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (2, 3)))
    assert keyed.values() == {"a": "1", "b": "1"}
    assert audit(live.opened, "audit").clean


@pytest.mark.covers("N27")
def test_an_erased_value_is_in_no_cell(make: Make) -> None:
    """The value before it is the newest again."""
    live = make(CDN)
    with_sink(live)
    line = b'1.2.3.4 - - [21/Nov/2026:07:10:00 +0000] "GET http://h/a HTTP/1.1" 200 5 0.1'
    live.kafka.send((live.topics[0], 0, None, line) for _ in range(5))
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (4, 5)))
    assert [row.place.offset for row in newest(live)] == [4]
    done = asked("erase", "--yes", str(live.file), "--records", f"{live.topics[0]}/0@4", "--reason", "request 4711")
    assert {one["remains"] for one in done["places"] if one["name"] == "hbase_latest"} == {""}
    assert [row.place.offset for row in newest(live)] == [3]
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    table = connection.table(table_of(live))
    found = set()
    for key, columns in table.scan():
        for name in columns if not key.startswith(b"\xff\xff") else ():
            cells = table.cells(key, name, versions=99, include_timestamp=True)
            found |= {ValueVersion.decode(at).offset for _, at in cells}
    connection.close()
    assert found == {0, 1, 2, 3}


def cell(ordinal: int) -> bytes:
    # Of generations below and above all that the ledger knows.
    generation = 5 if ordinal == 1 else 90_000_000_000_000 + ordinal
    return encode_cell(Mark(generation, 1, "replay-x", 1), [("key", b"a"), ("value", b"late")])


def compact(live: LiveStream) -> None:
    """Have HBase write what it has in memory to files, and all of them made into one, in which nothing deleted is left.

    It does so by itself when a region is opened with three files; what it is asked for through Thrift it may leave undone.
    """
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"), timeout=60_000)
    table = table_of(live)
    filler = connection.table(table)
    before: set[Path] = set()
    deadline = time.monotonic() + 120
    while not before or before & _files(live):
        assert time.monotonic() < deadline
        filler.put(b"\xff\xfffiller", {b"d:": b""})
        connection.disable_table(table)
        connection.enable_table(table)
        before = before or _files(live)
    connection.close()


def _files(live: LiveStream) -> set[Path]:
    """The files of the table's values; those that were compacted away go when the region is closed."""
    return set(live.site.folder("hbase", "data").glob(f"data/default/{table_of(live)}/*/d/*"))
