"""The sink `hbase_latest`: of each key the values of its newest message, as any `get` of HBase shows them."""

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
from tidemark.sinks.hbase.keyed.table import KeyedTable, keyed_table
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")

KEYS = {"cdn": ["host", "method"], "orders": "customer"}


def table_of(live: LiveStream) -> str:
    return f"{live.name}_latest"


def with_sink(live: LiveStream, *, first: bool = False) -> None:
    """Give the stream the sink, besides its others."""
    mine = {
        "type": "hbase_latest",
        "table": table_of(live),
        "folder": table_of(live),
        "key": KEYS[live.example.name],
        "regions": 2,
    }
    others = [{"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}]
    live.rewrite(sinks=[mine, *others] if first else [*others, mine])


def latest(live: LiveStream) -> KeyedTable:
    return keyed_table(live.opened.connections, "hbase_default", table_of(live))


def newest(live: LiveStream) -> list[dict[str, Any]]:
    """As `tidemark results` gives them."""
    return asked("results", str(live.file), "--sink", "hbase_latest", "--limit", "1000")


def seen(live: LiveStream) -> dict[bytes, dict[str, str]]:
    """What HBase's own clients see: the cells of `d`, where null is an empty cell."""
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    rows = connection.table(table_of(live)).scan(row_stop=b"\x10", columns=[b"d"])
    found = {key: {column[2:].decode(): value.decode() for column, value in cells.items()} for key, cells in rows}
    connection.close()
    return found


def by_oracle(live: LiveStream) -> dict[tuple[Any, ...], tuple[Place, Fields]]:
    """Per topic and key the row with the highest offset, of what the stream has committed: partitions were never added."""
    key = KEYS[live.example.name]
    names = [key] if isinstance(key, str) else key
    found: dict[tuple[Any, ...], tuple[Place, Fields]] = {}
    rows = live.expected().rows
    for place in sorted(rows, key=lambda place: (place[0], place[2], place[1])):
        # A tombstone is of no key here: its key is not among the fields.
        if rows[place]:
            found[place[0], *(rows[place].get(name) for name in names)] = place, rows[place]
    return found


def assert_newest(live: LiveStream, *, published: bool = True) -> None:
    wanted = {f"{place[0]}/{place[1]}@{place[2]}": fields for place, fields in by_oracle(live).values()}
    assert {one["coordinate"]: one["fields"] for one in newest(live)} == wanted
    if published:
        names = {*live.opened.fields}
        shown = [{name: fields.get(name, "") for name in names} for fields in wanted.values()]
        assert sorted(map(sorted_items, seen(live).values())) == sorted(map(sorted_items, shown))


def sorted_items(fields: dict[str, str]) -> list[tuple[str, str]]:
    return sorted(fields.items())


@pytest.mark.full
def test_the_newest_row_of_each_key(make: Make, example: Example, ledger: str, spark: Any) -> None:
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

    # Spark's reader gives the same, and the audit finds every message.
    wanted = {place for place, _ in by_oracle(live).values()}
    frame = results(spark, live.opened, "hbase_latest")
    assert {(row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in frame.collect()} == wanted
    plain = {name: kind for name, kind in frame.dtypes if name != "_deleted"}
    assert plain == {**dict(results(spark, live.opened, "hbase").dtypes)}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert [(place.name, place.missing, place.debris) for place in report.places][2] == ("hbase_latest", 0, 0)

    # A table has the key that it was made with, and one owner.
    table = latest(live)
    with pytest.raises(WrongUse, match=r"was made with the key .*, the stream file says"):
        table.prepare(live.name, report_ledger(live), ["other"], 16)
    with pytest.raises(OwnedByAnother, match=f"belongs to stream {live.name}"):
        table.prepare("another", report_ledger(live), ["other"], 16)


def report_ledger(live: LiveStream) -> str:
    found = live.opened.ledger.register()
    assert found is not None
    return found[1].ledger


@pytest.mark.full
@pytest.mark.parametrize(("step", "times"), cuts(3), ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_shows_nothing_that_was_not_committed(live: LiveStream, step: Step, times: int) -> None:
    with_sink(live, first=times == 1)
    live.produce(120)
    live.ingest()
    before = seen(live)
    live.produce(120)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step, times))
    assert_newest(live, published=False)
    if step not in (Step.COMMITTED, Step.PUBLISHED, Step.SWEPT, Step.SETTLED):
        assert seen(live) == before
    live.produce(60)
    live.ingest(run)
    live.ingest()
    assert read_by([window.record for window in live.opened.ledger.committed()]) == 300
    assert_newest(live)
    live.assert_exactly_what_was_read()


class Keyed:
    """A stream of keys and values, in places that the test says."""

    def __init__(self, live: LiveStream) -> None:
        self.live = live
        self.rewrite()

    def rewrite(self, **changes: Any) -> None:
        named = table_of(self.live)
        sink = {"type": "hbase_latest", "table": named, "folder": named, "key": "key"}
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
        """What the reader gives: a key to its value, None where it is gone."""
        return {one["fields"]["key"]: None if one["deleted"] else one["fields"]["value"] for one in newest(self.live)}

    def shown(self) -> dict[str, str | None]:
        """What others see: nothing of a key that is gone."""
        connection = happybase.Connection("127.0.0.1", self.live.site.port("thrift"))
        rows = connection.table(table_of(self.live)).scan(row_stop=b"\x10", columns=[b"d"])
        found = {cells[b"d:key"].decode(): cells[b"d:value"].decode() for _, cells in rows}
        connection.close()
        return {**dict.fromkeys((key for key, value in self.values().items() if value is None)), **found}


@pytest.mark.covers("N9", "E42")
def test_old_messages_never_hide_newer_state(make: Make, ledger: str) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    keyed, topic = Keyed(live), live.topics[0]
    keyed.send(0, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None), ("c", "1"))
    live.ingest()
    state: dict[str, str | None] = {"a": "2", "b": None, "c": "1"}
    assert keyed.values() == keyed.shown() == state

    # A late replay of the oldest, under a tombstone too.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 2)))
    assert keyed.values() == keyed.shown() == state
    # What a major compaction leaves is the same.
    compact(live)
    assert keyed.values() == keyed.shown() == state
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 3)))
    compact(live)
    assert keyed.values() == keyed.shown() == state

    # Partitions are added and a key moves: its new messages have lower offsets, and are newer.
    live.kafka.admin.create_partitions({topic: 6})
    keyed.send(5, ("a", "3"))
    keyed.send(0, ("c", "2"))
    live.ingest()
    state = {"a": "3", "b": None, "c": "2"}
    assert keyed.values() == keyed.shown() == state
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 6)))
    assert keyed.values() == keyed.shown() == state

    # A topic that was recreated begins at offset 0 again.
    live.kafka.recreate(topic, 4)
    keyed.send(0, ("b", "9"))
    live.ingest()
    state["b"] = "9"
    assert keyed.values() == keyed.shown() == state
    assert audit(live.opened, "audit").clean


