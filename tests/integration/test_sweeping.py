"""The sweep of a table in HBase: which cells it removes, and how many scans it needs for scattered records."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.site import Site
from tests.support.range_strategies import PARTITIONS
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.hbase import table as tables
from tidemark.sinks.hbase.rows import BLOCK_BITS, MARK, PartitionKeys, parse_key
from tidemark.sinks.hbase.table import ResultTable
from tidemark.sinks.stored_rows import Mark, Place

# Some lie in one block of offsets, some in the next.
EDGE = (1 << BLOCK_BITS) - 20
near = st.integers(EDGE, EDGE + 40)
written = st.lists(
    st.tuples(st.sampled_from(PARTITIONS), near, st.integers(0, 2), st.sets(st.integers(1, 4), min_size=1)), max_size=25
)
covered = st.lists(st.tuples(st.sampled_from(PARTITIONS), near, st.integers(1, 6)), max_size=8)


class CountingGateway(Gateway):
    """Counts the scans, and the rows that they gave."""

    scans = 0
    rows = 0

    def scan(self, *args: Any, **options: Any) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
        self.scans += 1
        for row in super().scan(*args, **options):
            self.rows += 1
            yield row


@pytest.fixture(scope="module")
def gateway(site: Site) -> CountingGateway:
    return CountingGateway(HBaseEndpoint("127.0.0.1", site.port("thrift")))


@pytest.fixture(scope="module")
def table(gateway: Gateway) -> ResultTable:
    made = ResultTable(gateway, f"sweeping_{secrets.token_hex(3)}")
    made.prepare("s", "l")
    return made


def write(table: ResultTable, rows: list[Place], generation: int) -> None:
    mark = Mark(generation, 1, "ingest", 1).encode()
    keys = [PartitionKeys(one.partition).key(one.offset, one.index) for one in rows]
    cells = [(key, *cell) for key in keys for cell in ((MARK, mark), (b"d:value", b"v"))]
    for start in range(0, len(cells), 10_000):
        table.write_cells(cells[start : start + 10_000], generation)


def own(topic: str, at: TopicPartition) -> TopicPartition:
    return TopicPartition(f"{topic}-{at.topic}", at.partition, at.incarnation)


@given(written=written, covered=covered, besides=st.integers(1, 4), generation=st.integers(1, 4))
def test_a_sweep_removes_older_cells_where_it_should_and_nowhere_else(
    table: ResultTable,
    gateway: Gateway,
    written: list[tuple[TopicPartition, int, int, set[int]]],
    covered: list[tuple[TopicPartition, int, int]],
    besides: int,
    generation: int,
) -> None:
    topic = secrets.token_hex(4)
    places = {Place(own(topic, at), offset, index): generations for at, offset, index, generations in written}
    covers = RangeSet(OffsetRange(own(topic, at), start, start + length) for at, start, length in covered)
    for one in range(1, 5):
        write(table, [place for place, generations in places.items() if one in generations], one)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_BESIDES", besides)
        swept = table.sweep(covers, generation)
    hit = {place for place in places if (place.partition, place.offset) in covers and min(places[place]) < generation}
    assert swept == len(hit)
    expected = {
        (place, one)
        for place, generations in places.items()
        for one in generations
        if place not in hit or one >= generation
    }
    assert versions(gateway, table, list(places)) == expected


def versions(gateway: Gateway, table: ResultTable, places: list[Place]) -> set[tuple[Place, int]]:
    """The generations of which a row has both of its cells."""
    name = table._table.encode()
    found = set()
    for place in places:
        key = PartitionKeys(place.partition).key(place.offset, place.index)
        marks, values = (
            gateway.repeated("read", lambda client, key=key, column=column: client.getVer(name, key, column, 9, {}))
            for column in (MARK, b"d:value")
        )
        assert [one.timestamp for one in marks] == [one.timestamp for one in values]
        found |= {(parse_key(key), one.timestamp) for one in marks}
    return found


@pytest.mark.full
def test_many_scattered_records_take_few_scans(table: ResultTable, gateway: CountingGateway) -> None:
    """A scan for each of 500,000 dead letters took more than ten minutes."""
    at = TopicPartition(secrets.token_hex(4), 0)
    write(table, [Place(at, offset, 0) for offset in range(6_000)], 1)
    # Each second one, then each five hundredth.
    dense = RangeSet(OffsetRange(at, one, one + 1) for one in range(0, 3_000, 2))
    sparse = RangeSet(OffsetRange(at, one, one + 1) for one in range(3_000, 6_000, 500))
    gateway.scans = gateway.rows = 0
    assert table.sweep(dense, 2) == 1_500
    assert gateway.scans == 1
    assert gateway.rows <= 3_000
    gateway.scans = gateway.rows = 0
    assert table.sweep(sparse, 2) == 6
    # What lies far between is not read.
    assert gateway.scans == 6
    assert gateway.rows <= 6 * 65
    assert table.sweep(dense | sparse, 2) == 0


@pytest.mark.full
def test_a_sweep_hides_nothing_that_is_written_later(table: ResultTable) -> None:
    """A wrong clock has drawn generations of tomorrow. The ledger that is restored from a backup of before draws lower ones."""
    at = TopicPartition(secrets.token_hex(4), 0)
    one, now = OffsetRange(at, 5, 6), time.time_ns() // 1_000_000 - 60_000
    wanted, tomorrow = RangeSet([one]), now + 86_400_000

    def seen(generation: int) -> list[int]:
        write(table, [Place(at, 5, 0)], generation)
        return [row.mark.generation for row in table.rows_that_count(Authority([(generation, wanted)]), one)]

    # The second attempt of the wrong clock sweeps what the first one and an earlier window have written.
    assert [seen(one) for one in (now - 10, tomorrow, tomorrow + 1)] == [[now - 10], [tomorrow], [tomorrow + 1]]
    assert table.sweep(wanted, tomorrow + 1) == 1
    # Restored: read again by a machine whose clock is a little behind, and replayed.
    assert [seen(now + 1), seen(now + 1_000)] == [[now + 1], [now + 1_000]]
    # What is erased is removed all the same.
    assert table.sweep(wanted, tomorrow + 2, for_good=True) == 1
    written = (now - 10, tomorrow, tomorrow + 1, now + 1, now + 1_000)
    assert [list(table.rows_that_count(Authority([(by, wanted)]), one)) for by in written] == [[]] * 5
