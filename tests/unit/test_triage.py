"""The order of many streams: the worst first, whatever is known of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.overviews import partition, shown_overview
from tests.support.stream_text import MINIMAL
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.views.audits import AuditEnded
from tidemark.views.overview import IngestDeadLetters, Status
from tidemark.views.scheduling import Scheduling
from tidemark.views.state_words import StreamState
from tidemark.views.states import reasons_of, state_of
from tidemark.views.status import PartitionState
from tidemark.views.stream_line import StreamLine, line_of
from tidemark.views.triage import (
    StreamFilter,
    StreamNow,
    counted,
    in_order,
    matching,
    stream_now,
    with_state,
)

FAR = 2**60
PAUSED = Scheduling("orders__ingest", 0, paused=True)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL)
    return load(path).stream


def line(word: str | None, lag: int = 0, **given: Any) -> StreamLine:
    status = None if word is None else Status(word, "a rule", "orders", 0, "a sentence")
    return line_of(shown_overview(partition(lag=lag), status=status, **given))


def worst_of(line: StreamLine) -> StreamState:
    return state_of(reasons_of(line))


def named(stream: Stream, name: str, shown: StreamLine | None, problem: str | None = None, **given: Any) -> StreamNow:
    return replace(stream_now(stream, shown, problem), stream=name, **given)


def names(streams: list[StreamNow], **wanted: Any) -> list[str]:
    asked = StreamFilter(**wanted)
    return [one.stream for one in in_order(matching(streams, asked), asked)]


@pytest.mark.covers("U19")
def test_the_worst_is_first_by_its_state_and_then_by_how_long_a_message_waits(stream: Stream) -> None:
    streams = [
        named(stream, "fine", line("OK")),
        named(stream, "behind", line("OK", 5, unread_since=100)),
        named(stream, "unknown", None),
        named(stream, "unborn", line(None)),
        # Fewer offsets that wait for longer are worse than more that have just come.
        named(stream, "long", line("STOPPED", 3, unread_since=10)),
        named(stream, "short", line("STOPPED", FAR, unread_since=20)),
        named(stream, "dateless", line("STOPPED", FAR + 1)),
        named(stream, "away", None, "Unreachable: nobody is there"),
        named(stream, "hole", line("OK", holes=["orders/0@1-2"])),
        named(stream, "topicless", line(None, missing_topics=["orders"])),
    ]
    order = ["away", "long", "short", "dateless", "topicless", "hole", "unborn", "behind", "fine", "unknown"]
    assert names(streams) == order
    # Other orders are of what is known, and what is equal there is as in that one.
    assert names(streams, sort="lag", down=True)[:4] == ["dateless", "short", "behind", "long"]
    # What is not known is last either way, and what nobody has asked after that.
    for down in (False, True):
        assert names(streams, sort="lag", down=down)[-2:] == ["away", "unknown"]
    assert names(streams, sort="lag")[-6:-2] == ["long", "behind", "short", "dateless"]
    assert names(streams, sort="name", down=True) == [*sorted(set(order) - {"unknown"}, reverse=True), "unknown"]
    assert [(one.state.value, one.streams) for one in counted(streams)] == [
        ("UNREACHABLE", 1),
        ("STOPPED", 3),
        ("NO TOPIC", 1),
        ("HOLES", 1),
        ("NEW", 1),
        ("OK", 2),
    ]


@pytest.mark.covers("U19")
@pytest.mark.parametrize("word", PartitionState)
def test_each_word_of_a_partition_is_a_state_and_worse_things_go_before_it(word: PartitionState) -> None:
    assert worst_of(line(word.value)) == StreamState(word.value)
    assert worst_of(line(word.value, missing_topics=["orders"])) in (StreamState.NO_TOPIC, StreamState(word.value))
    lost = line(word.value, lost_unread=["orders/0@1-2: Kafka has deleted it before it was read"])
    assert worst_of(lost) == (StreamState.STOPPED if word == PartitionState.STOPPED else StreamState.LOST)


@pytest.mark.covers("U19")
def test_a_stream_whose_ingest_is_paused_is_not_ok_and_what_is_worse_is_still_said(stream: Stream) -> None:
    for word, state in (
        ("OK", StreamState.PAUSED),
        (None, StreamState.PAUSED),
        ("WARNING", StreamState.WARNING),
        ("STOPPED", StreamState.STOPPED),
    ):
        now = stream_now(stream, line(word), None, PAUSED)
        assert (now.state, StreamState.PAUSED in {reason.state for reason in now.reasons}) == (state, True)
    away = stream_now(stream, None, "Unreachable: HBase at h:1 did not answer", PAUSED)
    assert [reason.state for reason in away.reasons] == [StreamState.UNREACHABLE, StreamState.PAUSED]
    assert with_state(shown_overview(partition(lag=0), status=line("OK").status), 1, PAUSED).state == StreamState.PAUSED


@pytest.mark.covers("U19")
def test_streams_are_chosen_by_words_owner_tag_and_state(stream: Stream) -> None:
    streams = [
        named(stream, "a", line("OK"), owner="Ann", tags=["money", "eu"]),
        named(stream, "b", line("STALLED"), owner="Bob", tags=["money"], description="Payments (raw)"),
        named(stream, "c", None, "Unreachable: HBase at h:1 did not answer", owner=None),
    ]
    assert names(streams, words=" PAYMENTS (r") == ["b"]
    # A text of people is text, never a pattern.
    assert names(streams, words=".*") == []
    assert names(streams, words="hbase at") == ["c"]
    assert names(streams, owner="Ann") == ["a"]
    assert names(streams, tag="money") == ["b", "a"]
    assert names(streams, state=StreamState.UNREACHABLE) == ["c"]
    assert names(streams, sort="owner") == ["a", "b", "c"]
    assert names(streams, sort="tags") == ["b", "a", "c"]


@pytest.mark.covers("U19")
def test_orders_by_retention_dead_letters_and_audits(stream: Stream) -> None:
    def audited(*, clean: bool) -> AuditEnded:
        return AuditEnded("orders__audit/1", 1, "full", clean, "a sentence")

    streams = [
        named(stream, "a", line("OK", ingest=IngestDeadLetters(1, 100, 2, [1], [2], None), audit=audited(clean=True))),
        named(stream, "b", line("OK", ingest=IngestDeadLetters(1, 100, 7, [1], [7], None))),
        named(stream, "c", line("OK", audit=audited(clean=False))),
        named(stream, "d", line_of(shown_overview(partition(retention="lost")))),
        named(stream, "e", line_of(shown_overview(partition(retention="warning", retention_ms=5)))),
    ]
    assert names(streams, sort="dead", down=True)[:2] == ["b", "a"]
    assert names(streams, sort="dead")[1:3] == ["a", "b"]
    for down, of_audits in ((False, ["c", "a"]), (True, ["a", "c"])):
        assert names(streams, sort="audit", down=down)[:2] == of_audits
    assert names(streams, sort="retention")[:2] == ["d", "e"]
