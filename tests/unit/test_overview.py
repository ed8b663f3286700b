"""The page and `tidemark status` only look: nothing in the ledger changes, also where work was left half done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Never

import pytest

from tests.support.claiming import claim_lane
from tests.support.overviews import partition, shown_overview
from tests.support.protocol_world import NoWork
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, offsets
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Run, Step
from tidemark.ledger.ledger import head_key
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.stores.contract import Key
from tidemark.runs.windows import ingest, lanes
from tidemark.views.overview import Overview, PartitionNow, overview, worst_partitions
from tidemark.views.state_words import StreamState
from tidemark.views.status import PartitionState, VerdictRule
from tidemark.views.summary import SkippedCounts
from tidemark.views.triage import with_state
from tidemark.views.values import PartitionRanges, as_plain

PARTITIONS = 1_000


class Cut(Exception):
    """The program has died here."""


@pytest.mark.covers("Q13")
def test_looking_at_a_stream_writes_nothing(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    store, opened = orders.store, orders.opened
    orders.ends((0, 18), (0, 6))
    orders.ingest("run 1")
    orders.ends((0, 30), (0, 6))

    def looked_at() -> Overview:
        before = dict(store.values)
        found = overview(opened)
        assert store.values == before
        return found

    # Committed, and not settled yet.
    assert ingest.plan_ingest(opened, "run 2") is not None
    with pytest.raises(Cut):
        protocol.process(
            opened.ledger, orders.sweeps, NoWork(), unwatched, INGEST, 2, Run("run 2", "v1", "d"), on_step=_cut
        )
    swept = list(orders.sweeps.swept)
    assert len(looked_at().windows) == 2
    assert orders.sweeps.swept == swept

    # A replay whose opening was cut off: it is in the register, and has no head.
    def before_head(key: Key) -> None:
        if key == head_key(lanes.lane_name(LaneKind.REPLAY, "mine")):
            raise Cut

    store.before_swap = before_head
    with pytest.raises(Cut):
        claim_lane(opened, LaneKind.REPLAY, "mine", offsets((0, 3, 5)), "a test")
    looked_at()


@pytest.mark.slow
def test_an_answer_stays_small_though_each_window_has_a_thousand_partitions(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    for number in range(1, 61):
        orders.ends(*((0, 10 * number) for _ in range(PARTITIONS)))
        orders.ingest()
    orders.ends(*((0, 700 if partition in (7, 300) else 600) for partition in range(PARTITIONS)))
    found = overview(orders.opened)
    newest = found.windows[0]
    assert (newest.ranges[0], len(newest.ranges), newest.more_ranges) == (
        PartitionRanges("orders/0", 590, 600),
        10,
        PARTITIONS - 10,
    )
    assert len(found.partitions) == PARTITIONS
    shown = worst_partitions(found, 100)
    assert (len(shown.partitions), shown.more_partitions) == (100, PARTITIONS - 100)
    # Those with a lag, and then the first ones.
    assert [one.partition for one in shown.partitions[:4]] == [7, 300, 0, 1]
    # What the page asks for every five seconds.
    assert len(json.dumps(as_plain(shown))) < 150_000 < len(json.dumps(as_plain(found)))
    assert worst_partitions(found, PARTITIONS).partitions == found.partitions


def test_the_worst_partitions_are_those_of_retention_then_of_status_then_of_lag() -> None:
    def row(number: int, lag: int | None = 0, status: str | None = "OK", retention: str = "safe") -> PartitionNow:
        return partition(partition=number, lag=lag, status=status, retention=retention)

    far = 2**62
    rows = [
        row(0),
        row(1, None, None),
        row(2, far),
        row(3, far + 1),
        row(4, 1, "STOPPED"),
        row(5, retention="lost"),
    ]
    shown = worst_partitions(shown_overview(*rows), 5)
    assert [one.partition for one in shown.partitions] == [5, 4, 3, 2, 0]
    assert shown.more_partitions == 1


def test_counts_of_offsets_are_texts_as_offsets_are(tmp_path: Path) -> None:
    far = 2**60
    text = TEXT.replace("  start: earliest\n", "  start: earliest\n  on_out_of_range: earliest\n")
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=text)
    orders.ends((0, 10))
    orders.ingest()
    orders.ends((far, far + 5))
    orders.ingest()
    assert overview(orders.opened).windows[0].passed_over == SkippedCounts(far - 10, 0)
    lane = claim_lane(orders.opened, LaneKind.REPLAY, "mine", offsets((0, far, far + 5)), "a test")
    lanes.plan_lane(orders.opened, lane, "mine")
    assert overview(orders.opened).windows[0].selected == 5


def _cut(step: Step) -> None:
    if step == Step.COMMITTED:
        raise Cut


@pytest.mark.covers("Q14")
def test_marks_of_direction_in_a_description_are_shown_by_their_numbers(tmp_path: Path) -> None:
    text = TEXT + 'description: "ours \\u202eand \\x1b[2Jtheirs"\n'
    assert (
        overview(StreamInMemory(tmp_path, kafka=LookedAt(), text=text).opened).description
        == "ours \\u202eand \\x1b[2Jtheirs"
    )


@pytest.mark.covers("U30")
def test_a_position_of_another_topic_or_beyond_the_log_is_no_ok(tmp_path: Path) -> None:
    """The ingest refuses to read on: whoever looks has to see it, and not a lag of nothing."""
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    orders.ends((0, 18), (0, 6))
    orders.ingest("run 1")
    assert (overview(orders.opened).status or fail()).word == PartitionState.OK
    # Deleted and created again, with fewer messages.
    orders.kafka.ids["orders"] = "another id"
    orders.ends((0, 4), (1, 9))
    found = overview(orders.opened)
    assert [one.lag for one in found.partitions] == [4, 8]
    status = found.status or fail()
    assert (status.word, status.rule) == (PartitionState.REWOUND, VerdictRule.RECREATED)
    assert status.sentence == "orders/0: the topic was deleted and created again: the position 18 is of the one before"
    assert found.lag_sentence == "12 offsets are unread, in 2 of 2 partitions"
    assert with_state(found, 1).state == StreamState.REWOUND
    # The same topic, of which the end was lost.
    del orders.kafka.ids["orders"]
    orders.ends((0, 17), (0, 6))
    cut = overview(orders.opened)
    assert [one.status for one in cut.partitions] == [PartitionState.REWOUND, PartitionState.OK]
    assert (cut.status or fail()).sentence == "orders/0: the log ends at 17, below the position 18"


def fail() -> Never:
    raise AssertionError("no status")
