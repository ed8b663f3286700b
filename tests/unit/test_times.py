"""Times at their edges: before 1970, in the years 1 and 300,000, and whatever number a message says for its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.covering import REPOSITORY
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import WrongUse
from tidemark.offsets.times import in_iso, in_utc, milliseconds, read_time
from tidemark.sinks.time_texts import time_text as text_of_field

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLY = [
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:00+08:00",
    "1969-12-31T23:59:59.999Z",
    "1969-12-31T23:59:59.998Z",
    "1969-12-31T23:59:59.997Z",
    "1969-12-31T23:59:59.9965Z",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
]


def asked_of_kafka(milliseconds: int) -> int:
    """What a log asks the broker for: kafka-python takes special values and times in one argument."""
    asked = []

    def offsets(wanted: dict[Any, int], isolation_level: object) -> dict[Any, Any]:
        asked.extend(wanted.values())
        return {at: SimpleNamespace(offset=7) for at in wanted}

    class Log(KafkaLog):
        def __init__(self) -> None:
            pass

        @contextmanager
        def _admin(self) -> Iterator[Any]:
            yield SimpleNamespace(list_partition_offsets=offsets)

    found = Log().first_at_or_after(
        {"orders": TopicLog("id", {0: PartitionLog(0, 9, 0)})}, milliseconds, "read_committed"
    )
    assert found == {("orders", 0): 7}
    (one,) = asked
    return one


@pytest.mark.covers("E54")
@pytest.mark.parametrize("text", EARLY)
def test_a_time_before_1970_is_no_special_value_of_kafkas(text: str) -> None:
    """-1 is the end of a log, -2 its beginning, -3 the message with the largest timestamp; others are refused."""
    assert asked_of_kafka(milliseconds(read_time(text))) == 0


@given(st.integers() | st.integers(-9, 9))
def test_kafka_is_never_asked_for_less_than_1970_nor_for_more_than_64_bits(at: int) -> None:
    asked = asked_of_kafka(at)
    assert 0 <= asked < 2**63
    assert asked == at or not 0 <= at < 2**63


def test_times_reach_kafka_in_one_place() -> None:
    """Whoever asks for the offsets of times asks there."""
    found = {
        str(path.relative_to(REPOSITORY)): path.read_text().count("list_partition_offsets(")
        for path in (REPOSITORY / "tidemark").rglob("*.py")
        if "list_partition_offsets" in path.read_text()
    }
    # The other one takes kafka-python's special values alone.
    assert found == {"tidemark/clients/kafka/log.py": 2}
    source = (REPOSITORY / "tidemark/clients/kafka/log.py").read_text()
    assert "dict.fromkeys(wanted, asked_time(timestamp_ms))" in source
    assert not any("offsets_for_times" in path.read_text() for path in (REPOSITORY / "tidemark").rglob("*.py"))


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01 00:00:00Z"),
        (-1, "1969-12-31 23:59:59Z"),
        (1_795_245_000_500, "2026-11-21 07:10:00Z"),
        (-62_135_596_800_000, "0001-01-01 00:00:00Z"),
        (-62_135_596_800_001, "0000-12-31 23:59:59Z"),
        (253_402_300_799_999, "9999-12-31 23:59:59Z"),
        (253_402_300_800_000, "+10000-01-01 00:00:00Z"),
        (9404918380800000, "+300000-01-01 00:00:00Z"),
        (2**63 - 1, "+292278994-08-17 07:12:55Z"),
        (-(2**63), "-292275055-05-16 16:47:04Z"),
    ],
)
def test_every_time_of_64_bits_has_a_text(at: int, text: str) -> None:
    assert in_utc(at) == text
    assert in_iso(at).startswith(text[:-1].replace(" ", "T"))
    # A message's timestamp as the scheme's field shows it.
    assert text_of_field(at * 1000).startswith(text[:-1])


@given(st.datetimes(timezones=st.just(UTC)))
def test_as_python_writes_the_times_that_it_has(at: datetime) -> None:
    at = at.replace(microsecond=at.microsecond // 1000 * 1000)
    since = (at - EPOCH) // timedelta(milliseconds=1)
    assert in_iso(since) == at.isoformat().replace("+00:00", "Z")
    assert in_utc(since) == at.replace(microsecond=0).isoformat(" ").replace("+00:00", "Z")
    assert milliseconds(at) == since


@pytest.mark.parametrize(
    "text", ["9999-12-31T24:00Z", "300000-01-01T00:00Z", "0000-01-01T00:00Z", "2026-11-21T07:00+25:00"]
)
def test_what_is_no_time_is_refused_in_words(text: str) -> None:
    with pytest.raises(WrongUse, match="is not a time"):
        read_time(text)
