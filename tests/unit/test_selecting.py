"""Which offsets a backfill or a replay takes: what people ask for, over a Kafka and a ledger in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.claiming import claim_lane, claim_lanes
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import ClaimOverlap, LogTruncated, TopicGone, TopicRecreated, TopicUnknown, WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.offsets.coordinates import parse_coordinates
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.inputs import KafkaState
from tidemark.runs import erasing
from tidemark.runs.auditing import requested
from tidemark.runs.requests import dead_letters
from tidemark.runs.requests.answers import (
    EXPIRED,
    GONE,
    NO_PARTITION,
    NOT_OF_THE_STREAM,
    NOT_READ,
    NOT_YET,
    READ_ALREADY,
    THE_INGESTS,
)
from tidemark.runs.requests.dead_letters import DeadLetterFilter, Redrive, too_often
from tidemark.runs.requests.forms import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.requests.selecting import between, between_offsets, divided
from tidemark.runs.windows import lanes


@pytest.fixture
def orders(tmp_path: Path) -> StreamInMemory:
    """Partition 0 was read from 10 to 30 and partition 1 from 0 to 6; Kafka has more before and after."""
    made = StreamInMemory(tmp_path, text=TEXT.replace("earliest", "{offsets: {orders/0: 10}, others: earliest}"))
    made.ends((2, 18), (0, 6))
    made.ingest("run 1")
    made.ends((2, 30), (0, 6))
    made.ingest("run 2")
    made.ends((2, 40), (0, 9))
    return made


def replay(**asked: Any) -> ReplayRequest:
    return ReplayRequest(reason="a test", **asked)


def backfill(**asked: Any) -> BackfillRequest:
    return BackfillRequest(reason="a test", **{"dry_run": False, **asked})


def test_what_a_replay_names_is_taken_as_it_is(orders: StreamInMemory) -> None:
    ref = orders.opened.ledger.store_selection(offsets((1, 2, 4)))
    for request, expected in (
        (replay(ranges="orders/0@12-15\norders/1@0-2"), offsets((0, 12, 15), (1, 0, 2))),
        (replay(records="orders/0@12\norders/0@14"), offsets((0, 12, 13), (0, 14, 15))),
        (replay(selection=ref.digest), offsets((1, 2, 4))),
        # From where `start` says now, as far as it was read and Kafka still holds it.
        (replay(ignore_stored=True), offsets((0, 10, 30), (1, 0, 6))),
    ):
        found = plan_request(orders.opened, request)
        assert found.ranges == expected
        assert dict(found.left_out) == {}


def test_what_a_backfill_names(orders: StreamInMemory) -> None:
    assert plan_request(orders.opened, backfill(ranges="orders/0@3-5")).ranges == offsets((0, 3, 5))
    assert plan_request(orders.opened, backfill(everything_before=True)).ranges == offsets((0, 2, 10))


def test_a_selection_that_is_not_stored_is_refused(orders: StreamInMemory) -> None:
    with pytest.raises(WrongUse, match="orders has no stored selection 0000"):
        plan_request(orders.opened, replay(selection="0" * 64))


def test_what_can_be_replayed_is_and_each_other_offset_gets_its_answer(orders: StreamInMemory) -> None:
    """The log of partition 0 begins at 14 now, and the ingest has read 10 to 30 of it."""
    orders.ends((14, 40), (0, 9))
    asked = {"ranges": "orders/0@8-50\norders/1@5-7\norders/2@0-3\nothers/0@1-2"}
    elsewhere = RangeSet([OffsetRange(TopicPartition("others", 0), 1, 2)])
    rest = {
        EXPIRED: offsets((0, 8, 14)),
        NOT_YET: offsets((0, 40, 50)),
        NO_PARTITION: offsets((2, 0, 3)),
        NOT_OF_THE_STREAM: elsewhere,
        THE_INGESTS: offsets((0, 30, 40), (1, 6, 7)),
    }
    found = plan_request(orders.opened, replay(**asked, dry_run=False))
    assert (found.ranges, dict(found.left_out)) == (offsets((0, 14, 30), (1, 5, 6)), rest)
    # A backfill may read nothing of it: the error has every answer, and a dry run shows them.
    said = r"nothing to backfill: .*expired.*: orders/0@8-14; .*a window has read them: orders/0@14-30, orders/1"
    with pytest.raises(WrongUse, match=said):
        plan_request(orders.opened, backfill(**asked))
    found = plan_request(orders.opened, backfill(**asked, dry_run=True))
    assert (found.ranges, dict(found.left_out)) == (
        RangeSet(),
        {**rest, READ_ALREADY: offsets((0, 14, 30), (1, 5, 6))},
    )


def test_a_strict_request_is_refused_with_the_first_offsets_of_each_answer(orders: StreamInMemory) -> None:
    records = "\n".join(f"orders/0@{offset}" for offset in (*range(0, 14, 2), 20, 41))
    said = (
        r"^strict: 6 offsets cannot be read by a replay. expired: Kafka no longer holds them: orders/0@0-1; "
        r"not in the topic yet.*: orders/0@41-42; no window has read them: orders/0@2-3, .*Nothing was changed"
    )
    for dry_run in (True, False):
        with pytest.raises(WrongUse, match=said):
            plan_request(orders.opened, replay(records=records, strict=True, dry_run=dry_run))
    good = plan_request(orders.opened, replay(records="orders/0@20", strict=True))
    assert good.ranges == offsets((0, 20, 21))


def test_a_topic_that_is_gone_or_was_made_anew_refuses_all(orders: StreamInMemory) -> None:
    asked = replay(ranges="orders/0@12-14")
    orders.kafka.ids["orders"] = "another"
    with pytest.raises(TopicRecreated):
        plan_request(orders.opened, asked)
    orders.kafka.logs.clear()
    with pytest.raises(TopicGone):
        plan_request(orders.opened, asked)


def test_what_was_read_of_a_partition_that_is_gone(orders: StreamInMemory) -> None:
    orders.ends((2, 40))
    found = plan_request(orders.opened, replay(ranges="orders/0@12-14\norders/1@5-9"))
    assert found.ranges == offsets((0, 12, 14))
    assert dict(found.left_out) == {GONE: offsets((1, 5, 6)), NO_PARTITION: offsets((1, 6, 9))}


@pytest.mark.slow
def test_a_log_that_was_cut_below_what_was_read_is_not_called_not_there_yet(orders: StreamInMemory) -> None:
    """Planning refuses it, as it refuses every other lane over a log that was cut."""
    orders.ends((2, 20), (0, 9))
    found = plan_request(orders.opened, replay(ranges="orders/0@15-35"))
    assert (found.ranges, dict(found.left_out)) == (offsets((0, 15, 30)), {NOT_YET: offsets((0, 30, 35))})
    lane = claim_lane(orders.opened, LaneKind.REPLAY, "run 9", found.ranges, "a test")
    with pytest.raises(LogTruncated):
        lanes.plan_lane(orders.opened, lane, "run 9")


def test_holes_are_not_what_lies_before_the_ingest(orders: StreamInMemory) -> None:
    """The ingest begins at 10. What a backfill leaves unread below that was never asked for."""
    said = "orders has no holes: from the beginning of the ingest to its position, every offset is in a window"
    with pytest.raises(WrongUse, match=said):
        plan_request(orders.opened, backfill(holes=True))
    lane = claim_lane(orders.opened, LaneKind.BACKFILL, "run 9", offsets((0, 3, 5)), "a test")
    assert lanes.plan_lane(orders.opened, lane, "run 9") is not None
    orders.process(lane, "run 9")
    with pytest.raises(WrongUse, match=said):
        plan_request(orders.opened, backfill(holes=True))


def test_bounds_in_time_leave_out_what_the_lane_may_not_take(orders: StreamInMemory) -> None:
    """Offset n has the time n seconds: from 5 s to 35 s."""
    times = {"since": "1970-01-01T00:00:05Z", "until_time": "1970-01-01T00:00:35Z", "if_none": "end"}
    found = plan_request(orders.opened, replay(**times))
    assert found.ranges == offsets((0, 10, 30), (1, 5, 6))
    assert dict(found.left_out) == {NOT_READ: offsets((0, 5, 10)), THE_INGESTS: offsets((0, 30, 35), (1, 6, 9))}
    found = plan_request(orders.opened, backfill(**times))
    assert found.ranges == offsets((0, 5, 10))
    assert dict(found.left_out) == {
        READ_ALREADY: offsets((0, 10, 30), (1, 5, 6)),
        THE_INGESTS: offsets((0, 30, 35), (1, 6, 9)),
    }


def test_one_bound_in_time_is_enough(orders: StreamInMemory) -> None:
    assert plan_request(orders.opened, replay(until_time="1970-01-01T00:00:12Z")).ranges == offsets(
        (0, 10, 12), (1, 0, 6)
    )
    found = plan_request(orders.opened, replay(since="1970-01-01T00:00:04Z"))
    assert found.ranges == offsets((0, 10, 30), (1, 4, 6))


def test_a_time_that_no_message_has_is_an_error_or_takes_nothing_of_that_partition(orders: StreamInMemory) -> None:
    since = "1970-01-01T00:00:20Z"
    said = f"no message at or after {since} in orders/1: take an earlier time"
    with pytest.raises(WrongUse, match=said):
        plan_request(orders.opened, replay(since=since))
    assert plan_request(orders.opened, replay(since=since, if_none="end")).ranges == offsets((0, 20, 30))


@pytest.mark.parametrize("until", ["1970-01-01T00:00:05Z", "1970-01-01T00:00:04Z"])
def test_times_that_are_not_in_their_order_are_refused(orders: StreamInMemory, until: str) -> None:
    with pytest.raises(WrongUse, match="the first has to lie before the second"):
        plan_request(orders.opened, replay(since="1970-01-01T00:00:05Z", until_time=until))


def test_an_audit_between_two_times_looks_at_what_was_read_of_them(orders: StreamInMemory) -> None:
    """An offset's time is a thousand times its number. The ingest has read 10 to 30, and 0 to 6."""

    def looked_at(**asked: Any) -> RangeSet:
        return requested(orders.opened, AuditRequest(if_none="end", **asked))

    assert looked_at(since="1970-01-01T00:00:12Z", until_time="1970-01-01T00:00:20Z") == offsets((0, 12, 20))
    assert looked_at(since="1970-01-01T00:00:25Z") == offsets((0, 25, 30))
    assert looked_at(until_time="1970-01-01T00:00:04Z") == offsets((1, 0, 4))
    # An empty selection is no audit of everything.
    with pytest.raises(WrongUse, match="no window of orders has read an offset between these times"):
        looked_at(since="1970-01-01T00:00:31Z")
    with pytest.raises(WrongUse, match="no message at or after 1970-01-01T00:00:31Z in orders/1"):
        requested(orders.opened, AuditRequest(since="1970-01-01T00:00:31Z"))


