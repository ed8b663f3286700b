"""HBase's Thrift 2 interface, where every cell of a write has a timestamp of its own and a table can be made with its regions.

`hbase2.thrift` is HBase 2.6's own, as it is in the hbase-thrift jar.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import as_file, files
from typing import Any

import thriftpy2
from thriftpy2.rpc import make_client

from tidemark.hbase.gateway import MISTAKE, Gateway

# On a cluster's executors, this package is in an archive.
with as_file(files("tidemark.hbase") / "hbase2.thrift") as _file:
    thrift: Any = thriftpy2.load(str(_file), module_name="tidemark_hbase2_thrift")


class _Connection:
    """As happybase's: a `client`, and an end."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def close(self) -> None:
        self.client.close()


class Gateway2(Gateway):
    """The Thrift 2 gateways of one HBase."""

    _mistakes = (*MISTAKE, thrift.TIllegalArgument)

    @staticmethod
    def _dial(host: str, port: int, timeout_ms: int) -> _Connection:
        return _Connection(make_client(thrift.THBaseService, host, port, timeout=timeout_ms))

    def scan(self, table: str, start: bytes, stop: bytes | None, **options: Any) -> Iterator[Any]:
        """As Gateway's, but the rows are TResults. `options`: those of a TScan."""

        def page(connection: Any, start: bytes, rows: int) -> list[Any]:
            scan = thrift.TScan(startRow=start, stopRow=stop, caching=rows, **options)
            return list(connection.client.getScannerResults(table.encode(), scan, rows))

        def weight(row: Any) -> int:
            return sum(len(cell.value) for cell in row.columnValues)

        return self._paged(table, start, page, weight, lambda row: row.row)
