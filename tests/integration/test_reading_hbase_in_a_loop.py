"""Tables by key in HBase, as a client of HBase sees them at every moment: no row is another than some commit made it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import happybase
import pytest

from tests.support.command_line import asked
from tests.support.cuts import crash, cut_after
from tests.support.live_streams import Make
from tests.support.oracle import CDN
from tests.support.reading_in_a_loop import LoopInAThread
from tidemark.commit.protocol import Step
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import RangeSet

pytestmark = pytest.mark.usefixtures("spark")

# A row as any client sees it: its cells in the family `d`.
Cells = tuple[tuple[bytes, bytes], ...]


class Scans(LoopInAThread):
    """Scans some tables of HBase, and keeps each row that it has seen of each key."""

    def __init__(self, port: int, tables: list[str]) -> None:
        super().__init__()
        self.rows: dict[tuple[str, bytes], set[Cells]] = defaultdict(set)
        self._port, self._tables = port, tables
        self._connection: happybase.Connection | None = None

    def read(self) -> None:
        if self._connection is None:
            self._connection = happybase.Connection("127.0.0.1", self._port, timeout=60_000)
        for name in self._tables:
            for key, row in scanned(self._connection, name).items():
                self.rows[name, key].add(row)

    def __exit__(self, *ended: Any) -> None:
        super().__exit__(*ended)
        if self._connection is not None:
            self._connection.close()


def scanned(connection: happybase.Connection, table: str) -> dict[bytes, Cells]:
    rows = connection.table(table).scan(row_stop=b"\x10", columns=[b"d"])
    return {key: tuple(sorted(cells.items())) for key, cells in rows}


@pytest.mark.covers("L7", "G2")
def test_each_row_that_a_client_sees_is_one_that_was_committed(make: Make) -> None:
    live = make(CDN)
    tables = [f"{live.name}_newest", f"{live.name}_totals"]
    sinks: list[dict[str, Any]] = [
        {"type": "hbase_latest", "table": tables[0], "folder": tables[0], "key": ["host", "method"]},
        {
            "type": "hbase_aggregates",
            "table": tables[1],
            "folder": tables[1],
            "key": ["host", "method"],
            "values": {"rows": "count", "bytes": {"sum": "size"}, "slowest": {"max": "dltime"}},
        },
    ]
    live.rewrite(sinks=sinks)
    live.produce(80)
    live.ingest()
    port = live.site.port("thrift")
    committed: dict[tuple[str, bytes], set[Cells]] = defaultdict(set)

    def note(scans: Scans) -> None:
        """What is there, now that all is published, is what the last commit has made."""
        # HBase closes connections that nobody uses for a minute.
        connection = happybase.Connection("127.0.0.1", port)
        for table in tables:
            for key, row in scanned(connection, table).items():
                committed[table, key].add(row)
        connection.close()
        scans.wait()

    with Scans(port, tables) as scans:
        note(scans)
        live.produce(60)
        run = live.new_run()
        # A process that dies with all rows written, and one that dies after its commit: the next run finishes it.
        crash(live, run, on_step=cut_after(Step.SINK_STORED, 2))
        scans.wait()
        live.ingest(run)
        note(scans)
        live.produce(60)
        run = live.new_run()
        crash(live, run, on_step=cut_after(Step.COMMITTED))
        scans.wait()
        live.ingest(run)
        note(scans)
        host = max(row["host"] for row in live.expected().rows.values() if "host" in row)
        live.rewrite(sinks=sinks, checks=[{"invalid_when": f"host = '{host}'", "reason": "gone"}])
        replayed = live.ranges(0, 0, (0, 20)) | live.ranges(0, 1, (3, 9))
        live.select(LaneKind.REPLAY, replayed)
        note(scans)
        asked("compact", "--yes", str(live.file), "--sink", "hbase_aggregates")
        note(scans)
        erased = _first(replayed)
        asked("erase", "--yes", str(live.file), "--records", erased, "--reason", "a test")
        note(scans)
        live.produce(30)
        live.ingest()
        note(scans)
    assert all(any(table == name for name, _ in scans.rows) for table in tables)
    other = {at: rows - committed[at] for at, rows in scans.rows.items() if rows - committed[at]}
    assert not other
    assert any(len(rows) > 2 for rows in scans.rows.values()), "the client has seen no change"


def _first(ranges: RangeSet) -> str:
    one = next(iter(ranges))
    return f"{one.partition}@{one.start}"
