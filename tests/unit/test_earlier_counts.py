"""Offsets that are read again only because a sink needs whole blocks: they give what was counted, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.claiming import claim_lane, claim_lanes, claimed_by
from tests.support.counted_streams import CountedStream
from tests.support.streams_in_memory import TEXT, at, offsets
from tidemark.errors import OffsetsOutOfRange, SourceChanged, WrongUse
from tidemark.ledger.book import Book
from tidemark.ledger.records import BlockTallies, LaneKind, Record, Window
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs import erasing, steering
from tidemark.runs.requests.answers import UNIT_LOST
from tidemark.runs.requests.approval import People
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import earlier_counts, lanes

NOTHING = RangeSet()
SUMS = "  - {type: hbase_aggregates, name: sums, table: sums, key: id, values: {n: count}, block_offsets: BLOCK}\n"


def made_in(
    folder: Path,
    ends: list[int],
    *,
    block: int = 10,
    size: int | None = None,
    marks: RangeSet = NOTHING,
) -> CountedStream:
    """The ingest has read up to each of some ends, in a window each. `marks`: offsets that never had a message."""
    text = TEXT.replace("dead_letters:", f"{SUMS.replace('BLOCK', str(block))}dead_letters:")
    made = CountedStream(folder, text=text, size=size)
    made.kafka.empty = marks
    for end in ends:
        made.ends((0, end))
        made.ingest(f"run {end}")
    return made


def compact(made: CountedStream, *lost: tuple[int, int, int], known: bool = True) -> None:
    """Kafka has no more messages there. `known`: the topic's settings say that it is compacted."""
    made.kafka.empty |= offsets(*lost)
    made.kafka.compact = {"orders"} if known else set()


def worked_off(made: CountedStream, lane: str, run: str = "run") -> Record:
    pending = lanes.plan_lane(made.opened, lane, run)
    assert pending is not None
    record = made.process(lane, run)
    lanes.finish(made.opened, lane)
    return record


def replayed(made: CountedStream, wanted: RangeSet, run: str = "run", **more: object) -> Record:
    lane = claim_lane(made.opened, LaneKind.REPLAY, run, wanted, "bug 17", **more)  # type: ignore[arg-type]
    return worked_off(made, lane, run)


def erasure(made: CountedStream, wanted: RangeSet, run: str = "run") -> str:
    return erasing.open_erasure(made.opened, run, erasing.choose(made.opened, wanted), "request 4711", People("ann"))


def opened_for(made: CountedStream, wanted: RangeSet, run: str, *, erases: bool) -> str:
    if erases:
        return erasure(made, wanted, run)
    return claim_lane(made.opened, LaneKind.REPLAY, run, wanted, "a test")


def read_all(made: CountedStream, lane: str, run: str, *, erases: bool) -> None:
    """Work off a lane of one window."""
    if erases:
        pending = erasing.erase_without_spark(made.opened, lane, run)
    else:
        pending = lanes.plan_lane(made.opened, lane, run)
    if pending is not None:
        made.process(lane, run)


def replay(records: str, **more: object) -> ReplayRequest:
    return ReplayRequest.model_validate({"reason": "bug 17", "records": records, "dry_run": False, **more})


