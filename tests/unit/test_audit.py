"""What an audit proves, as arithmetic: coverage against a naive model, and when a report is clean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.compactions import AT, committed
from tidemark.audit.deleted_messages import BlockReport
from tidemark.audit.report import (
    SHOWN_COORDINATES,
    AuditReport,
    CoverageReport,
    GapReport,
    PlaceReport,
    explain,
    prove_coverage,
    shown,
)
from tidemark.ledger.holes import Ingest
from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import Gap, GapKind, Guarantee, LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition


def window(
    seq: int,
    offsets: range,
    kind: LaneKind = LaneKind.INGEST,
    gaps: tuple[tuple[str, int, int], ...] = (),
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
) -> Committed:
    made = committed("/lake", seq, offsets, lane=kind.value)
    jumped = tuple(
        Gap(kind=GapKind(why), policy="p", topic="logs", incarnation=1, partition=0, start=start, until=until)
        for why, start, until in gaps
    )
    record = structs.replace(
        made.record, kind=kind, window=structs.replace(made.record.window, gaps=jumped, guarantee=guarantee)
    )
    return Committed(record, made.covers)


def ranges(*found: tuple[int, int]) -> RangeSet:
    return RangeSet(OffsetRange(AT, start, until) for start, until in found)


@pytest.mark.covers("N2")
def test_windows_that_overlap_are_found() -> None:
    (found,) = prove_coverage([window(1, range(10)), window(2, range(5, 15))], Ingest({AT: 0}, {AT: 15}))
    assert (found.overlaps, found.holes, found.covered) == (ranges((5, 10)), RangeSet(), ranges((0, 15)))
    # A replay reads again what others have read, and so does each window without positions.
    for again in (
        window(2, range(5, 10), LaneKind.REPLAY),
        window(2, range(5, 15), guarantee=Guarantee.NONE),
    ):
        (found,) = prove_coverage([window(1, range(10)), again], Ingest({AT: 0}, {AT: 10}))
        assert (found.overlaps, found.holes) == (RangeSet(), RangeSet())
    # A backfill reads for the first time.
    (found,) = prove_coverage(
        [window(1, range(10)), window(2, range(5, 8), LaneKind.BACKFILL)], Ingest({AT: 0}, {AT: 10})
    )
    assert found.overlaps == ranges((5, 8))


def test_what_a_window_names_as_jumped_over_is_no_hole() -> None:
    windows = [window(1, range(3)), window(2, range(20, 22), gaps=(("lost", 5, 9), ("skipped", 9, 18)))]
    (found,) = prove_coverage(windows, Ingest({AT: 0}, {AT: 22}))
    assert (found.holes, found.lost, found.skipped) == (ranges((3, 5), (18, 20)), ranges((5, 9)), ranges((9, 18)))
    # What a backfill has read since is covered, and neither lost nor skipped any more.
    (found,) = prove_coverage([*windows, window(1, range(7, 11), LaneKind.BACKFILL)], Ingest({AT: 0}, {AT: 22}))
    assert (found.holes, found.lost, found.skipped) == (ranges((3, 5), (18, 20)), ranges((5, 7)), ranges((11, 18)))
    assert found.overlaps == RangeSet()


def test_where_the_ingest_began() -> None:
    """A partition that was there from the start began at its position then; one that came later with its first window."""
    later = [window(1, range(10, 20)), window(1, range(2, 4), LaneKind.BACKFILL)]
    (found,) = prove_coverage(later, Ingest({}, {AT: 20}))
    assert (found.start, found.position, found.holes) == (10, 20, RangeSet())
    (found,) = prove_coverage(later, Ingest({AT: 8}, {AT: 20}))
    assert (found.start, found.holes) == (8, ranges((8, 10)))
    # Without a position it goes as far as it is covered; a partition that no window has read has nothing to prove.
    (found,) = prove_coverage(later, Ingest({AT: 10}, {}))
    assert (found.position, found.holes) == (20, RangeSet())
    (found,) = prove_coverage([], Ingest({AT: 7}, {AT: 7}))
    assert (found.start, found.position, found.holes, found.covered) == (7, 7, RangeSet(), RangeSet())
    (found,) = prove_coverage([], Ingest({}, {AT: 7}))
    assert (found.start, found.holes) == (0, ranges((0, 7)))
    # A position below the start is no hole of a negative length.
    (found,) = prove_coverage([], Ingest({AT: 9}, {AT: 7}))
    assert found.holes == RangeSet()


def test_each_partition_has_its_own_proof() -> None:
    other = TopicPartition("logs", 9)
    found = prove_coverage([window(1, range(10))], Ingest({other: 3, AT: 0}, {other: 5, AT: 10}))
    assert [(one.partition, one.covered, one.holes) for one in found] == [
        (AT, ranges((0, 10)), RangeSet()),
        (other, RangeSet(), RangeSet([OffsetRange(other, 3, 5)])),
    ]


kinds = st.sampled_from([LaneKind.INGEST, LaneKind.BACKFILL, LaneKind.REPLAY])
spans = st.tuples(st.integers(0, 20), st.integers(1, 10))


@pytest.mark.slow
@given(st.lists(st.tuples(kinds, spans, st.booleans()), max_size=6), st.integers(0, 25), st.integers(0, 30))
def test_coverage_is_that_of_sets(
    found: list[tuple[LaneKind, tuple[int, int], bool]], start: int, position: int
) -> None:
    windows = [
        window(
            seq + 1,
            range(first, first + length),
            kind,
            guarantee=Guarantee.NONE if free else Guarantee.AT_LEAST_ONCE,
        )
        for seq, (kind, (first, length), free) in enumerate(found)
    ]
    times: dict[int, int] = {}
    for kind, (first, length), free in found:
        for offset in range(first, first + length):
            times[offset] = times.get(offset, 0) + (kind != LaneKind.REPLAY and not free)
    (proof,) = prove_coverage(windows, Ingest({AT: start}, {AT: position}))

    def of(part: RangeSet) -> set[int]:
        return {offset for one in part for offset in range(one.start, one.until)}

    assert of(proof.covered) == {offset for offset, number in times.items() if number}
    assert of(proof.overlaps) == {offset for offset, number in times.items() if number > 1}
    # In a ledger that is whole, replays read what others have read. No window at all has read a hole.
    assert of(proof.holes) == {offset for offset in range(start, position) if offset not in times}


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize("vanished", [-2, 0, 3])
def test_offsets_without_a_message_are_explained(compacted: bool, vanished: int) -> None:
    found = explain(
        AT,
        offsets=20,
        messages=10,
        uncommitted=14,
        vanished=vanished,
        compacted=compacted,
        ranges=ranges((3, 5)),
    )
    gone = max(0, vanished)
    assert found == GapReport(
        partition="logs/0",
        offsets=20,
        messages=10,
        aborted=4,
        markers=6 - gone,
        compacted=gone if compacted else 0,
        unexplained=0 if compacted else gone,
        ranges=("logs/0@3-5",),
    )


def place(**found: Any) -> PlaceReport:
    none = dict.fromkeys(("expected", "found", "missing", "different", "extra", "twice", "debris"), 0)
    return PlaceReport(name="table", **{**none, **found})


def cover(**found: Any) -> CoverageReport:
    return CoverageReport(
        **{"partition": "p", "start": 0, "position": 1, "covered": 1, "holes": (), "overlaps": (), **found}
    )


def gap(**found: Any) -> GapReport:
    none = dict.fromkeys(("offsets", "messages", "aborted", "markers", "compacted", "unexplained"), 0)
    return GapReport(partition="p", **{**none, **found})


def report(**found: Any) -> AuditReport:
    clean: dict[str, Any] = {
        "stream": "s",
        "run": "r",
        "at": 1,
        "code_version": "v",
        "expected": 9,
        "stored": 7,
        "dead_letters": 2,
        "skipped": 0,
        "unproven": 0,
        "places": (place(expected=9, found=9),),
        "coverage": (cover(),),
        "ledger_problems": (),
    }
    return AuditReport(**{**clean, **found})


SENTENCE = "expected 9, stored 7, dead letters 2, missing 0, different 0, extra 0, twice 0, debris 0"


def test_a_report_without_a_difference_is_clean() -> None:
    assert report().clean
    assert report().sentence() == SENTENCE


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"places": (place(), place(missing=1))}, "missing 1"),
        ({"places": (place(different=2),)}, "different 2"),
        ({"places": (place(extra=1), place(extra=2))}, "extra 3"),
        ({"places": (place(twice=1),)}, "twice 1"),
        ({"places": (place(blocks=4),)}, "; blocks that differ: 4"),
        ({"coverage": (cover(), cover(holes=("h", "i")))}, "; coverage: 2 holes, 0 overlaps"),
        ({"coverage": (cover(), cover(overlaps=("o",)))}, "; coverage: 0 holes, 1 overlap"),
        ({"gaps": (gap(), gap(unexplained=3))}, "; 3 messages were counted when they were read and are gone"),
        ({"ledger_problems": ("the head is gone",)}, "; the head is gone"),
    ],
)
def test_a_report_with_a_difference_is_not_clean_and_says_so(found: dict[str, Any], said: str) -> None:
    assert not report(**found).clean
    assert report(**found).sentence().startswith("expected 9, stored 7, ")
    assert said in report(**found).sentence()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"places": (place(debris=5),)}, "debris 5"),
        ({"skipped": 3}, "stored 7, skipped 3, dead letters 2"),
        ({"unproven": 4}, "; 4 offsets are no longer in Kafka"),
        ({"unproven": 4, "by_tallies": 3}, "; 7 offsets are no longer in Kafka, 3 of them were compared"),
        ({"by_tallies": 3}, "; 3 offsets are no longer in Kafka, 3 of them were compared"),
        ({"not_compared": ("kafka", "own")}, f"{SENTENCE}; not compared: kafka, own"),
        ({"unfinished": 6}, "; 6 offsets were committed before they were read"),
        ({"gaps": (gap(compacted=3, aborted=1, markers=2),)}, SENTENCE),
    ],
)
def test_what_is_no_difference_is_said_and_stays_clean(found: dict[str, Any], said: str) -> None:
    assert report(**found).clean
    assert report(**found).sentence().startswith("expected 9, stored 7, ")
    assert said in report(**found).sentence()


def test_each_kind_of_difference_counts() -> None:
    found = place(missing=1, different=10, extra=100, twice=1000, blocks=10_000, debris=5, compacted=6)
    assert found.differences == 11_111
    assert report(places=(found, place(missing=1))).differences == 11_112


def test_a_smaller_report_names_less_and_counts_the_same() -> None:
    blocks = tuple(
        BlockReport(at=f"block {number}", window="ingest/1", expected=1, found=0, what="rows") for number in range(3)
    )
    at = dict.fromkeys(("missing_at", "different_at", "extra_at", "twice_at"), ("a", "b", "c"))
    whole = report(places=(place(missing=3, blocks_at=blocks, **at),), gaps=(gap(ranges=("x", "y", "z")),))
    cut = whole.naming(2)
    (found,) = cut.places
    for name in at:
        assert getattr(found, name) == ("a", "b")
    assert found.blocks_at == blocks[:2]
    assert cut.gaps[0].ranges == ("x", "y")
    assert (found.missing, cut.sentence()) == (3, whole.sentence())
    assert whole.naming(3) == whole


def test_a_hundred_ranges_are_shown() -> None:
    many = ranges(*((2 * number, 2 * number + 1) for number in range(SHOWN_COORDINATES + 5)))
    assert len(shown(many)) == SHOWN_COORDINATES
    assert shown(ranges((3, 5), (8, 9))) == ("logs/0@3-5", "logs/0@8-9")
