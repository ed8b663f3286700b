"""The second Thrift interface of an HBase in memory, for tables of newest values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.simulation.hbase import Cluster, Connection2
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.thrift2 import Gateway2, thrift


class Counting(Connection2):
    """Counts the rows that scans and reads are given, and the calls."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.calls, self.rows = 0, 0

    def get(self, table: bytes, get: Any) -> Any:
        self.calls += 1
        self.rows += 1
        return super().get(table, get)

    def checkAndPut(  # noqa: N802
        self, table: bytes, row: bytes, family: bytes, qualifier: bytes, value: bytes | None, put: Any
    ) -> bool:
        asked = thrift.TGet(row=row, columns=[thrift.TColumn(family=family, qualifier=qualifier)])
        there = [bytes(one.value) for one in self.get(table, asked).columnValues]
        if there != ([] if value is None else [value]):
            return False
        self.putMultiple(table, [put])
        return True

    def getScannerResults(self, table: bytes, scan: Any, number: int) -> list[Any]:  # noqa: N802
        found = super().getScannerResults(table, scan, number)
        self.calls += 1
        self.rows += len(found)
        return found


class InMemory(Gateway2):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(HBaseEndpoint("host", 1))
        self.counted = Counting(cluster)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        yield self.counted