def test_times_of_a_topic_that_is_not_there_are_refused(orders: StreamInMemory) -> None:
    orders.kafka.logs.clear()
    with pytest.raises(TopicUnknown, match="topic orders does not exist"):
        plan_request(orders.opened, replay(since="1970-01-01T00:00:05Z"))


def test_asking_for_a_time_changes_no_ledger(orders: StreamInMemory) -> None:
    before = dict(orders.store.values)
    plan_request(orders.opened, replay(since="1970-01-01T00:00:04Z"))
    between_offsets(orders.opened, parse_coordinates("orders/0@3"), [])
    assert orders.store.values == before


@pytest.mark.parametrize(("asked", "reason"), [("*", None), ("too old", "too old")])
def test_dead_letters_by_their_reason(
    orders: StreamInMemory, monkeypatch: pytest.MonkeyPatch, asked: str, reason: str | None
) -> None:
    """Which rows there are is a matter of the table; here only what becomes of them."""
    heard: list[DeadLetterFilter] = []

    def redrive(opened: object, wanted: DeadLetterFilter, view: object) -> Redrive:
        heard.append(wanted)
        return Redrive(offsets((0, 12, 13)), offsets((0, 2, 3)), RangeSet())

    monkeypatch.setattr(dead_letters, "redrive", redrive)
    found = plan_request(orders.opened, replay(dead_letters=asked))
    assert heard == [DeadLetterFilter(reason)]
    assert found.ranges == offsets((0, 12, 13))
    # What is empty is not told.
    assert dict(found.left_out) == {EXPIRED: offsets((0, 2, 3))}
    most = orders.opened.stream.dead_letters.max_redrives
    monkeypatch.setattr(dead_letters, "redrive", lambda *_: Redrive(RangeSet(), RangeSet(), offsets((1, 0, 1))))
    assert dict(plan_request(orders.opened, replay(dead_letters=asked)).left_out) == {
        too_often(most): offsets((1, 0, 1))
    }


