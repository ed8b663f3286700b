"""Creating tables with their regions, which Thrift 1 cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.clients.hbase.tables import check_namespace
from tidemark.clients.hbase.thrift2 import Gateway2, table_name, thrift


def is_there(gateway: Gateway2, table: str) -> bool:
    return bool(gateway.repeated("list its tables", lambda client: client.tableExists(table_name(table))))


def ensure_table(
    gateway: Gateway2, table: str, families: Mapping[str, Mapping[str, Any]], splits: Sequence[bytes]
) -> None:
    """Create the table unless it exists, cut at these keys. `families`: name to `maxVersions` and `timeToLive` (seconds)."""
    if is_there(gateway, table):
        return
    columns = [thrift.TColumnFamilyDescriptor(name=name.encode(), **options) for name, options in families.items()]
    described = thrift.TTableDescriptor(tableName=table_name(table), columns=columns)

    def create(client: Any) -> None:
        try:
            client.createTable(described, list(splits))
        except thrift.TIOError as problem:
            # This very call may have created it, when its first answer was lost; or another program has.
            if "TableExistsException" not in str(problem.message):
                check_namespace(table, str(problem.message))
                raise

    gateway.repeated(f"make {table}", create)
