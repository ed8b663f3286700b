"""The levels of an audit that need no Spark, what a repair leaves, and the report as a page."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.bulk import STREAM, History, load
from tests.support.counting import CountingStore
from tests.support.lookups import LANES
from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import StreamInMemory
from tidemark.audit.deleted_messages import BlockReport
from tidemark.audit.levels import Level
from tidemark.audit.page import CONTENT_SECURITY_POLICY, page_of
from tidemark.audit.repair import beyond_repair, verdict
from tidemark.audit.report import MAX_FINDINGS, AuditReport, CoverageReport, GapReport, PlaceReport
from tidemark.audit.source import SourceReport, source_reports
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Ledger, record_key
from tidemark.ledger.records import TopicIncarnation
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.auditing import after_repair, audit_without_spark, committed_within, find_report, store_report

AT = TopicPartition("orders", 0)
COVERAGE = CoverageReport(partition="orders/0", start=0, position=9, covered=9, holes=(), overlaps=())
PLACE = PlaceReport(name="hbase", expected=9, found=8, missing=1, different=0, extra=0, twice=0, debris=0)
CLEAN = structs.replace(PLACE, found=9, missing=0)


def report(**fields: Any) -> AuditReport:
    given = {"stream": "orders", "run": "r", "at": 1_000, "code_version": "v", "coverage": (COVERAGE,)}
    return AuditReport(**{**given, "ledger_problems": (), "places": (CLEAN,), **fields})


@pytest.mark.covers("N20")
@pytest.mark.parametrize("level", [Level.LEDGER, Level.SOURCE])
def test_an_audit_without_spark(tmp_path: Path, level: Level) -> None:
    stream = StreamInMemory(tmp_path)
    with pytest.raises(WrongUse, match="has not been read yet"):
        audit_without_spark(stream.opened, "audit", level)
    stream.ends((0, 10), (0, 5))
    stream.ingest("run 1")
    stream.ends((4, 16), (0, 5))
    stream.ingest("run 2")
    stream.ends((6, 20), (0, 5))
    found = audit_without_spark(stream.opened, "audit", level)
    assert found.clean
    said = f"{level}: 2 windows cover 21 offsets"
    if level == Level.SOURCE:
        said += ", 15 of them in Kafka, 6 no longer; 4 are not read yet"
    assert found.sentence() == said
    assert (found.places, found.findings, found.expected) == ((), None, 0)
    assert find_report(stream.opened, "audit") == found
    assert find_report(stream.opened, "another") is None
    # What the page of all streams says of it.
    audited = stream.opened.ledger.last_audit()
    assert audited is not None
    assert (audited.run, audited.at, audited.level, audited.clean) == ("audit", found.at, level.value, True)
    assert audited.sentence == said

    # A record that was changed behind Tidemark's back is found at both levels.
    first = stream.store.read(record_key("ingest", 1))
    assert first is not None
    assert stream.store.swap(record_key("ingest", 1), first, first.replace(b'"run":"run 1', b'"run":"run 9'))
    found = audit_without_spark(stream.opened, "audit", level)
    assert found.ledger_problems == ("lane ingest: window 1 is not the one that window 2 followed: one was changed",)
    assert not found.clean


@pytest.mark.covers("N21")
def test_what_was_committed_within_some_hours(tmp_path: Path) -> None:
    stream = StreamInMemory(tmp_path)
    hour, began = 3_600_000, stream.now
    stream.ends((0, 10))
    stream.ingest("run 1")
    stream.now += hour
    stream.ends((0, 16))
    stream.ingest("run 2")
    found = {}
    for later in (0, 1, hour, hour + 1):
        stream.now = began + hour + later
        found[later] = list(committed_within(stream.opened, 1))
    # A window from exactly so many hours ago is among them.
    recent = [OffsetRange(AT, 10, 16)]
    assert found == {0: [OffsetRange(AT, 0, 16)], 1: recent, hour: recent, hour + 1: []}


def test_nothing_is_called_read_that_is_not(tmp_path: Path) -> None:
    stream = StreamInMemory(tmp_path)
    stream.ends((0, 10))
    stream.ingest()
    # A partition was added, and Kafka has deleted three of its messages already.
    stream.ends((0, 12), (3, 8))
    found = audit_without_spark(stream.opened, "audit", Level.SOURCE)
    assert (
        found.sentence() == "source: 1 window covers 10 offsets, 10 of them in Kafka, 0 no longer; 7 are not read yet"
    )
    assert found.source[1] == SourceReport(partition="orders/1", log_start=3, end=8, unread=5)
    # Without positions nobody knows.
    found = structs.replace(found, source=(SourceReport(partition="orders/0", log_start=0, end=9, held=5),))
    assert found.sentence() == "source: 1 window covers 10 offsets, 5 of them in Kafka, 0 no longer"


def test_what_the_level_sinks_has_not_compared_is_said() -> None:
    found = report(level=Level.SINKS, by_tallies=9, not_compared=("sums", "<b>"))
    said = "sinks: 9 of 9 offsets compared with the tallies of their blocks, debris 0, not compared: sums, <b>"
    assert found.sentence() == said
    assert "Not compared: sums, &lt;b&gt;." in page_of(found)
    left = beyond_repair(structs.replace(found, gone=5))
    assert left == (
        "5 offsets of blocks that differ, whose messages Kafka has deleted or may have compacted: see level full",
    )


@pytest.mark.parametrize(
    ("logs", "topic_id", "problem"),
    [
        ([(0, 7)], "id", "orders/0: the ledger has offsets up to 10, and the log ends at 7: it was cut"),
        ([(12, 15)], "id", "orders/0@10-12 was deleted before it was read"),
        ([(0, 20)], "new", "orders/0: the topic was recreated: its id is new, and id was read"),
        ([], "id", "orders/0: the topic has no such partition in Kafka"),
        (None, "id", "orders/0: the topic is not in Kafka"),
        ([(10, 10)], "id", None),
    ],
)
@pytest.mark.usefixtures("no_pauses")
def test_what_kafka_says_against_the_ledger(
    tmp_path: Path, logs: list[tuple[int, int]] | None, topic_id: str, problem: str | None
) -> None:
    stream = StreamInMemory(tmp_path)
    stream.ends((0, 10))
    stream.ingest()
    before = dict(stream.store.scan(("register",)))
    stream.kafka.logs = {} if logs is None else {"orders": logs}
    stream.kafka.ids["orders"] = topic_id
    found = audit_without_spark(stream.opened, "audit", Level.SOURCE)
    assert found.problems == ((problem,) if problem else ())
    assert found.clean == (problem is None)
    # An audit changes nothing: it does not learn of a topic, and accepts no change.
    assert dict(stream.store.scan(("register",))) == before
    # The ledger alone says nothing of Kafka, and asks it nothing.
    assert audit_without_spark(stream.opened, "audit", Level.LEDGER).clean


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that seems too short is asked for again after a second."""
    monkeypatch.setattr("tidemark.runs.live.kafka_now._STALE_PAUSE_SECONDS", 0)