def test_dead_letters_of_a_window_and_between_two_times(
    orders: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[DeadLetterFilter] = []

    def redrive(opened: object, wanted: DeadLetterFilter, view: object) -> Redrive:
        heard.append(wanted)
        return Redrive(offsets((0, 12, 13)), RangeSet(), RangeSet())

    monkeypatch.setattr(dead_letters, "redrive", redrive)
    # Whatever Kafka has at these times, also nothing: `if_none` is for messages that are looked up there.
    between_times = {"since": "1990-01-01T00:00:12Z", "until_time": "1990-01-01T00:00:15Z", "if_none": "fail"}
    plan_request(orders.opened, replay(dead_letters="too old", dead_letters_window="ingest/2", **between_times))
    plan_request(orders.opened, replay(dead_letters="*", dead_letters_window="replay-1"))
    since, until = (datetime(1990, 1, 1, 0, 0, second, tzinfo=UTC) for second in (12, 15))
    assert heard == [DeadLetterFilter("too old", "ingest/2", since, until), DeadLetterFilter(None, "replay-1")]
    turned = {"since": between_times["until_time"], "until_time": between_times["since"]}
    with pytest.raises(WrongUse, match="the first has to lie before the second"):
        plan_request(orders.opened, replay(dead_letters="*", **turned))


def test_records_out_of_a_file(orders: StreamInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(tmp_path))
    (tmp_path / "records.csv").write_text("topic,partition,offset\norders,0,14\norders,1,2\norders,0,12\n")
    assert plan_request(orders.opened, replay(records_file="records.csv")).ranges == offsets(
        (0, 12, 13), (0, 14, 15), (1, 2, 3)
    )
    assert requested(orders.opened, AuditRequest(records_file="records.csv", ranges="orders/0@20-22")) == offsets(
        (0, 12, 13), (0, 14, 15), (0, 20, 22), (1, 2, 3)
    )


@pytest.mark.covers("Q9")
@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("", "hbase:late", "the stream file does not allow this table. record_tables in orders.yaml has none"),
        (
            "record_tables: [{table: early}, {table: 'more:late'}]\n",
            "hbase:late",
            "the stream file does not allow this table. record_tables in orders.yaml has early, more:late",
        ),
    ],
)
def test_a_table_that_the_stream_file_does_not_name_is_refused(tmp_path: Path, text: str, name: str, said: str) -> None:
    """Before any server is asked: no connection is opened here."""
    opened = StreamInMemory(tmp_path, text=f"{TEXT}{text}").opened
    erased = EraseRequest(records_file=name, reason="a test")
    asks: list[Callable[[], object]] = [
        lambda: plan_request(opened, replay(records_file=name)),
        lambda: plan_request(opened, backfill(records_file=name)),
        lambda: requested(opened, AuditRequest(records_file=name)),
        lambda: erasing.wanted(opened, erased),
    ]
    for ask in asks:
        with pytest.raises(WrongUse, match=f"^records_file {name}: {said}"):
            ask()


