"""Ranges for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 1, 2), TopicPartition("a-b", 0)]
ranges = st.builds(
    lambda at, start, length: OffsetRange(at, start, start + length),
    st.sampled_from(PARTITIONS),
    st.integers(0, 30),
    st.integers(0, 12),
)
range_sets = st.lists(ranges, max_size=8).map(RangeSet)


def offsets(ranges: RangeSet) -> set[tuple[TopicPartition, int]]:
    return {(one.partition, offset) for one in ranges for offset in range(one.start, one.until)}
