"""What a plan will be, by the windows before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.known_streams import OUTCOMES, KnownStream, tables
from tests.support.memory import MemoryStore
from tests.support.protocol_world import Sweeps
from tests.support.streams_in_memory import at
from tidemark.clients.kafka.slots import Slot
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, Head, LaneKind, Receipt, Record, SinkReceipt, Window, WindowRange, positions
from tidemark.ledger.register import open_lane
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.planning.estimating import Estimate, StoredMessages, estimate, stored_before
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.forms import ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import ingest
from tidemark.runs.windows.estimates import describe_estimate, estimated
from tidemark.views.messages.fates import Fate
from tidemark.views.plan import planned

__all__ = ["tables"]

AT = TopicPartition("t", 0)
NOTHING = RangeSet()
NOWHERE = SinkReceipt(name="s", type="s", place={})


def committed(ledger: Ledger, until: int, read: int, stored: int, seconds: float) -> Record:
    """Commit the next window of a stream's only partition."""

    def plan(head: Head) -> Window:
        start = head.offsets()[AT]
        one = WindowRange(topic="t", incarnation=1, partition=0, start=start, until=until, log_start=0, log_end=until)
        return Window(seq=head.seq + 1, ranges=(one,), topic_ids={}, isolation="", pinned_at=0, run="r")

    pending = protocol.pin(ledger, Sweeps(), INGEST, plan)
    assert pending is not None
    taken = protocol.take(ledger, INGEST, pending.window.seq, Run("r", "1", "d"))
    tally = PartitionTally(
        topic="t", incarnation=1, partition=0, read=Count(read), stored=Count(stored), bytes=read * 100
    )
    receipt = Receipt(
        tallies=(tally,), sinks=(), dead_letters=NOWHERE, started_at=1_000, finished_at=1_000 + int(seconds * 1000)
    )
    return protocol.commit(ledger, taken, receipt)


def begun() -> Ledger:
    ledger = Ledger(MemoryStore(), "s")
    open_lane(ledger, INGEST, LaneKind.INGEST, run="r", start=positions({AT: 0}))
    return ledger


def test_as_the_windows_before() -> None:
    ledger = begun()
    assert estimate(1_000, []) is None
    # Two offsets in ten are no records: transactions have left their markers.
    records = [committed(ledger, 100, 80, 80, 2), committed(ledger, 200, 80, 80, 6)]
    assert estimate(1_000, records) == Estimate(records=800, bytes=80_000, seconds=40.0)


@pytest.mark.parametrize(("rate", "seconds"), [(None, 40.0), (100, 40.0), (10, 100.0)])
def test_a_rate_makes_it_take_longer(rate: int | None, seconds: float) -> None:
    ledger = begun()
    protocol.settle(ledger, Sweeps(), committed(ledger, 100, 80, 80, 4).lane)
    wanted = RangeSet([OffsetRange(AT, 0, 1_000)])
    found = estimated(cast("OpenStream", SimpleNamespace(ledger=ledger)), wanted, rate)
    assert found == {"records": 800, "bytes": 80_000, "between": 0, "seconds": seconds}


def test_scattered_offsets_take_longer() -> None:
    ledger = begun()
    protocol.settle(ledger, Sweeps(), committed(ledger, 100, 80, 80, 4).lane)
    opened = cast("OpenStream", SimpleNamespace(ledger=ledger))
    # Two that are near, and a hundred that are not. The windows before had messages of 100 bytes: 0.7 µs for a record.
    near, far = (
        [OffsetRange(AT, at, at + 1) for at in (0, 101)],
        [OffsetRange(AT, at, at + 1) for at in range(10**6, 10**8, 10**6)],
    )
    found, alone = estimated(opened, RangeSet([*near, *far])), estimated(opened, RangeSet([OffsetRange(AT, 0, 101)]))
    assert found is not None
    assert alone is not None
    assert (found["records"], found["between"], alone["between"]) == (alone["records"], 100, 0)
    # As many offsets as one range of 101, at 4 seconds for 100.
    assert alone["seconds"] == round(101 * 0.04, 1)
    assert found["seconds"] == round(101 * 0.04 + 99 * 0.0015 + 100 * 0.7e-6, 1)
    assert describe_estimate(found).startswith("estimate: 81 records and 100 between them that are only read, ")
    took = {
        seconds: describe_estimate({**found, "seconds": seconds}).split(", ")[2] for seconds in (59.9, 60.0, 11223.4)
    }
    assert took == {
        59.9: "59.9 seconds and the start of Spark",
        60.0: "1 min and the start of Spark",
        11223.4: "3 h 7 min and the start of Spark",
    }