@pytest.mark.parametrize("field", ["records", "records_file"])
def test_a_backfill_of_scattered_records_reads_each_of_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    begins = "{offsets: {orders/0: 900}, others: earliest}"
    stream = StreamInMemory(tmp_path, text=f"{TEXT.replace('earliest', begins)}limits:\n  max_records: 100\n")
    stream.ends((0, 1_000), (0, 6))
    while stream.ingest():
        pass
    scattered = [("orders", 0, offset) for offset in range(0, 990, 3)]
    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(tmp_path))
    table = "\n".join(["topic,partition,offset", *(",".join(map(str, one)) for one in scattered)])
    (tmp_path / "scattered.csv").write_text(table)
    asked = backfill(**{field: {"records": table, "records_file": "scattered.csv"}[field]})
    found = plan_request(stream.opened, asked)
    wanted = RangeSet(OffsetRange(at(0), offset, offset + 1) for offset in range(0, 900, 3))
    assert (found.ranges, list(found.left_out), found.left_out[READ_ALREADY].count()) == (wanted, [READ_ALREADY], 30)
    (lane,) = claim_lanes(stream.opened, LaneKind.BACKFILL, "a run", found.ranges, "a test")
    read = []
    while lanes.plan_lane(stream.opened, lane, "a run") is not None:
        read.append(stream.opened.ledger.covers(stream.process(lane, "a run").window))
    assert [one.count() for one in read] == [100, 100, 100]
    assert RangeSet(one for covers in read for one in covers) == wanted
    # The same request again has nothing left to read.
    lanes.finish(stream.opened, lane)
    with pytest.raises(WrongUse, match="nothing to backfill: a window has read them"):
        plan_request(stream.opened, asked)
    again = plan_request(stream.opened, backfill(records="orders/0@3\norders/0@4", mode="reprocess"))
    assert (again.ranges, again.again) == (offsets((0, 4, 5)), offsets((0, 3, 4)))


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("ingest/2", offsets((0, 18, 30))),
        ("ingest", offsets((0, 10, 30), (1, 0, 6))),
        ("run 1", offsets((0, 10, 18), (1, 0, 6))),
        ("DAG/run/3", offsets((0, 12, 14), (1, 3, 4))),
        ("lane of DAG/run/3", offsets((0, 12, 14), (1, 3, 4))),
    ],
)
def test_what_windows_have_read_is_read_again(orders: StreamInMemory, named: str, expected: RangeSet) -> None:
    """By lane, window, or run. The name of a run may look like that of a window."""
    lane = claim_lane(orders.opened, LaneKind.REPLAY, "DAG/run/3", offsets((0, 12, 14), (1, 3, 4)), "a test")
    lanes.plan_lane(orders.opened, lane, "DAG/run/3")
    orders.process(lane, "DAG/run/3")
    lanes.finish(orders.opened, lane)
    named = lane if named.startswith("lane of") else named
    assert plan_request(orders.opened, replay(window=named)).ranges == expected
    assert requested(orders.opened, AuditRequest(window=named)) == expected
    # An audit takes what is named in several ways together.
    stored = orders.opened.ledger.store_selection(offsets((0, 90, 93)))
    both = requested(orders.opened, AuditRequest(window=named, selection=stored.digest))
    assert both == expected | offsets((0, 90, 93))
    more = requested(orders.opened, AuditRequest(window=named, records="orders/1@5"))
    assert more == expected | offsets((1, 5, 6))


