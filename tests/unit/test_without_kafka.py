"""The overview of a stream while Kafka does not answer: what the ledger knows is shown, and what it cannot know is None."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory
from tidemark.errors import Unreachable
from tidemark.views.overview import overview
from tidemark.views.state_words import StreamState
from tidemark.views.states import reasons_of, state_of
from tidemark.views.stream_line import line_of

SAID = "Kafka at k:1 did not answer"


@pytest.fixture
def orders(tmp_path: Path) -> StreamInMemory:
    """A stream with two windows, of two partitions, and more to read."""
    made = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    for end in (10, 30):
        made.ends((0, end), (0, 5))
        made.ingest(f"orders__ingest/{end}")
    made.ends((0, 40), (0, 6))
    return made


@pytest.mark.covers("Q25")
@pytest.mark.parametrize("question", ["topics", "high_watermarks", "open_transactions", "retention", "timestamps"])
def test_positions_lanes_and_windows_are_shown_whichever_question_kafka_does_not_answer(
    orders: StreamInMemory, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    with_kafka = overview(orders.opened)

    def away(*_: object, **__: object) -> None:
        raise Unreachable(SAID)

    monkeypatch.setattr(type(orders.kafka), question, away)
    # Who needs Kafka's part is not given half of it.
    with pytest.raises(Unreachable):
        overview(orders.opened)
    found = overview(orders.opened, without_kafka=True)
    assert found.kafka_problem == SAID
    assert (found.windows, found.lanes, found.ingest) == (with_kafka.windows, with_kafka.lanes, with_kafka.ingest)
    assert [(one.partition, one.position) for one in found.partitions] == [(0, 30), (1, 5)]
    assert {one.position for one in with_kafka.partitions} == {30, 5}
    # Nothing that only Kafka knows is made up.
    for one in found.partitions:
        assert (one.log_start, one.end, one.lag, one.status, one.retention) == (None, None, None, None, None)
    assert (found.status, found.lag, found.lag_sentence, found.missing_topics) == (None, None, None, [])
    assert state_of(reasons_of(line_of(found))) == StreamState.UNREACHABLE


@pytest.mark.covers("U1")
def test_the_lag_is_told_of_the_stream_and_then_of_its_worst_partition(orders: StreamInMemory) -> None:
    found = overview(orders.opened)
    assert found.lag == 11
    assert (found.lag_sentence or "").startswith(
        "11 offsets are unread, in 2 of 2 partitions; the oldest message waits for"
    )
    assert found.status is not None
    assert found.status.sentence.startswith("orders/0: the lag is 10")
    orders.ingest()
    assert overview(orders.opened).lag_sentence == "nothing is unread in 2 partitions"
