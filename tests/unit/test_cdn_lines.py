"""The generator of CDN log lines: the same ones for the same seed, and everything in them that real topics have."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from demo.cdn_lines import CdnMessage, message, messages
from tests.support.oracle import cdn_outcome

SINCE = datetime(2026, 11, 21, 7, 10, tzinfo=UTC)
COUNT = 20_000


@pytest.fixture(scope="module", params=[1, 7])
def many(request: pytest.FixtureRequest) -> list[CdnMessage]:
    return list(messages(COUNT, SINCE, seed=request.param))


def test_the_same_number_seed_and_time_give_the_same_message() -> None:
    whole = list(messages(300, SINCE))
    assert list(messages(300, SINCE)) == whole
    # From the middle, and one alone: nothing depends on what was made before.
    assert list(messages(100, SINCE, first=200)) == whole[200:]
    assert message(299, SINCE + timedelta(milliseconds=20 * 299)) == whole[299]


def test_another_seed_and_another_time_give_others() -> None:
    whole = list(messages(300, SINCE))
    other = list(messages(300, SINCE, seed=2))
    later = list(messages(300, SINCE + timedelta(hours=1)))
    assert sum(one == two for one, two in zip(whole, other, strict=True)) == 0
    assert sum(one == two for one, two in zip(whole, later, strict=True)) == 0
    assert [one.key for one in whole] == [one.key for one in later]


@pytest.mark.slow
def test_about_one_in_two_hundred_is_invalid_in_every_way(many: list[CdnMessage]) -> None:
    reasons = Counter(outcome.reason for one in many if (outcome := cdn_outcome(one.value)).reason)
    assert set(reasons) == {"matches no pattern", "code is 0", "not UTF-8"}
    # 100 of 20,000, and four standard deviations to each side.
    assert 60 < reasons.total() < 140
    assert b"" in [one.value for one in many]


def test_tombstones_and_missing_keys(many: list[CdnMessage]) -> None:
    tombstones = [one for one in many if one.value is None]
    assert 5 < len(tombstones) < 40
    # Without its key a tombstone would delete nothing.
    assert None not in [one.key for one in tombstones]
    assert 320 < sum(one.key is None for one in many) < 480


@pytest.mark.slow
def test_a_third_is_of_the_other_format_and_both_say_the_same(many: list[CdnMessage]) -> None:
    valid = [(one, fields) for one in many if (fields := cdn_outcome(one.value).fields)]
    tabs = [b"\t" in (one.value or b"") for one, _ in valid]
    assert 0.3 < sum(tabs) / len(valid) < 0.37
    for one, fields in valid:
        at = datetime.fromtimestamp(one.timestamp_ms // 1000, UTC)
        assert fields["time"] == f"{at:%Y-%m-%d %H:%M:%S}"
        assert one.key in (None, fields["clientip"].encode())


def test_timestamps_step(many: list[CdnMessage]) -> None:
    first = int(SINCE.timestamp()) * 1000
    assert [one.timestamp_ms for one in many] == list(range(first, first + 20 * COUNT, 20))
