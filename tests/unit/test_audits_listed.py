"""The audits of a stream as a list: the newest first, what each counted and found, and which were repaired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import StreamInMemory, offsets
from tidemark.audit.comparison import DeadLetterReason, Example, PlaceComparison, ReplayComparison
from tidemark.audit.levels import Level
from tidemark.audit.repair import name_after_repair
from tidemark.audit.report import AuditReport, CoverageReport, ForgottenReport, PlaceReport, TombstoneReport
from tidemark.cli import stream_lookup
from tidemark.cli.commands import audit as commands
from tidemark.errors import WrongUse
from tidemark.ledger.records import TopicIncarnation
from tidemark.ledger.register import change_topics
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.auditing import audit_without_spark, find_report, store_report
from tidemark.runs.comparisons import find_comparison, store_comparison
from tidemark.views.audits import MAX_AUDITS, AuditList, AuditShown, PlaceOfAudit, Repaired, audits, folded

PLACE = PlaceReport(
    name="hbase",
    expected=9,
    found=6,
    missing=3,
    different=0,
    extra=1,
    twice=0,
    debris=2,
    missing_at=("orders/0@1", "orders#2/0@2", "orders/0@9007199254740993"),
    extra_at=("orders/0@7",),
)
COVERAGE = CoverageReport(partition="orders/0", start=0, position=9, covered=8, holes=("orders/0@3-4",), overlaps=())


def stored(made: StreamInMemory, run: str, at: int, **fields: Any) -> AuditReport:
    given = {"code_version": "v", "coverage": (), "ledger_problems": (), "places": (), "level": Level.FULL}
    found = AuditReport(stream="orders", run=run, at=at, **{**given, **fields})
    store_report(made.opened, found)
    return found


def listed(made: StreamInMemory, limit: int = 20) -> list[AuditShown]:
    return audits(made.opened, limit).audits


@pytest.mark.covers("U11")
def test_the_newest_audits_come_first_with_what_they_found(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    none = audits(made.opened)
    assert none == AuditList([], more=False, levels=none.levels)
    # What an audit that is started here looks at, and which of them take offsets.
    assert [(one.name, one.reads) for one in none.levels] == [
        *(("ledger", False), ("source", False)),
        *(("sinks", True), ("full", True), ("recompute", True)),
    ]
    findings = made.opened.ledger.store_selection(offsets((0, 1, 3), (0, 7, 8)))
    dirty = stored(made, "dag/run 1", 1_000, places=(PLACE,), coverage=(COVERAGE,), findings=findings)
    # By time, and not by the names of the runs.
    stored(made, "a", 3_000)
    stored(made, "z", 2_000)
    assert [one.run for one in listed(made)] == ["a", "z", "dag/run 1"]
    one = listed(made)[2]
    assert (one.at, one.level, one.clean, one.sentence) == (1_000, "full", False, dirty.sentence())
    assert one.found.places == [
        PlaceOfAudit(
            name="hbase",
            counts={
                "expected": 9,
                "found": 6,
                "missing": 3,
                "different": 0,
                "extra": 1,
                "twice": 0,
                "debris": 2,
                "blocks": 0,
            },
            at={"missing": list(PLACE.missing_at), "extra": ["orders/0@7"]},
            named={"missing": len(PLACE.missing_at), "extra": 1},
            blocks_at=[],
        )
    ]
    assert (one.found.holes, one.found.selection) == (["orders/0@3-4"], findings.digest)
    assert (one.found.offsets, one.found.sinks) == (3, None)
    assert (one.found.ranges, one.found.more_ranges) == (["orders/0@1-3", "orders/0@7-8"], 0)
    # A level that compares nothing counts nothing.
    made.ends((0, 10))
    made.ingest()
    made.now = 4_000
    audit_without_spark(made.opened, "quick", Level.LEDGER)
    assert [(one.run, one.found.places) for one in listed(made, 1)] == [("quick", [])]
    found = audits(made.opened, 3)
    assert ([one.run for one in found.audits], found.more) == (["quick", "a", "z"], True)
    # Once the topic was made anew, what is named without its incarnation would be another message.
    anew = TopicIncarnation(topic_id="new", incarnation=2, since=2)
    change_topics(made.opened.ledger, lambda topics: {"orders": (*topics["orders"], anew)})
    last = listed(made)[-1]
    (place,) = last.found.places
    assert place.at["missing"] == ["orders#1/0@1", "orders#2/0@2", "orders#1/0@9007199254740993"]
    report = find_report(made.opened, last.run)
    assert report is not None
    assert [one.partition for one in report.coverage] == ["orders#1/0"]


@pytest.mark.covers("U11")
def test_what_people_and_messages_say_in_a_report_stays_as_they_have_said_it(tmp_path: Path) -> None:
    """Also where it looks like a message."""
    said, known = "orders/0@5", "orders#1/0@5"
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    made.ingest()
    stone = TombstoneReport(
        window=said, at=1, run=said, reason=said, asked_by=said, approved_by=said, offsets=1, ranges=(said,)
    )
    gone = ForgottenReport(name=said, type="parquet", place=said, at=1, reason=said, by=said)
    reason = DeadLetterReason(reason=said, number=1, first=said)
    example = Example(at=said, index=0, columns=(said,), why=said)
    place = PlaceComparison(name=said, before=1, after=1, same=0, changed=1, new=0, gone=0, changed_at=(example,))
    stored(made, said, 1, tombstones=(stone,), forgotten=(gone,), not_compared=(said,), ledger_problems=(said,))
    given: dict[str, Any] = {
        **dict.fromkeys(("at", "offsets", "messages", "stored", "skipped", "dead_letters"), 1),
        **dict.fromkeys(("stream", "run", "code_version", "stream_digest", "selection"), said),
    }
    store_comparison(made.opened, ReplayComparison(**given, places=(place,), reasons=(reason,), sinks=(said,)))
    anew = TopicIncarnation(topic_id="new", incarnation=2, since=2)
    change_topics(made.opened.ledger, lambda topics: {"orders": (*topics["orders"], anew)})
    report, comparison = find_report(made.opened, said), find_comparison(made.opened, said)
    assert report is not None
    assert (report.run, report.not_compared, report.ledger_problems) == (said, (said,), (said,))
    assert report.tombstones == (structs.replace(stone, ranges=(known,)),)
    assert report.forgotten == (gone,)
    assert comparison is not None
    assert (comparison.run, comparison.sinks) == (said, (said,))
    assert comparison.reasons == (structs.replace(reason, first=known),)
    assert comparison.places == (structs.replace(place, changed_at=(structs.replace(example, at=known),)),)


@pytest.mark.covers("U11")
def test_a_repair_stands_beside_what_it_repaired(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    stored(made, "run", 1_000, places=(PLACE,))
    # An older repair, of an audit of the same name.
    stored(made, name_after_repair("run"), 500)
    assert [(one.run, one.repair_of, one.repaired) for one in listed(made)] == [
        ("run", None, None),
        ("run/after-repair", "run", None),
    ]
    stored(made, name_after_repair("run"), 2_000)
    again, first = listed(made)
    assert (again.repair_of, again.at, again.clean) == ("run", 2_000, True)
    assert first.repaired == Repaired("run/after-repair", 2_000, clean=True)


def test_a_run_that_audits_again_has_one_report(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    stored(made, "run", 1_000, places=(PLACE,))
    stored(made, "other", 1_000)
    stored(made, "run", 2_000)
    assert [(one.run, one.at, one.clean) for one in listed(made)] == [
        ("run", 2_000, True),
        ("other", 1_000, True),
    ]


def test_a_report_that_is_gone_or_unreadable_is_one_line_that_says_so(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    for at, run in enumerate(("gone", "broken", "good"), 1):
        stored(made, run, at)
    del made.store.values["report", "gone"]
    made.store.values["report", "broken"] = b"{}"
    good, broken, gone = listed(made)
    assert (good.problem, gone.problem) == (None, "its report is no longer in the ledger")
    assert "the report of broken cannot be read" in broken.problem
    assert (gone.found, broken.found) == (None, None)


def test_the_last_audit_of_an_older_version_is_listed(tmp_path: Path) -> None:
    """Which kept the last outcome, and no list."""
    made = StreamInMemory(tmp_path)
    stored(made, "old", 1_000)
    for key in [key for key in made.store.values if key[0] == "audits"]:
        del made.store.values[key]
    assert [one.run for one in listed(made)] == ["old"]
    stored(made, "new", 2_000)
    assert [one.run for one in listed(made)] == ["new"]


class Reads(MemoryStore):
    """Counts the reports that are read, and refuses to scan them."""

    def __init__(self) -> None:
        super().__init__()
        self.reports = 0

    def read(self, key: Key) -> bytes | None:
        self.reports += key[0] == "report"
        return super().read(key)


def test_of_many_audits_only_the_reports_that_are_shown_are_read(tmp_path: Path) -> None:
    store = Reads()
    made = StreamInMemory(tmp_path, store=store)
    report = stored(made, "run", 0)
    hour = 3_600_000
    for at in range(1, 300):
        store_report(made.opened, structs.replace(report, run=f"run {at}", at=at * hour))
    store.reports = 0
    assert [one.at // hour for one in listed(made, 5)] == [299, 298, 297, 296, 295]
    assert store.reports == 5


def test_the_command_lists_the_audits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = StreamInMemory(tmp_path)
    stored(made, "run 1", 1_000, places=(PLACE,))
    for at in range(2, MAX_AUDITS + 2):
        stored(made, f"run {at}", at * 1_000)
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    commands.report("orders", "", None, as_json=False)
    said = capsys.readouterr()
    assert "1970-01-01 00:01:41Z" in said.out
    assert f"run {MAX_AUDITS + 1}" in said.out
    assert "run 1 " not in said.out
    assert "Only the newest 100 are shown." in said.err
    commands.report("orders", "", None, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["audits"]) == MAX_AUDITS
    with pytest.raises(WrongUse, match="--html: say which run's report"):
        commands.report("orders", "", tmp_path / "page.html", as_json=False)


def test_the_command_names_holes_and_overlaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = StreamInMemory(tmp_path)
    many = structs.replace(COVERAGE, holes=tuple(f"orders/1@{at}-{at + 1}" for at in range(0, 250, 2)))
    overlap = structs.replace(COVERAGE, holes=(), overlaps=("orders/2@5-9",))
    stored(made, "run 1", 1_000, coverage=(COVERAGE, many, overlap))
    stored(made, "run 2", 2_000, coverage=(overlap,))
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    commands.report("orders", "run 1")
    said = capsys.readouterr()
    lines = [one for one in said.out.splitlines() if one.startswith("coverage: ")]
    assert lines[:2] == ["coverage: hole orders/0@3-4", "coverage: hole orders/1@0-1"]
    assert lines[-2:] == ["coverage: 26 more holes", "coverage: overlap orders/2@5-9"]
    assert len(lines) == 102
    assert "To read them: tidemark backfill orders --holes" in said.err
    commands.report("orders", "run 2")
    assert "backfill" not in capsys.readouterr().err


@pytest.mark.covers("U11")
def test_a_lost_file_is_named_as_ranges_and_not_offset_by_offset(tmp_path: Path) -> None:
    assert folded(f"orders/0@{offset}" for offset in (*range(5, 25), 30, 31)) == ["orders/0@5-25", "orders/0@30-32"]
    assert folded(["a/0@7", "a/1@8", "a/1@7"]) == ["a/0@7", "a/1@8", "a/1@7"]
    assert folded(()) == []
    made = StreamInMemory(tmp_path)
    lost = [offsets((0, start, start + 1)) for start in range(0, 60, 2)]
    findings = made.opened.ledger.store_selection(RangeSet(one for part in lost for one in part))
    stored(made, "dag/run 1", 1_000, places=(PLACE,), findings=findings)
    (one,) = listed(made)
    assert (len(one.found.ranges), one.found.more_ranges) == (20, 10)