def test_what_is_stored_already() -> None:
    ledger = begun()
    committed(ledger, 100, 100, 50, 1)
    committed(ledger, 200, 100, 100, 1)
    view = ledger.view()

    def stored(start: int, until: int, *, dead: RangeSet = NOTHING, all_dead: bool = False) -> StoredMessages:
        return stored_before(view, RangeSet([OffsetRange(AT, start, until)]), dead, all_dead=all_dead)

    # Exact for whole windows. Beyond the windows there is nothing.
    assert [stored(*one) for one in ((0, 200), (0, 100), (150, 300), (200, 300))] == [
        StoredMessages(150, 150),
        StoredMessages(50, 50),
        StoredMessages(50, 50),
        StoredMessages(0, 0),
    ]
    # Of a part, nobody knows which of the window's messages they are: no average tells it.
    assert (stored(0, 40), stored(0, 70), stored(0, 99)) == (
        StoredMessages(0, 40),
        StoredMessages(20, 50),
        StoredMessages(49, 50),
    )
    assert (str(stored(0, 70)), str(stored(0, 100)), stored(0, 70).exact) == ("20 to 50", "50", None)
    dead = RangeSet([OffsetRange(AT, 0, 40)])
    assert stored(0, 70, dead=dead) == StoredMessages(20, 30)
    assert stored(0, 40, dead=dead) == StoredMessages(0, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.lists(st.sampled_from(OUTCOMES), min_size=12, max_size=12),
    chosen=st.sets(st.integers(0, 11), min_size=1),
    replayed=st.sets(st.integers(0, 11), max_size=3),
    sinks=st.sampled_from([None, ("hbase",)]),
    into=st.sampled_from([[], ["hbase"]]),
    asked=st.sampled_from(["records", "dead letters", "window"]),
)
def test_a_plan_says_how_many_messages_have_rows(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[Fate | Slot],
    chosen: set[int],
    replayed: set[int],
    sinks: tuple[str, ...] | None,
    into: list[str],
    asked: str,
) -> None:
    """Whatever was picked by hand, and whatever was replayed before, the number is true, or between those that it says."""
    made = KnownStream(tmp_path_factory.mktemp("known"), contents)
    made.ends((0, 12))
    while ingest.plan_ingest(made.opened, "run 1") is not None:
        made.process(INGEST)
    if replayed:
        made.replay("before", *((one, one + 1) for one in replayed), sinks=sinks)
    fields: dict[str, Any] = {"records": "\n".join(f"orders/0@{one}" for one in sorted(chosen)), "sinks": into}
    letters = Fate.DEAD_LETTER in contents
    if asked == "dead letters" and letters:
        fields = {"dead_letters": "*"}
    elif asked == "window":
        fields = {"window": "ingest"}
    request = ReplayRequest(reason="bug 17", dry_run=True, **fields)
    plan, read = planned(made.opened, request), plan_request(made.opened, request).all
    authority = made.opened.ledger.authority("hbase")
    truth = sum(
        (at(0), one) in read
        for one, row in made.results.held.items()
        if authority.of(at(0), one) == row.mark.generation
    )
    assert plan.stored_at_least <= truth <= plan.stored_at_most
    assert plan.stored_before in (None, truth)
    # A replay into one sink alone may have found a row where a dead letter still counts.
    known = asked == "dead letters" and letters and not (replayed and sinks)
    # Without gaps and skipped messages, only dead letters have no rows, and these are looked up.
    plain = not {Fate.SKIPPED, Fate.NO_MESSAGE} & set(contents)
    if known or (not replayed and (asked == "window" or (plain and "sinks" not in fields))):
        assert plan.stored_before == (0 if known else truth)
