"""A window with more invalid messages than `max_invalid` fails and leaves nothing; with enough budget it commits."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.support.cuts import read_by
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS, Example
from tidemark.clients.environment import from_environment
from tidemark.clients.lake import lake_folder
from tidemark.errors import EXIT_FAILED, TooManyInvalid
from tidemark.ledger.records import LaneKind

pytestmark = pytest.mark.usefixtures("spark")

MESSAGES = 300


def ends(live: LiveStream) -> dict[tuple[str, int], int]:
    topics = live.opened.log.topics(list(live.topics), "read_committed")
    return {(name, number): one.end for name, topic in topics.items() for number, one in topic.partitions.items()}


def assert_nothing_is_left(live: LiveStream) -> None:
    for table in (live.name, f"{live.name}_dead"):
        found = live.independent.hbase(table)
        assert (found.rows, found.debris) == ([], 0)
    lake = Path(lake_folder(from_environment("lake_default")))
    assert [one for one in lake.glob(f"{live.name}/lane=*/**/*") if one.is_file()] == []


@pytest.mark.parametrize("by", ["number", pytest.param("share", marks=pytest.mark.full)])
def test_beyond_the_budget_nothing_is_left_and_exactly_at_it_the_same_window_commits(
    make: Make, example: Example, ledger: str, by: str
) -> None:
    live = make(example, ledger=LEDGERS[ledger])
    live.produce(MESSAGES)
    dead = live.expected(ends(live)).dead
    allowed = len(dead)
    assert allowed > 1
    within: dict[str, Any] = {"number": allowed} if by == "number" else {"share": allowed / MESSAGES}
    below: dict[str, Any] = {"number": allowed - 1} if by == "number" else {"share": (allowed - 1) / MESSAGES}

    live.rewrite(limits={"max_invalid": below})
    run = live.new_run()
    with pytest.raises(TooManyInvalid) as caught:
        live.ingest(run)
    said = str(caught.value)
    assert caught.value.exit_code == EXIT_FAILED
    assert f"{allowed} of the {MESSAGES} messages of window 1 of {live.name}/ingest are invalid" in said
    assert_nothing_is_left(live)
    head = live.head()
    assert head.pending is not None
    assert (head.seq, set(live.positions().values())) == (0, {0})
    # As the oracle has them: each reason with its number, and the first coordinate that has it.
    for reason, number in Counter(dead.values()).items():
        topic, partition, offset = min(place for place, why in dead.items() if why == reason)
        assert f"{number} x '{reason}', such as {topic}/{partition}@{offset}" in said

    # More comes meanwhile; the budget is raised to exactly what the window has.
    live.produce(60)
    live.rewrite(limits={"max_invalid": within})
    (record,) = live.ingest(run)
    assert (record.seq, read_by([record])) == (1, MESSAGES)
    assert record.window == head.pending.window
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_the_five_most_frequent_reasons_are_named(make: Make) -> None:
    checks = [
        {"invalid_when": f"code = {number}", "reason": f"code is {number}"} for number in (0, 900, 901, 902, 903, 904)
    ]
    live = make(CDN, checks=checks, limits={"max_invalid": {"number": 0}})
    line = '203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET http://a.b/c HTTP/1.1" {} 5321 0.132'
    # Code 900 once, 901 twice, and so on to 904; garbage six times; two in each partition but the first are good.
    bad = [line.format(number) for number in range(900, 905) for _ in range(number - 899)] + ["garbage"] * 6
    (topic,) = live.topics
    live.kafka.send((topic, 0, None, one.encode()) for one in bad)
    live.kafka.send((topic, partition, None, line.format(200).encode()) for partition in (1, 2, 3) for _ in range(2))
    with pytest.raises(TooManyInvalid) as caught:
        live.ingest()
    said = str(caught.value)
    assert "21 of the 27 messages" in said
    shown = said.partition("Reasons: ")[2].partition(". Correct the stream file")[0].split("; ")
    assert shown == [
        f"6 x 'matches no pattern', such as {topic}/0@15",
        *(
            f"{code - 899} x 'code is {code}', such as {topic}/0@{sum(range(code - 899))}"
            for code in (904, 903, 902, 901)
        ),
        "1 with other reasons",
    ]


@pytest.mark.full
def test_a_corrected_stream_file_reads_the_pinned_window(make: Make) -> None:
    """What fails goes on failing, run after run, until somebody corrects the file: the same window then commits."""
    wrong = [{"invalid_when": "size >= 0", "reason": "size is not negative"}]
    live = make(CDN, checks=wrong, limits={"max_invalid": {"share": 0.1}})
    live.produce(MESSAGES)
    run = live.new_run()
    for _ in range(2):
        with pytest.raises(TooManyInvalid, match="size is not negative"):
            live.ingest(run)
        live.produce(20)
    assert_nothing_is_left(live)
    live.rewrite(limits={"max_invalid": {"share": 0.1}})
    (record,) = live.ingest(run)
    assert read_by([record]) == MESSAGES
    live.ingest()
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_each_window_has_the_whole_budget(make: Make) -> None:
    """Three windows with one invalid message each are within a budget of one; a replay of all three is not."""
    live = make(CDN, limits={"max_records": 8, "max_invalid": {"number": 1}})
    good = '203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET http://a.b/c HTTP/1.1" 200 5321 0.132'
    (topic,) = live.topics
    for _ in range(3):
        values = [good] * 7 + ["garbage"]
        live.kafka.send((topic, number % 4, None, value.encode()) for number, value in enumerate(values))
        (record,) = live.ingest()
        assert read_by([record]) == 8
    live.assert_exactly_what_was_read()
    live.rewrite(limits={"max_invalid": {"number": 1}})
    run = live.new_run()
    with pytest.raises(TooManyInvalid, match="3 of the 6 messages"):
        live.select(LaneKind.REPLAY, live.ranges(0, 3, (0, 6)), run)
    # Nothing that counts has changed.
    live.assert_exactly_what_was_read()
    live.rewrite(limits={"max_invalid": {"number": 3}})
    live.select(LaneKind.REPLAY, live.ranges(0, 3, (0, 6)), run)
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_an_empty_window_has_spent_nothing(make: Make) -> None:
    """A window of aborted messages alone reads nothing: its share is 0."""
    live = make(CDN, limits={"max_invalid": {"share": 0.0}})
    (topic,) = live.topics
    with closing(KafkaProducer(bootstrap_servers=live.kafka.servers, transactional_id=live.name)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(4):
            producer.send(topic, b"garbage", partition=number)
        producer.flush()
        producer.abort_transaction()
    (record,) = live.ingest()
    assert read_by([record]) == 0
    assert sum(live.positions().values()) > 0
