"""Messages in Kafka: what their headers say, and which of them count."""

from __future__ import annotations

import inspect
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.streams_in_memory import StreamInMemory, nowhere
from tidemark.errors import LedgerContradiction, NotAuthorized
from tidemark.ledger.records import INGEST
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.runs.windows import ingest
from tidemark.sinks.kafka import messages
from tidemark.sinks.kafka.messages import Origin, _PlacesRead, newest_origins, only_counting
from tidemark.sinks.stored_rows import Place

PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 1, 2), TopicPartition("a-b", 0)]

places = st.builds(Place, st.sampled_from(PARTITIONS), st.integers(0, 12), st.integers(0, 2))
origins = st.builds(
    Origin, st.sampled_from(["mine", "other"]), places, st.integers(1, 4), st.just("ingest"), st.just(1)
)


@given(
    st.builds(
        Origin,
        st.from_regex(r"[a-z][a-z0-9_]{0,62}", fullmatch=True),
        st.builds(Place, st.sampled_from(PARTITIONS), st.integers(0, MAX_OFFSET), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        st.sampled_from(["ingest", "replay-Zoë"]),
        st.integers(1, 10**18),
    )
)
def test_headers_say_what_was_written(origin: Origin) -> None:
    assert Origin.of(origin.headers()) == origin
    assert Origin.of([("trace", b"1"), *origin.headers(), ("tidemark", b"")]) == origin


def test_headers_are_those_that_are_documented() -> None:
    origin = Origin("orders", Place(TopicPartition("logs", 3, 2), 17, 0), 1795244400000, "replay-x", 4)
    assert origin.headers() == [
        ("tidemark.format", b"1"),
        ("tidemark.stream", b"orders"),
        ("tidemark.topic", b"logs"),
        ("tidemark.incarnation", b"2"),
        ("tidemark.partition", b"3"),
        ("tidemark.offset", b"17"),
        ("tidemark.index", b"0"),
        ("tidemark.generation", b"1795244400000"),
        ("tidemark.lane", b"replay-x"),
        ("tidemark.window", b"4"),
    ]


def test_messages_of_other_programs_have_no_origin() -> None:
    assert Origin.of([]) is None
    assert Origin.of([("trace", b"1"), ("tidemarks", b"2")]) is None


def test_headers_of_another_format_are_not_guessed_at() -> None:
    headers = Origin("orders", Place(PARTITIONS[0], 1, 0), 5, "ingest", 1).headers()
    with pytest.raises(ValueError, match="not the headers of format 1"):
        Origin.of([("tidemark.format", b"2"), *headers[1:]])
    with pytest.raises(ValueError, match="not the headers of format 1"):
        Origin.of(headers[:-1])


@given(
    st.lists(origins, max_size=30),
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(PARTITIONS), st.integers(0, 12), st.integers(0, 6)), max_size=6
    ),
)
def test_what_counts_is_given_once(
    written: list[Origin], committed: list[tuple[int, TopicPartition, int, int]]
) -> None:
    authority: dict[tuple[TopicPartition, int], int] = {}
    for generation, at, start, length in committed:
        for offset in range(start, start + length):
            authority[at, offset] = max(generation, authority.get((at, offset), 0))
    wanted = {
        one.place
        for one in written
        if one.stream == "mine" and authority.get((one.place.partition, one.place.offset)) == one.generation
    }
    windows = [
        (generation, RangeSet([OffsetRange(at, start, start + length)])) for generation, at, start, length in committed
    ]
    messages = [(one.headers(), "out", None, b"") for one in written]
    found = [one.origin.place for one in only_counting(messages, "mine", Authority(windows))]
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_of_many_in_a_block_none_is_given_twice() -> None:
    """More than a list of them holds, in any order."""
    numbers = random.Random(1).choices(range(65_536), k=20_000)
    seen = _PlacesRead()
    found = [number for number in numbers if seen.add(Place(PARTITIONS[0], number, 3))]
    assert found == list(dict.fromkeys(numbers))
    assert len(found) > 16_000


def test_messages_with_many_rows_take_the_memory_of_their_rows() -> None:
    seen = _PlacesRead()
    tracemalloc.start()
    for offset in (0, 1, 2, 50_000):
        assert all(seen.add(Place(PARTITIONS[0], offset, index)) for index in range(10_000))
    # Of these lines alone: threads of other tests of this process may take memory too.
    held = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, inspect.getfile(_PlacesRead))])
    tracemalloc.stop()
    assert 1_000_000 < sum(trace.size for trace in held.traces) < 5_000_000
    assert not any(seen.add(Place(PARTITIONS[0], offset, index)) for offset in (0, 50_000) for index in (0, 9_999))


def test_the_first_of_two_alike_is_given_also_at_the_edges_of_blocks() -> None:
    at = PARTITIONS[0]
    offsets = [0, 7, 8, 65_535, 65_536, MAX_OFFSET - 1]
    authority = Authority([(9, RangeSet([OffsetRange(at, 0, MAX_OFFSET)]))])
    written = [
        (Origin("mine", Place(at, offset, 0), 9, "ingest", 1).headers(), "out", None, b"%d" % number)
        for number in range(2)
        for offset in offsets
    ]
    found = list(only_counting(written, "mine", authority))
    assert [(one.origin.place.offset, one.value) for one in found] == [(offset, b"0") for offset in offsets]


_WITH_KAFKA = """
stream: orders
source:
  topics: [orders]
  start: earliest
scheme: {type: json, fields: {id: integer}}
sinks: [{type: kafka, topic: results}]
dead_letters: {type: parquet, folder: dead}
ledger: {type: sql}
"""


@pytest.mark.covers("O10")
@pytest.mark.parametrize("way", ["ingest", "import"])
def test_a_stream_does_not_begin_where_it_has_written_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Its ledger's connection leads to another database now, or the ledger was lost: it would write everything once more."""
    mine, other = (
        Origin(name, Place(TopicPartition("orders", 0), 7, 0), 5, "ingest", 3).headers()
        for name in ("orders", "others")
    )
    made = StreamInMemory(tmp_path, text=_WITH_KAFKA)
    made.ends((0, 10))
    made.opened = replace(made.opened, connections=nowhere)

    def begin() -> None:
        if way == "ingest":
            assert ingest.plan_ingest(made.opened, "run") is not None
        else:
            ingest.import_positions(made.opened, {("orders", 0): 5}, "earliest", "run", write=True)

    there: list[list[tuple[str, bytes]]] = [[], other, [("tidemark.format", b"9")], mine]
    monkeypatch.setattr(messages, "_newest", lambda cluster, topic: iter(there))
    with pytest.raises(
        LedgerContradiction, match=r"the topic results .*holds messages that stream orders has written, as of ord"
    ):
        begin()
    # Nothing was begun, and it is said each time.
    assert made.opened.ledger.head(INGEST) is None
    with pytest.raises(LedgerContradiction, match="name another topic, or delete"):
        begin()
    del there[-1]
    begin()
    # From now on, what is there may be of its own attempts.
    there.append(mine)
    ingest.plan_ingest(made.opened, "run")


def test_a_topic_that_is_only_written_to_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(cluster: object, topic: str) -> list[list[tuple[str, bytes]]]:
        if topic == "kept":
            raise NotAuthorized("no right Read")
        return [Origin("orders", Place(TopicPartition("orders", 0), 7, 0), 5, "ingest", 3).headers()]

    monkeypatch.setattr(messages, "_newest", refused)
    found = list(newest_origins(cast("Any", None), ["kept", "results"]))
    assert [(topic, origin.stream) for topic, origin in found] == [("results", "orders")]