OFFSETS = st.integers(0, 60)


@given(
    st.lists(st.tuples(OFFSETS, st.integers(1, 20)), max_size=4),
    OFFSETS,
    st.integers(0, 60),
    st.one_of(st.none(), OFFSETS),
    st.integers(1, 2),
)
def test_the_source_report_against_counting(
    windows: list[tuple[int, int]], start: int, size: int, position: int | None, incarnation: int
) -> None:
    """Offset by offset: what windows cover is held, expired, or beyond the end."""
    at, end = TopicPartition("orders", 0, incarnation), start + size
    covered = RangeSet(OffsetRange(at, first, first + count) for first, count in windows)
    if not covered and position is None:
        return
    # Two incarnations: only the newer one has a log.
    known = {"orders": tuple(TopicIncarnation(topic_id=f"id{one}", incarnation=one, since=1) for one in (1, 2))}
    logs = {"orders": TopicLog("id2", {0: PartitionLog(start, end, 0)})}
    (found,) = source_reports({} if position is None else {at: position}, covered, logs, known)
    offsets = {offset for one in covered for offset in range(one.start, one.until)}
    if incarnation == 1:
        assert found == SourceReport(partition=str(at), position=position, expired=len(offsets))
        return
    assert found.held == sum(start <= one < end for one in offsets)
    assert found.expired == sum(one < start and one < end for one in offsets)
    assert found.unread == (0 if position is None else sum(one >= position for one in range(start, end)))
    beyond = any(one >= end for one in offsets) or (position or 0) > end
    assert (found.problem is None) == (not beyond and (position is None or position >= start))


def test_a_large_ledger_is_read_as_often_as_a_small_one(tmp_path: Path) -> None:
    """Not once for each window: an audit of 100,000 windows takes seconds."""
    reads = set()
    for windows in (500, 3_000):
        store = MemoryStore()
        load(store, History(windows, LANES).values)
        counting = CountingStore(store)
        opened = replace(StreamInMemory(tmp_path).opened, ledger=Ledger(cast("Any", counting), STREAM))
        found = audit_without_spark(opened, "audit", Level.LEDGER)
        assert found.clean
        assert found.windows > windows * 0.9
        reads.add(counting.reads)
    assert len(reads) == 1