@pytest.mark.covers("N34")
@pytest.mark.parametrize("size", [None, 5])
@pytest.mark.parametrize("block", [100, 10])
def test_a_request_that_would_lose_what_nobody_named_is_refused(tmp_path: Path, block: int, size: int | None) -> None:
    """As each of 20 messages has one of five keys: the newest five are left."""
    made = made_in(tmp_path, [20], block=block, size=size)
    compact(made, (0, 0, 15))
    lost = r"orders/0@0-15" if block == 100 else r"orders/0@10-15"
    with pytest.raises(OffsetsOutOfRange, match=rf"Kafka no longer has {lost}. Nothing was changed"):
        erasing.choose(made.opened, offsets((0, 19, 20)))
    with pytest.raises(WrongUse, match=f"^there is nothing to replay: {UNIT_LOST}"):
        plan_request(made.opened, replay("orders/0@19"))
    again = BackfillRequest(reason="bug 17", ranges="orders/0@19-20", mode="reprocess", dry_run=True)
    for request in (replay("orders/0@19", dry_run=True), again):
        found = plan_request(made.opened, request)
        assert (found.all, dict(found.left_out)) == (RangeSet(), {UNIT_LOST: offsets((0, 19, 20))})
    with pytest.raises(OffsetsOutOfRange, match=rf"{lost} are gone.*name these offsets too"):
        claim_lane(made.opened, LaneKind.REPLAY, "repair", offsets((0, 19, 20)), "findings")
    assert lanes.lanes_of(made.opened, LaneKind.REPLAY, "repair") == []
    # The other sinks need no more than the offset.
    assert plan_request(made.opened, replay("orders/0@19", sinks=["hbase"])).ranges == offsets((0, 19, 20))


@pytest.mark.covers("N34")
@pytest.mark.parametrize("size", [None, 5])
def test_the_attempt_compares_too(tmp_path: Path, size: int | None) -> None:
    """Compaction comes between the request and the read, or the topic's settings did not say that it is compacted."""
    made = made_in(tmp_path, [20], size=size)
    lane = erasure(made, offsets((0, 19, 20)))
    mine = claim_lane(made.opened, LaneKind.REPLAY, "run", offsets((0, 3, 4)), "bug 17")
    for one in (lane, mine):
        assert lanes.plan_lane(made.opened, one, "run") is not None
    compact(made, (0, 5, 6), (0, 12, 15), known=False)
    for one, lost in ((lane, r"orders/0@12-15"), (mine, r"orders/0@5-6")):
        for _ in range(2):
            with pytest.raises(
                SourceChanged, match=rf"that nobody has named: {lost}.*nothing was committed.*cancel orders"
            ):
                made.process(one, "run")
        steering.cancel(made.opened, one, "it cannot go on")
    assert len(made.opened.book.committed()) == 1
    # Named, they are read again: two of them have no result any more, and the answers say so.
    record = replayed(made, offsets((0, 3, 4), (0, 5, 6)), "again")
    assert (record.tallies[0].read.number, made.opened.book.widened(record.window)) == (
        9,
        offsets((0, 0, 3), (0, 4, 5), (0, 6, 10)),
    )


@pytest.mark.covers("N34")
@pytest.mark.parametrize("size", [None, 10])
def test_what_was_named_and_is_gone_gets_its_answer(tmp_path: Path, size: int | None) -> None:
    made = made_in(tmp_path, [20, 40], size=size)
    compact(made, (0, 13, 14), (0, 25, 27))
    assert plan_request(made.opened, replay("orders/0@13")).ranges == offsets((0, 10, 20))
    assert replayed(made, offsets((0, 13, 14))).tallies[0].read.number == 9
    lane = erasure(made, offsets((0, 25, 27)))
    assert worked_off(made, lane).tallies[0].read.number == 8
    # What was lost with a name is lost. A later request compares with what the results are made of now.
    assert replayed(made, offsets((0, 15, 16)), "again").tallies[0].read.number == 9
    # What is gone in another block of the window does no harm.
    assert replayed(made, offsets((0, 5, 6)), "another").tallies[0].read.number == 10


@pytest.mark.covers("N34")
@pytest.mark.parametrize("size", [None, 10])
def test_offsets_that_never_had_a_message_are_no_loss(tmp_path: Path, size: int | None) -> None:
    marks = offsets((0, 4, 5), (0, 14, 15), (0, 24, 25))
    made = made_in(tmp_path, [30], size=size, marks=marks)
    made.kafka.compact = {"orders"}
    assert replayed(made, offsets((0, 12, 13))).tallies[0].read.number == 9
    # One of another block is lost, and the XOR tells that it is none of these.
    compact(made, (0, 27, 28))
    assert replayed(made, offsets((0, 2, 3)), "again").tallies[0].read.number == 9
    with pytest.raises(OffsetsOutOfRange, match=r"orders/0@27-28 are gone"):
        claim_lane(made.opened, LaneKind.REPLAY, "last", offsets((0, 22, 23)), "bug 17")


