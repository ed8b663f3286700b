"""Tables that are made with their regions, which Thrift 1 cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.hbase.thrift2 import Gateway2, thrift


def is_there(gateway: Gateway2, table: str) -> bool:
    name = thrift.TTableName(qualifier=table.encode())
    return bool(gateway.repeated("list its tables", lambda client: client.tableExists(name)))


def ensure_table(
    gateway: Gateway2, table: str, families: Mapping[str, Mapping[str, Any]], splits: Sequence[bytes]
) -> None:
    """Make the table if it is not there, cut at these keys. `families`: name to `maxVersions` and `timeToLive` (seconds)."""
    if is_there(gateway, table):
        return
    columns = [thrift.TColumnFamilyDescriptor(name=name.encode(), **options) for name, options in families.items()]
    described = thrift.TTableDescriptor(tableName=thrift.TTableName(qualifier=table.encode()), columns=columns)

    def create(client: Any) -> None:
        try:
            client.createTable(described, list(splits))
        except thrift.TIOError as problem:
            # By this very call, when its first answer was lost; or by somebody else.
            if "TableExistsException" not in str(problem.message):
                raise

    gateway.repeated(f"make {table}", create)