@pytest.mark.covers("N10")
def test_a_repair_is_clean_only_if_nothing_is_left() -> None:
    first = report(places=(PLACE,))
    assert verdict(first, None).clean is False
    assert verdict(report(), None).clean is True
    again = report(expected=1, stored=1)
    assert verdict(first, again).clean
    assert verdict(first, again).sentence.startswith("repaired: expected 1, stored 1")
    assert not verdict(first, report(places=(PLACE,))).clean
    assert "could not be compared after the replay" in verdict(first, report(unproven=2)).sentence


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"coverage": (structs.replace(COVERAGE, holes=("x",)),)}, "1 hole: a backfill reads them"),
        ({"coverage": (structs.replace(COVERAGE, overlaps=("x", "y")),)}, "2 overlaps"),
        ({"ledger_problems": ("window 3 is missing",)}, "window 3 is missing"),
        ({"gone": 5}, "5 offsets of blocks that differ, whose messages Kafka has deleted"),
        ({"places": (structs.replace(PLACE, missing=MAX_FINDINGS),)}, "some of 1000000 differences or more"),
        (
            {
                "gaps": (
                    GapReport(partition="p", offsets=3, messages=1, aborted=0, markers=0, compacted=0, unexplained=2),
                )
            },
            "2 messages that were counted and are gone from Kafka",
        ),
    ],
)
def test_what_no_replay_of_the_findings_mends_stays_red(wrong: dict[str, Any], said: str) -> None:
    first = report(**{"places": (PLACE,), **wrong})
    outcome = verdict(first, report())
    assert not outcome.clean
    assert said in outcome.sentence
    assert len(beyond_repair(first)) == 1


def test_an_older_repair_is_not_this_one(tmp_path: Path) -> None:
    stream = StreamInMemory(tmp_path)
    first, again = report(run="mine", at=10), report(run="mine/after-repair", at=20)
    store_report(stream.opened, first)
    assert after_repair(stream.opened, first) is None
    store_report(stream.opened, again)
    assert after_repair(stream.opened, first) == again
    assert after_repair(stream.opened, structs.replace(first, at=30)) is None


class Page(HTMLParser):
    """The texts of a page, its elements, and all of its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "h2",
    "span",
    "p",
    "table",
    "tr",
    "th",
    "td",
    "ul",
    "li",
    "code",
}
EVIL = '<script src="//evil">alert(1)</script>&<img onerror=x>\'"'


@pytest.mark.covers("N20")
@given(st.sampled_from(Level), st.text(), st.booleans())
def test_a_page_shows_every_text_and_obeys_none(level: Level, text: str, repaired: bool) -> None:
    text = f"{EVIL}{text}"
    wrong = structs.replace(
        PLACE,
        name=text,
        missing_at=(text,),
        blocks=1,
        blocks_at=(BlockReport(at=text, window=text, expected=2, found=1, what="rows"),),
    )
    found = report(
        stream=text,
        run=text,
        code_version=text,
        level=level,
        places=(wrong,) if level.needs_spark else (),
        coverage=(structs.replace(COVERAGE, partition=text, holes=(text,)),),
        ledger_problems=(text,),
        source=(SourceReport(partition=text, problem=text),) if level == Level.SOURCE else (),
    )
    page = page_of(found, report(run=text) if repaired else None)
    shown = Page(page)
    assert shown.tags <= TAGS
    assert shown.attributes <= {"lang", "charset", "class"}
    assert EVIL in shown.text
    # It stands alone: there is nothing that a browser would load.
    assert "src=" not in page.replace("src=&#34;", "")
    assert "url(" not in page
    # It says how deep the audit has looked, and what it says nothing about.
    assert level.looked_at in shown.text
    assert level.left_out in shown.text


def test_a_page_names_the_outcome_and_the_differences() -> None:
    wrong = structs.replace(PLACE, missing=3, missing_at=("orders/0@4", "orders/0@5"))
    first, again = report(places=(wrong,)), report(expected=3, stored=3)
    text = Page(page_of(first)).text
    assert "Not clean" in text
    assert "missing orders/0@4" in text
    assert "missing: 1 more row" in text
    assert "Clean" in Page(page_of(report())).text
    text = Page(page_of(first, again)).text
    assert "Repaired" in text
    assert "The audit after the repair" in text
    assert "'unsafe-inline'" not in CONTENT_SECURITY_POLICY


def test_a_page_is_light_or_dark_as_the_readers_system() -> None:
    """Each colour has one for either."""
    style = page_of(report()).partition("<style>")[2].partition("</style>")[0]
    assert "color-scheme: light dark" in style
    pairs = re.findall(r"light-dark\((#\w+), (#\w+)\)", style)
    assert sorted(re.findall(r"#\w+", style)) == sorted(one for pair in pairs for one in pair)
    assert len(pairs) >= 4


@pytest.mark.covers("N10")
def test_after_a_repair_rows_are_made_again_if_they_were_before() -> None:
    assert {one: one.after_repair for one in Level if one.needs_spark} == {
        Level.SINKS: Level.FULL,
        Level.FULL: Level.FULL,
        Level.RECOMPUTE: Level.RECOMPUTE,
    }