@pytest.mark.parametrize("named", ["ingest/3", "ingest/x", "inges", "run", "replay-1", "ingest/0"])
def test_a_window_that_is_not_there_is_an_error_that_says_what_is(orders: StreamInMemory, named: str) -> None:
    said = (
        f"window {named}: orders has no committed window of this name. Expected LANE, such as ingest; .*"
        "`tidemark ledger show orders --closed` lists"
    )
    with pytest.raises(WrongUse, match=said):
        plan_request(orders.opened, replay(window=named))
    with pytest.raises(WrongUse, match=said):
        requested(orders.opened, AuditRequest(window=named))


def test_what_kafka_no_longer_holds_of_a_window_gets_its_answer(orders: StreamInMemory) -> None:
    orders.ends((20, 40), (0, 9))
    found = plan_request(orders.opened, replay(window="ingest/2"))
    assert (found.ranges, dict(found.left_out)) == (offsets((0, 20, 30)), {EXPIRED: offsets((0, 18, 20))})


def test_backfills_of_other_offsets_work_at_the_same_time(tmp_path: Path) -> None:
    begins = "{offsets: {orders/0: 90}, others: earliest}"
    stream = StreamInMemory(tmp_path, text=f"{TEXT.replace('earliest', begins)}limits:\n  max_records: 20\n")
    stream.ends((0, 100))
    stream.ingest()
    parts = {"one": offsets((0, 0, 40)), "other": offsets((0, 40, 90))}
    mine: dict[str, str] = {}
    for run, part in parts.items():
        (mine[run],) = claim_lanes(stream.opened, LaneKind.BACKFILL, run, part, "a test")
    read: dict[str, list[RangeSet]] = {run: [] for run in parts}
    while planned := [run for run, lane in mine.items() if lanes.plan_lane(stream.opened, lane, run) is not None]:
        # Both windows are pinned before either is processed.
        for run in reversed(planned):
            read[run].append(stream.opened.ledger.covers(stream.process(mine[run], run).window))
    assert [sum(one.count() for one in found) for found in read.values()] == [40, 50]
    assert {run: RangeSet(one for covers in found for one in covers) for run, found in read.items()} == parts
    with pytest.raises(ClaimOverlap, match="claimed by the open lane"):
        claim_lanes(stream.opened, LaneKind.BACKFILL, "third", offsets((0, 39, 41)), "a test")


def test_every_offset_is_read_unread_or_the_ingests(orders: StreamInMemory) -> None:
    wanted = offsets((0, 0, 100), (1, 0, 100), (7, 0, 5))
    parts = divided(orders.opened, wanted)
    assert parts == {
        READ_ALREADY: offsets((0, 10, 30), (1, 0, 6)),
        NOT_READ: offsets((0, 0, 10)),
        THE_INGESTS: offsets((0, 30, 100), (1, 6, 100), (7, 0, 5)),
    }
    assert sum(part.count() for part in parts.values()) == wanted.count()


