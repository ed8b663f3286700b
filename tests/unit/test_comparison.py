"""What a comparison of a replay says: counts of all, names of the first, and no more than the ledger takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import StreamInMemory, offsets
from tidemark.audit.comparison import (
    MAX_EXAMPLES,
    DeadLetterReason,
    Example,
    PlaceComparison,
    ReplayComparison,
    merged,
)
from tidemark.cli import lanes_of_runs, stream_lookup, submitting
from tidemark.cli.commands import audit
from tidemark.cli.commands import replay as replay_command
from tidemark.errors import Conflict, LedgerContradiction, WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import LaneKind
from tidemark.runs.comparisons import check_unchanged, find_comparison, store_comparison, stored_comparison
from tidemark.runs.windows import lanes

_COUNTS = st.integers(0, 10**9)


def examples(number: int) -> tuple[Example, ...]:
    return tuple(Example(at=f"a/0@{n}", index=0, columns=("x",)) for n in range(min(number, MAX_EXAMPLES)))


@st.composite
def places(draw: st.DrawFn) -> PlaceComparison:
    same, changed, new, gone = (draw(_COUNTS) for _ in range(4))
    name = draw(st.sampled_from(["hbase", "parquet"]))
    return PlaceComparison(
        name=name,
        before=same + changed + gone,
        after=same + changed + new,
        same=same,
        changed=changed,
        new=new,
        gone=gone,
        changed_at=examples(changed),
        new_at=examples(new),
        gone_at=examples(gone),
    )


def comparison(*found: PlaceComparison) -> ReplayComparison:
    return ReplayComparison(
        stream="s",
        run="r",
        at=1,
        code_version="v",
        stream_digest="d",
        selection="e",
        offsets=12,
        messages=11,
        stored=8,
        skipped=1,
        dead_letters=2,
        places=found,
        not_compared=("totals (of_ours)",),
        reasons=(DeadLetterReason(reason="negative\namount", number=2, first="a/0@3"),),
    )


@given(places(), st.integers(0, MAX_EXAMPLES))
def test_what_has_no_example_is_counted_and_nothing_is_left_out(place: PlaceComparison, most: int) -> None:
    (cut,) = comparison(place).naming(most).places
    by_kind = {"changed": cut.changed_at, "new": cut.new_at, "gone": cut.gone_at}
    assert max(map(len, by_kind.values())) <= most
    named = {kind: len(found) for kind, found in by_kind.items()}
    counts = {"changed": place.changed, "new": place.new, "gone": place.gone}
    left = cut.unnamed()
    assert {kind: named[kind] + left.get(kind, 0) for kind in counts} == counts
    assert 0 not in left.values()
    assert cut.differences == place.differences == sum(counts.values())
    assert [one for _, one in cut.examples()] == [one for found in by_kind.values() for one in found]


@given(places(), places())
def test_a_stored_comparison_is_read_as_it_was_written(one: PlaceComparison, two: PlaceComparison) -> None:
    whole = comparison(one, two)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=ReplayComparison) == whole
    assert whole.differences == one.differences + two.differences


def test_the_pieces_of_a_selection_are_one_comparison() -> None:
    def piece(number: int, **found: Any) -> ReplayComparison:
        rows = {"before": 30, "after": 31, "same": 28, "changed": 0, "new": 1, "gone": 0}
        place = PlaceComparison(name="hbase", **{**rows, **found})
        letters = PlaceComparison(name="dead letters", before=1, after=0, same=0, changed=0, new=0, gone=1)
        reasons = (
            DeadLetterReason(reason="bad", number=2, first=f"a/0@{number}"),
            DeadLetterReason(reason=f"only {number}", number=3, first=f"a/0@{number}"),
        )
        return msgspec.structs.replace(comparison(place, letters), reasons=reasons)

    second = tuple(msgspec.structs.replace(one, index=1) for one in examples(15))
    parts = [
        piece(10, columns={"gone since": 1, "x": 2}, new_because={"b": 1}, changed_at=examples(15)),
        piece(20, columns={"y": 1, "x": 1}, new_because={"b": 1, "a": 4}, changed_at=second),
        piece(30),
    ]
    found = merged(parts, ["x", "y"])
    assert (found.offsets, found.messages, found.stored, found.skipped, found.dead_letters) == (36, 33, 24, 3, 6)
    hbase, letters = found.places
    assert (hbase.before, hbase.after, hbase.same, hbase.new) == (90, 93, 84, 3)
    assert list(hbase.columns.items()) == [("x", 3), ("y", 1), ("gone since", 1)]
    assert list(hbase.new_because.items()) == [("a", 4), ("b", 2)]
    # The pieces divide each partition, so their rows lie between each other.
    assert [(one.at, one.index) for one in hbase.changed_at] == [(f"a/0@{n}", i) for n in range(10) for i in range(2)]
    assert (letters.name, letters.before, letters.gone) == ("dead letters", 3, 3)
    # Of one reason in all pieces, the first message; then by number and name.
    assert [(one.reason, one.number, one.first) for one in found.reasons] == [
        ("bad", 6, "a/0@10"),
        ("only 10", 3, "a/0@10"),
        ("only 20", 3, "a/0@20"),
        ("only 30", 3, "a/0@30"),
    ]
    assert found.not_compared == parts[0].not_compared
    assert merged(parts[:1], ["x", "y"]) == parts[0]
    # The right to read a place may be lost between two pieces.
    hidden = msgspec.structs.replace(parts[1], places=parts[1].places[1:], not_compared=("hbase (hbase)",))
    found = merged([parts[0], hidden, parts[2]], ["x", "y"])
    assert [one.name for one in found.places] == ["dead letters"]
    assert found.not_compared == (*parts[0].not_compared, "hbase (hbase)")


def test_the_lines_for_people() -> None:
    place = PlaceComparison(
        name="hbase",
        before=8,
        after=8,
        same=5,
        changed=2,
        new=1,
        gone=1,
        columns={"amount": 2, "city": 1},
        new_because={"its message was a dead letter": 1},
        gone_because={"its message is now skipped": 1},
        changed_at=(Example(at="a/0@1", index=0, columns=("amount", "city")),),
        new_at=(Example(at="a/0@2", index=1, why="its message was a dead letter"),),
    )
    sums = PlaceComparison(
        name="totals",
        before=4,
        after=4,
        same=1,
        changed=3,
        new=0,
        gone=0,
        columns={"all": 3},
        changed_at=(
            Example(at="a/0@1000", index=0, columns=("all",)),
            Example(at="a/0@1001", index=0, columns=("all",)),
        ),
    )
    assert list(comparison(place, sums).lines()) == [
        "12 offsets compared, 11 messages: stored 8, skipped 1, dead letters 2; hbase: 5 the same, 2 changed "
        "(amount 2, city 1), 1 new (its message was a dead letter 1), 1 gone (its message is now skipped 1); "
        "totals: 1 the same, 3 changed (all 3), 0 new, 0 gone; "
        "not compared: totals (of_ours)",
        "hbase: changed a/0@1 index 0: amount, city",
        "hbase: new a/0@2 index 1: its message was a dead letter",
        "hbase: 1 more changed",
        "hbase: 1 more gone",
        "totals: changed a/0@1000 index 0: all",
        "totals: changed a/0@1001 index 0: all",
        "totals: 1 more changed",
        "2 dead letters after the replay: 'negative\\namount', such as a/0@3",
    ]


def test_the_ledger_keeps_it_under_its_run_with_as_many_examples_as_fit(tmp_path: Path) -> None:
    stream = StreamInMemory(tmp_path)
    place = PlaceComparison(name="hbase", before=30, after=30, same=0, changed=30, new=0, gone=0)
    found = comparison(msgspec.structs.replace(place, changed_at=examples(30)))
    assert find_comparison(stream.opened, "r") is None
    with pytest.raises(LedgerContradiction, match="the comparison of r is not in the ledger"):
        stored_comparison(stream.opened, "r")
    store_comparison(stream.opened, found)
    assert stored_comparison(stream.opened, "r") == found
    # An audit of the same name is another report.
    assert stream.opened.ledger.report("r") is None
    stream.store.max_value_bytes = 900
    store_comparison(stream.opened, found)
    (cut,) = stored_comparison(stream.opened, "r").places
    assert (len(cut.changed_at), cut.changed, cut.unnamed()) == (5, 30, {"changed": 25})


def test_another_replay_of_the_same_offsets_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    stream = StreamInMemory(tmp_path)
    stream.ends((0, 20))
    stream.ingest()
    ledger = stream.opened.ledger
    before = ledger.view()
    stream.ends((0, 30))
    stream.ingest("run 2")
    lane = claim_lane(stream.opened, LaneKind.REPLAY, "other", offsets((0, 4, 6)), "a test")
    lanes.plan_lane(stream.opened, lane, "other")
    stream.process(lane, "other")
    check_unchanged(before, ledger.view(), offsets((0, 0, 4), (0, 6, 20)))
    with pytest.raises(Conflict, match="compare again"):
        check_unchanged(before, ledger.view(), offsets((0, 5, 20)))


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StreamInMemory, list[str]]:
    """A stream with ten offsets that were read, without Spark: a job gives a comparison, and the lanes are noted."""
    stream, begun = StreamInMemory(tmp_path), []
    stream.ends((0, 10))
    stream.ingest()
    monkeypatch.setattr(stream_lookup, "opened", lambda _: stream.opened)

    def submit(opened: Any, script: str, arguments: list[str], **_: Any) -> submitting.JobEnd:
        begun.append(f"{script} {sorted(all_lanes(opened.ledger))}")
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        place = PlaceComparison(
            name="hbase", before=1, after=1, same=0, changed=1, new=0, gone=0, columns={"amount": 1}
        )
        found = comparison(msgspec.structs.replace(place, changed_at=examples(1)))
        named = {"run": given["--run"], "selection": given["--selection"], "at": stream.now}
        store_comparison(opened, msgspec.structs.replace(found, **named))
        return submitting.JobEnd(0, "above")

    monkeypatch.setattr("tidemark.cli.comparison_job.submit", submit)
    monkeypatch.setattr(lanes_of_runs, "process", lambda *_, **__: begun.append("process"))
    monkeypatch.setattr("tidemark.runs.requests.plan.estimated", lambda *_: None)
    return stream, begun


def replay(run: str, **more: Any) -> None:
    replay_command.replay(
        "orders", yes=True, ranges=["orders/0@0-5"], reason="bug 17", run_name=run, compare=True, **more
    )


def test_a_dry_run_on_the_command_line_compares_and_opens_no_lane(
    compared: tuple[StreamInMemory, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    stream, begun = compared
    replay("mine", dry_run=True)
    assert begun == ["compare ['ingest']"]
    assert sorted(all_lanes(stream.opened.ledger)) == ["ingest"]
    shown = capsys.readouterr()
    assert "hbase: changed a/0@0 index 0: x" in shown.out
    assert "tidemark report orders mine" in shown.err
    audit.report("orders", "mine")
    assert "hbase: changed a/0@0 index 0: x" in capsys.readouterr().out
    replay("json", dry_run=True, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["offsets"], found["comparison"]["places"][0]["columns"]) == (5, {"amount": 1})
    with pytest.raises(WrongUse, match="only audits have a page"):
        audit.report("orders", "mine", html=Path("page.html"))


def test_a_replay_compares_before_it_opens_its_lane_and_once(
    compared: tuple[StreamInMemory, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, begun = compared
    replay("mine", as_json=True)
    assert begun == ["compare ['ingest']", "process"]
    first = json.loads(capsys.readouterr().out)["comparison"]
    # Going on, it shows what it has said.
    replay("mine", as_json=True)
    assert begun == ["compare ['ingest']", "process", "process"]
    assert json.loads(capsys.readouterr().out)["comparison"] == first
