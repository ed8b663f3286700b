"""A large replay or backfill needs a second person, whichever way it is started; and the ledger keeps both names."""

from __future__ import annotations

import os
import pwd
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.cli import lanes_of_runs, stream_lookup
from tidemark.cli.app import app
from tidemark.cli.commands import audit as cli_auditing
from tidemark.cli.commands import replay as replay_command
from tidemark.errors import InvalidStreamFile, NotApproved
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import LaneEntry, LaneKind
from tidemark.ledger.register import close_lane
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import auditing, steering
from tidemark.runs.requests.approval import NOBODY_KNOWN, Requesters, check_approved, needs_approval
from tidemark.runs.windows import lanes

TWO_SINKS = TEXT.replace("dead_letters:", "  - {type: hbase, name: second, table: more}\ndead_letters:")
NAMES = st.one_of(st.none(), st.sampled_from(["ann", "bob"]))


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    stream = StreamInMemory(tmp_path, text=f"{TWO_SINKS}limits:\n  approve_above: 4\n")
    stream.ends((0, 10))
    stream.ingest()
    return stream


def ask(made: StreamInMemory, chosen: RangeSet, by: Requesters = NOBODY_KNOWN) -> LaneEntry:
    lane = claim_lane(made.opened, LaneKind.REPLAY, "run", chosen, "bug 17", by)
    entry = all_lanes(made.opened.ledger)[lane]
    close_lane(made.opened.ledger, lane, because="a test")
    # What was asked stays known when the lane is closed.
    kept = all_lanes(made.opened.ledger)[lane]
    assert (kept.asked_by, kept.approved_by) == (entry.asked_by, entry.approved_by)
    return entry


def test_a_large_replay_is_opened_when_another_person_has_approved_it(made: StreamInMemory) -> None:
    entry = ask(made, offsets((0, 0, 5)), Requesters("ann", "bob"))
    assert (entry.asked_by, entry.approved_by, entry.reason) == ("ann", "bob", "bug 17")


def test_a_small_one_needs_nobody(made: StreamInMemory) -> None:
    entry = ask(made, offsets((0, 0, 4)), Requesters("ann"))
    assert (entry.asked_by, entry.approved_by) == ("ann", None)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (NOBODY_KNOWN, r"5 offsets are more than 4 \(`limits.approve_above`\)"),
        (Requesters("ann"), "so a second person has to approve"),
        (Requesters("ann", "ann"), "ann has asked for it, and cannot approve it"),
    ],
)
def test_a_large_one_is_refused_otherwise_and_claims_nothing(made: StreamInMemory, by: Requesters, said: str) -> None:
    before = dict(made.store.values)
    with pytest.raises(NotApproved, match=said) as caught:
        ask(made, offsets((0, 0, 5)), by)
    assert (caught.value.exit_code, made.store.values) == (2, before)


def test_a_request_whose_user_is_not_known_can_be_approved_by_anybody(made: StreamInMemory) -> None:
    assert ask(made, offsets((0, 0, 5)), Requesters(None, "bob")).approved_by == "bob"


