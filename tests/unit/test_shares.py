"""A share of the data: which blocks an audit looks at, and what its report says of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.range_strategies import range_sets
from tidemark.audit.levels import Level
from tidemark.audit.page import page_of
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.shares import Share, parts, seed_of

MANY = RangeSet(OffsetRange(TopicPartition("logs", number), 500, 250_500) for number in range(4))
DAY = 86_400_000


@pytest.mark.covers("N31")
@pytest.mark.parametrize("share", ["5%", "12.5%", "0.7%"])
def test_consecutive_seeds_look_at_other_blocks_until_all_were_looked_at(share: str) -> None:
    days = -(-1_000_000 // parts(share))
    seen = RangeSet()
    for seed in range(20_781, 20_781 + days):
        found, said = Share(share, seed).of(MANY, 1_000)
        # The last of them begins again where the first one did.
        assert not found & seen or seed == 20_780 + days
        seen |= found
        assert said.offsets == found.count() < 3 * 1_000_000 * parts(share) / 1_000_000 + 3_000
        assert said.among == 1_000_000
    assert seen == MANY


@given(range_sets, st.integers(0, 50), st.sampled_from(["1%", "5%", "50%", "100%"]))
def test_a_share_is_the_same_each_time_and_never_nothing(offsets: RangeSet, seed: int, text: str) -> None:
    found, said = Share(text, seed).of(offsets, 10)
    assert (found, said) == Share(text, seed).of(offsets, 10)
    assert found & offsets == found
    assert bool(found) == bool(offsets)
    assert (said.offsets, said.among) == (found.count(), offsets.count())
    if text == "100%":
        assert found == offsets
    # More data elsewhere does not change the choice, unless nothing was chosen.
    more = offsets | RangeSet([OffsetRange(TopicPartition("other", 9), 0, 995)])
    assert found & Share(text, seed).of(more, 10)[0] in (found, RangeSet())


def test_many_blocks_are_made_fewer() -> None:
    large = RangeSet([OffsetRange(TopicPartition("logs", 0), 0, 1 << 40)])
    found, said = Share("0.01%", 7).of(RangeSet([OffsetRange(TopicPartition("logs", 0), 0, 1 << 26)]), 1_000)
    assert said.block == 1_000
    found, said = Share("50%", 7).of(RangeSet([OffsetRange(TopicPartition("logs", 0), 0, 1 << 28)]), 1_000)
    assert said.block > 1_000
    assert len(list(found)) <= 50_000
    assert large.count() == 1 << 40


@pytest.mark.parametrize(("text", "million"), [("5%", 50_000), ("0.5%", 5_000), ("100%", 1_000_000), ("0.0001%", 1)])
def test_a_percentage(text: str, million: int) -> None:
    assert parts(text) == million


@pytest.mark.parametrize("text", ["", "5", "%", "101%", "-1%", "5 %", "0.00001%", "0%", "5%%", "\u0665%"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        parts(text)


def test_each_day_has_a_seed_of_its_own() -> None:
    assert [seed_of(None, day * DAY + 5) for day in (1, 2)] == [1, 2]
    assert seed_of(0, 5 * DAY) == 0


@pytest.mark.covers("N31")
def test_the_report_says_which_share() -> None:
    _, said = Share("5%", 20_781).of(MANY, Level.FULL.piece)
    place = PlaceReport(name="hbase", expected=9, found=9, missing=0, different=0, extra=0, twice=0, debris=0)
    report = AuditReport(
        stream="orders",
        run="r",
        at=1,
        code_version="v",
        coverage=(),
        ledger_problems=(),
        share=said,
        expected=said.offsets,
        places=(place,),
    )
    text = f"a share of 5% with seed 20781: {said.offsets} of 1000000 offsets"
    assert report.sentence().startswith(f"{text}; expected {said.offsets}, ")
    assert f"<td>{text}</td>" in page_of(report)