@pytest.mark.covers("N34")
@pytest.mark.parametrize("block", [100, 10])
def test_a_window_without_a_message_has_nothing_to_lose(tmp_path: Path, block: int) -> None:
    """All of its transactions were aborted, for example: what it has counted is known, and is nothing."""
    made = made_in(tmp_path, [10, 20], block=block, marks=offsets((0, 10, 20)))
    made.kafka.compact = {"orders"}
    for run in ("once", "and again"):
        record = replayed(made, offsets((0, 5, 15)), run)
        assert (made.opened.book.covers(record.window), record.tallies[0].read.number) == (offsets((0, 0, 20)), 10)
    record = replayed(made, offsets((0, 12, 13)), "nothing of it")
    assert record.tallies == ()
    assert replayed(made, offsets((0, 13, 14)), "nor now").tallies == ()


@pytest.mark.covers("N34")
def test_where_nobody_can_tell_which_messages_are_gone_all_may_be(tmp_path: Path) -> None:
    """Of a large window without tallies by blocks, more offsets are empty than an ack value can tell apart."""
    marks = RangeSet(OffsetRange(at(0), one, one + 1) for one in range(9, 1_000, 10))
    made = made_in(tmp_path, [1_000], marks=marks)
    compact(made, (0, 500, 501))
    with pytest.raises(OffsetsOutOfRange, match=r"orders/0@19-20 are gone"):
        claim_lane(made.opened, LaneKind.REPLAY, "run", offsets((0, 12, 13)), "bug 17")


@pytest.mark.covers("N34")
def test_each_sink_that_is_written_keeps_what_it_has(tmp_path: Path) -> None:
    """One sink has lost results, since they were named. The other one still has them, and a replay into it keeps them."""
    made = made_in(tmp_path, [10])
    compact(made, (0, 5, 8))
    assert replayed(made, offsets((0, 0, 10)), "into one", sinks=("sums",)).tallies[0].read.number == 7
    assert replayed(made, offsets((0, 1, 2)), "into it again", sinks=("sums",)).tallies[0].read.number == 7
    with pytest.raises(OffsetsOutOfRange, match=r"orders/0@5-8 are gone"):
        claim_lane(made.opened, LaneKind.REPLAY, "into all", offsets((0, 1, 2)), "bug 17")


@pytest.mark.covers("N34")
def test_another_isolation_level_hides_messages_as_compaction_does(tmp_path: Path) -> None:
    made = made_in(tmp_path, [10])
    made.kafka.aborted = offsets((0, 3, 5))
    committed = made.text
    made = CountedStream(
        tmp_path, made.kafka, committed.replace("  start: earliest", "  start: earliest\n  isolation: read_uncommitted")
    )
    made.ingest("all of it")
    assert made.opened.book.committed()[0].record.tallies[0].read.number == 10
    stricter = CountedStream(tmp_path, made.kafka, committed, made.store)
    with pytest.raises(OffsetsOutOfRange, match=r"orders/0@3-5 are gone"):
        claim_lane(stricter.opened, LaneKind.REPLAY, "run", offsets((0, 1, 2)), "bug 17")
    # The other way round, more is read than was counted: a message that is gone is still found.
    other = CountedStream(tmp_path, made.kafka, committed)
    other.ingest("without them")
    wider = CountedStream(tmp_path, made.kafka, made.text, other.store)
    compact(other, (0, 7, 8))
    with pytest.raises(OffsetsOutOfRange, match=r"orders/0@7-8 are gone"):
        claim_lane(wider.opened, LaneKind.REPLAY, "run", offsets((0, 1, 2)), "bug 17")


def test_a_large_request_is_compared_by_its_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_in(tmp_path, [20])
    compact(made, (0, 12, 15))
    monkeypatch.setattr(earlier_counts, "MOST_COMPARED", 8)
    lane = claim_lane(made.opened, LaneKind.REPLAY, "run", offsets((0, 19, 20)), "bug 17")
    with pytest.raises(SourceChanged, match=r"orders/0@12-15"):
        worked_off(made, lane)