@pytest.mark.full
@pytest.mark.covers("N9", "L7")
def test_a_replay_takes_out_what_counts_no_more_and_brings_back_what_it_had_overwritten(make: Make) -> None:
    """Also where the rows that go are at offsets whose bytes are signs of HBase's filters: 39 is an apostrophe."""
    live = make(CDN)
    keyed = Keyed(live)
    keyed.send(0, *(("a" if number % 2 else "b", str(number)) for number in range(41)))
    live.ingest()
    assert keyed.values() == keyed.shown() == {"a": "39", "b": "40"}
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (39, 40)), run, on_step=cut_after(Step.SINK_STORED))
    assert keyed.shown() == {"a": "39", "b": "40"}
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    assert protocol.abandon(live.opened.ledger, lane, "a test", take_over=True) is not None
    keyed.rewrite(checks=[{"invalid_when": "value = '39'", "reason": "thirty-nine"}])
    pending = lanes.plan_lane(live.opened, lane, run)
    assert pending is not None
    process_windows(live.opened, lane, pending.window.seq, run)
    assert keyed.values() == keyed.shown() == {"a": "37", "b": "40"}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    # Somebody changes a row by hand, which the audit sees, and a replay of its message mends.
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    table = connection.table(table_of(live))
    (key,) = (key for key, cells in table.scan(row_stop=b"\x10", columns=[b"d"]) if cells[b"d:key"] == b"a")
    number = max(at for _, at in table.row(key, include_timestamp=True).values())
    table.put(key, {b"d:value": b"wrong"}, timestamp=number)
    connection.close()
    report = audit(live.opened, "audit 2")
    assert [(place.missing, place.different) for place in report.places if place.name == "hbase_latest"] == [(0, 1)]
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (37, 38)))
    assert keyed.shown() == {"a": "37", "b": "40"}
    assert audit(live.opened, "audit 3").clean


@pytest.mark.full
@pytest.mark.covers("N27")
def test_an_erased_value_is_in_no_cell(make: Make) -> None:
    """The row before it is the newest again."""
    live = make(CDN)
    with_sink(live)
    line = b'1.2.3.4 - - [21/Nov/2026:07:10:00 +0000] "GET http://h/a HTTP/1.1" 200 5 0.1'
    live.kafka.send((live.topics[0], 0, None, line) for _ in range(5))
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (4, 5)))
    assert [one["coordinate"] for one in newest(live)] == [f"{live.topics[0]}/0@4"]
    done = asked("erase", "--yes", str(live.file), "--records", f"{live.topics[0]}/0@4", "--reason", "request 4711")
    (said,) = {one["remains"] for one in done["places"] if one["name"] == "hbase_latest"}
    assert "until: tidemark compact" in said
    assert [one["coordinate"] for one in newest(live)] == [f"{live.topics[0]}/0@3"]
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    table = connection.table(table_of(live))
    versions = [
        value for key, columns in table.scan(row_stop=b"\x10") for value in table.cells(key, b"t:at", versions=99)
    ]
    connection.close()
    assert [int.from_bytes(value[-12:-4], "big") for value in versions] == [3]


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