def test_without_positions_what_a_window_has_read_is_not_the_ingests(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=TEXT + "guarantee: none\n")
    made.ends((0, 9))
    made.ingest()
    assert divided(made.opened, offsets((0, 0, 12))) == {
        READ_ALREADY: offsets((0, 0, 9)),
        NOT_READ: RangeSet(),
        THE_INGESTS: offsets((0, 9, 12)),
    }


def test_before_the_first_run_everything_is_the_ingests(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    assert divided(made.opened, offsets((0, 0, 5))) == {
        READ_ALREADY: RangeSet(),
        NOT_READ: RangeSet(),
        THE_INGESTS: offsets((0, 0, 5)),
    }


numbers = st.integers(0, 40)
logs = st.lists(st.tuples(numbers, numbers).map(sorted), min_size=1, max_size=3)
firsts = st.none() | st.lists(st.none() | numbers, min_size=3, max_size=3)


@given(logs, firsts, firsts, st.sampled_from(["fail", "end"]))
def test_between_two_times(
    found: list[list[int]], lower: list[int | None] | None, upper: list[int | None] | None, if_none: str
) -> None:
    """Against the definition: at or above the first offset of the lower time, below that of the upper one, and in the log."""
    known = KafkaState(
        {"orders": TopicLog("id", {n: PartitionLog(start, end, 0) for n, (start, end) in enumerate(found)})},
        {"orders": 1},
    )

    def by_name(bounds: list[int | None] | None) -> Mapping[tuple[str, int], int | None] | None:
        return None if bounds is None else {("orders", n): bound for n, bound in enumerate(bounds)}

    asked = {"since": "noon", "if_none": if_none}
    missing = [f"orders/{n}" for n in range(len(found)) if lower is not None and lower[n] is None]
    if missing and if_none == "fail":
        with pytest.raises(WrongUse, match=f"no message at or after noon in {', '.join(missing)}: take"):
            between(known, by_name(lower), by_name(upper), **asked)
        return
    taken = between(known, by_name(lower), by_name(upper), **asked)
    for n, (start, end) in enumerate(found):
        first = start if lower is None else end if lower[n] is None else lower[n]
        behind = end if upper is None else end if upper[n] is None else upper[n]
        for offset in range(45):
            expected = start <= offset < end and first <= offset < behind
            assert ((at(n), offset) in taken) == expected


def test_between_coordinates(orders: StreamInMemory) -> None:
    def named(lower: str, upper: str, **more: bool) -> RangeSet:
        return between_offsets(orders.opened, parse_coordinates(lower), parse_coordinates(upper), **more)

    assert named("orders/0@12", "orders/0@20") == offsets((0, 12, 20))
    # Without an upper one up to the ingest position, or to the end of the log; without a lower one from the log start.
    assert named("orders/0@12", "") == offsets((0, 12, 30))
    assert named("orders/0@12", "", to_the_end=True) == offsets((0, 12, 40))
    assert named("", "orders/0@5\norders/1@3") == offsets((0, 2, 5), (1, 0, 3))
    # The same one twice is once.
    assert named("orders/0@12\norders/0@12", "orders/0@20") == offsets((0, 12, 20))
    with pytest.raises(WrongUse, match="orders/0 is named twice, at 12 and at 13"):
        named("orders/0@12\norders/0@13", "orders/0@20")
    with pytest.raises(WrongUse, match="orders/5 does not exist, or its topic is not the one that orders has read"):
        named("orders/5@1", "")


def test_between_coordinates_of_a_topic_that_was_created_anew(orders: StreamInMemory) -> None:
    orders.kafka.ids["orders"] = "another"
    with pytest.raises(WrongUse, match="its topic is not the one that orders has read"):
        between_offsets(orders.opened, parse_coordinates("orders/0@12"), [])


def test_asking_before_the_first_run_teaches_the_ledger_nothing(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((3, 9))
    between_offsets(made.opened, parse_coordinates("orders/0@4"), [])
    plan_request(made.opened, backfill(since="1970-01-01T00:00:04Z", dry_run=True))
    assert made.store.values == {}


def test_between_coordinates_before_the_first_run(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((3, 9))
    assert between_offsets(made.opened, parse_coordinates("orders/0@4"), []) == offsets((0, 4, 9))