@pytest.mark.covers("N34")
@pytest.mark.parametrize(("size", "again"), [(10, offsets((0, 20, 30))), (None, offsets((0, 0, 40)))])
def test_kafka_is_not_read_twice_where_the_counts_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None, again: RangeSet
) -> None:
    """Every transaction leaves a mark without a message: of such a topic, all that was widened would be read once more."""
    marks = RangeSet(OffsetRange(at(0), one, one + 1) for one in range(4, 40, 5))
    made = made_in(tmp_path, [40], block=100, size=size, marks=marks)
    read: list[RangeSet] = []
    messages = made.kafka.messages

    def noted(ranges: RangeSet, *more: Any) -> Any:
        read.append(ranges)
        return messages(ranges, *more)

    lane = claim_lane(made.opened, LaneKind.REPLAY, "run", offsets((0, 12, 13)), "bug 17")
    monkeypatch.setattr(made.kafka, "messages", noted)
    assert made.opened.book.widened(pending_of(made, lane)) == offsets((0, 0, 12), (0, 13, 40))
    made.process(lane, "run")
    # By the attempt itself.
    assert read == [offsets((0, 0, 40))]
    lanes.finish(made.opened, lane)

    # A message has gone: only what has another count is looked at, and the message is named.
    lane = claim_lane(made.opened, LaneKind.REPLAY, "another", offsets((0, 12, 13)), "bug 17")
    pending_of(made, lane)
    compact(made, (0, 22, 23), known=False)
    read.clear()
    with pytest.raises(SourceChanged, match=r"orders/0@22-23"):
        made.process(lane, "another")
    first, *looked_at = read
    assert first == offsets((0, 0, 40))
    assert RangeSet(one for part in looked_at for one in part).hull() == again.hull()


def pending_of(made: CountedStream, lane: str) -> Window:
    pending = lanes.plan_lane(made.opened, lane, "run")
    assert pending is not None
    return pending.window


def test_lanes_note_what_was_named_and_a_retry_finds_it(tmp_path: Path) -> None:
    made = made_in(tmp_path, [40])
    wanted = offsets((0, 5, 6), (0, 10, 20), (0, 25, 26))
    found = plan_request(
        made.opened, replay("orders/0@5\norders/0@25" + "".join(f"\norders/0@{one}" for one in range(10, 20)))
    )
    assert (found.ranges, found.named) == (offsets((0, 0, 30)), wanted)
    for _ in range(2):
        mine = claim_lanes(made.opened, LaneKind.REPLAY, "run", found.named, "bug 17", lanes=3, view=found.view)
        before = claimed_by(made.opened, LaneKind.REPLAY, "run")
        assert before is not None
        assert (before.ranges, before.named) == (found.ranges, wanted)
        # Kafka may have lost some since: what has begun says so itself.
        compact(made, (0, 7, 8))
    windows = [lanes.plan_lane(made.opened, lane, "run") for lane in mine]
    widened = [made.opened.book.widened(one.window) for one in windows if one is not None]
    assert widened == [offsets((0, 0, 5), (0, 6, 10)), offsets(), offsets((0, 20, 25), (0, 26, 30))]