def test_on_the_command_line_a_person_names_who_has_approved(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    # No Spark here: the lane is opened, and its first window pinned.
    monkeypatch.setattr(lanes_of_runs, "process", lambda *_, **__: None)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    me = pwd.getpwuid(os.getuid()).pw_name

    def replay(approved_by: str) -> None:
        replay_command.replay(
            "orders",
            ranges=["orders/0@0-5"],
            reason="bug 17",
            run_name="mine",
            approved_by=approved_by,
            yes=True,
            as_json=True,
        )

    for approved_by, said in (("", "tidemark replay .* --approved-by NAME"), (me, f"{me} has asked for it")):
        with pytest.raises(NotApproved, match=said):
            replay(approved_by)
    replay("bob")
    entry = all_lanes(made.opened.ledger)[lanes.lane_name(LaneKind.REPLAY, "mine")]
    assert (entry.asked_by, entry.approved_by) == (me, "bob")


def test_a_repair_that_nobody_has_approved_leaves_the_report_and_says_how_to_go_on(
    made: StreamInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = made.opened.ledger.store_selection(offsets((0, 0, 5)))
    place = PlaceReport(name="hbase", expected=10, found=5, missing=5, different=0, extra=0, twice=0, debris=0)

    def audited(opened: object, name: str, *_: object, **__: object) -> AuditReport:
        """No Spark here: the first audit finds five rows missing, the one after the repair nothing."""
        wrong = not name.endswith("again") and "repair" not in name
        found = AuditReport(
            stream="orders",
            run=name,
            at=1,
            code_version="1",
            coverage=(),
            ledger_problems=(),
            places=(place,) if wrong else (),
            findings=findings if wrong else None,
        )
        auditing.store_report(made.opened, found)
        return found

    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    monkeypatch.setattr(cli_auditing, "audited", audited)
    monkeypatch.setattr(lanes_of_runs, "process", lambda *_, **__: None)
    me, page = pwd.getpwuid(os.getuid()).pw_name, tmp_path / "report.html"
    for approved_by, why in (("", "5 offsets are more than 4"), (me, f"{me} has asked for it")):
        with pytest.raises(NotApproved, match=why) as caught:
            cli_auditing.audit(
                "orders", repair="execute", yes=True, run_name="mine", html=page, approved_by=approved_by
            )
        assert "missing 5" in capsys.readouterr().out
        assert "missing" in page.read_text()
        page.unlink()
        # The command that the error names does the same, and needs no more than a name.
        _, _, command = str(caught.value).partition("without another audit first: ")
        words = shlex.split(command)
        assert words[:3] + words[-2:] == ["tidemark", "replay", "orders", "--approved-by", "NAME"]
        assert words[3:-2] == [
            "--selection",
            findings.digest,
            "--sink",
            "hbase",
            "--reason",
            "repair of what mine found",
        ]
    assert not all_lanes(made.opened.ledger).keys() - {"ingest"}
    CliRunner().invoke(app, [*words[1:-1], "bob", "--yes", "--json"], catch_exceptions=False)
    (lane,) = all_lanes(made.opened.ledger).keys() - {"ingest"}
    first = all_lanes(made.opened.ledger)[lane]
    assert first.selection is not None
    assert (made.opened.ledger.selection(first.selection), first.sinks) == (offsets((0, 0, 5)), ("hbase",))
    steering.cancel(made.opened, lane, "a test")
    cli_auditing.audit("orders", repair="execute", yes=True, run_name="mine", approved_by="bob", as_json=True)
    (entry,) = (one for name, one in all_lanes(made.opened.ledger).items() if name not in ("ingest", lane))
    people = (entry.asked_by, entry.approved_by, entry.sinks)
    assert (people, entry.reason) == ((me, "bob", ("hbase",)), "repair of what mine found")


@given(limit=st.one_of(st.none(), st.integers(0, 20)), number=st.integers(0, 20), asked=NAMES, approved=NAMES)
def test_a_second_person_is_needed_above_the_limit_and_only_there(
    limit: int | None, number: int, asked: str | None, approved: str | None
) -> None:
    needed = limit is not None and number > limit
    assert needs_approval(limit, number) is needed
    if not needed or (approved is not None and approved != asked):
        check_approved(limit, number, Requesters(asked, approved))
    else:
        with pytest.raises(NotApproved):
            check_approved(limit, number, Requesters(asked, approved))


@pytest.mark.parametrize(("key", "least"), [("approve_above", 0), ("max_records_per_second", 1)])
def test_a_limit_below_its_least_is_refused(tmp_path: Path, key: str, least: int) -> None:
    with pytest.raises(InvalidStreamFile, match=rf"limits.{key}: expected a number of at least {least}"):
        StreamInMemory(tmp_path, text=f"{TEXT}limits:\n  {key}: {least - 1}\n")
