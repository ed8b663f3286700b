"""How many rows of a file are taken at a time: many, as long as they are small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.spark.readers.parquet import number_at_a_time

MEGABYTE = 1 << 20
windows = st.builds(
    lambda messages, average: PartitionTally(
        topic="logs", incarnation=1, partition=0, read=Count.of(messages, 0), bytes=messages * average
    ),
    st.integers(0, 10**9),
    st.integers(0, 100 * MEGABYTE),
)


@given(st.lists(windows, max_size=5))
def test_what_is_taken_at_a_time_fits_into_memory(tallies: list[PartitionTally]) -> None:
    found = number_at_a_time(tallies)
    largest = max((one.bytes // one.read.number for one in tallies if one.read.number), default=MEGABYTE)
    assert 16 <= found <= 256
    # Sixteen, whatever their size; more only within sixteen megabytes.
    assert found == 16 or found * largest <= 16 * MEGABYTE
    if largest <= MEGABYTE // 16 and any(one.read.number for one in tallies):
        assert found == 256