@pytest.mark.slow
@pytest.mark.covers("N34")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    block=st.sampled_from([100, 2, 5]),
    size=st.sampled_from([None, 3, 5]),
    marks=st.sets(st.integers(0, 29), max_size=6),
    lost=st.sets(st.integers(0, 29), max_size=10),
    first=st.sets(st.integers(0, 29), max_size=4),
    named=st.sets(st.integers(0, 29), min_size=1, max_size=4),
    first_erases=st.booleans(),
    erases=st.booleans(),
    early=st.booleans(),
)
def test_no_message_is_lost_that_nobody_named_and_none_is_refused_without_need(
    tmp_path_factory: pytest.TempPathFactory,
    block: int,
    size: int | None,
    marks: set[int],
    lost: set[int],
    first: set[int],
    named: set[int],
    first_erases: bool,
    erases: bool,
    early: bool,
) -> None:
    """`early`: the messages go before the request, and the topic's settings say so. Otherwise before the read.

    `first`: what an earlier replay or erasure has named, when half of the messages were gone.
    """

    def some(numbers: set[int]) -> RangeSet:
        return offsets(*((0, one, one + 1) for one in numbers))

    made = made_in(tmp_path_factory.mktemp("counted"), [10, 30], block=block, size=size, marks=some(marks))
    half = {one for one in lost if one % 2}
    if first:
        wide = opened_for(made, some(first), "first", erases=first_erases)
        made.kafka.empty |= some(half)
        try:
            read_all(made, wide, "first", erases=first_erases)
            lanes.finish(made.opened, wide)
        except SourceChanged:
            steering.cancel(made.opened, wide, "it cannot go on")
        else:
            named -= first if first_erases else set()
            assume(named)
    # What each offset's results are made of now: whatever the newest window has read.
    results = {
        one
        for window in made.opened.book.committed()
        for one in range(30)
        if made.opened.book.authority().of(at(0), one) == window.generation and one in made.read[window.generation]
    }
    gone = some(lost)
    if early:
        made.kafka.empty |= gone
        made.kafka.compact = {"orders"}
    refused, refusal = False, OffsetsOutOfRange if early else SourceChanged
    try:
        lane = opened_for(made, some(named), "run", erases=erases)
        made.kafka.empty |= gone
        read_all(made, lane, "run", erases=erases)
    except refusal:
        refused = True
    units = [range(10), range(10, 30)]
    if block < 10:
        units = [range(start, start + block) for start in range(0, 30, block)]
    read_again = {one for unit in units if named & set(unit) for one in unit} - named
    assert refused == bool(read_again & results & lost)


@pytest.mark.covers("N34")
@pytest.mark.parametrize("size", [None, 10])
@pytest.mark.parametrize("early", [True, False])
def test_what_a_window_has_erased_makes_up_for_nothing(tmp_path: Path, size: int | None, early: bool) -> None:
    """Kafka still has the message that an earlier window has erased and not counted; another one of its block is gone."""
    made = made_in(tmp_path, [20], size=size)
    worked_off(made, erasure(made, offsets((0, 15, 16))))
    if early:
        compact(made, (0, 13, 14))
        with pytest.raises(OffsetsOutOfRange, match=r"orders/0@13-14"):
            claim_lane(made.opened, LaneKind.REPLAY, "run", offsets((0, 17, 18)), "bug 17")
        return
    lane = claim_lane(made.opened, LaneKind.REPLAY, "run", offsets((0, 17, 18)), "bug 17")
    assert lanes.plan_lane(made.opened, lane, "run") is not None
    compact(made, (0, 13, 14))
    with pytest.raises(SourceChanged, match=r"orders/0@13-14"):
        made.process(lane, "run")


@pytest.mark.parametrize("size", [None, 5])
def test_the_counts_of_a_window_are_read_once_for_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    """They are one value of the ledger, up to some megabytes. Marks of transactions let an attempt look at them."""
    made = made_in(tmp_path, [], block=100, size=size, marks=offsets((0, 4, 5), (1, 4, 5)))
    for end in (10, 20):
        made.ends((0, end), (0, end))
        made.ingest(f"run {end}")
    read: list[tuple[str, int]] = []
    blocks = Book.blocks

    def counted(book: Book, record: Record) -> BlockTallies | None:
        read.append((record.lane, record.seq))
        return blocks(book, record)

    monkeypatch.setattr(Book, "blocks", counted)
    wanted = offsets(*((number, start, start + 1) for number in range(2) for start in (3, 13)))
    record = replayed(made, wanted)
    assert made.opened.book.covers(record.window) == offsets((0, 0, 20), (1, 0, 20))
    assert sorted(read) == [("ingest", 1), ("ingest", 2)]
