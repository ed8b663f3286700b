"""Creating tables, and checking those that exist."""

from __future__ import annotations

from typing import Any

from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.thrift import AlreadyExists, ColumnDescriptor, HBaseIOError
from tidemark.errors import WrongUse

ALL_VERSIONS = 2**31 - 1
FOR_EVER = 2**31 - 1


def ensure_table(gateway: Gateway, table: str, families: dict[str, dict[str, Any]]) -> None:
    """Create the table unless it exists. `families`: name to options such as `maxVersions` and `timeToLive` (seconds)."""
    columns = [ColumnDescriptor(name=f"{name}:".encode(), **options) for name, options in families.items()]
    if table.encode() in gateway.repeated("list its tables", lambda client: client.getTableNames()):
        return

    def create(client: Any) -> None:
        try:
            client.createTable(table.encode(), columns)
        except AlreadyExists:
            # This very call may have created it, when its first answer was lost; or another program has.
            pass
        except HBaseIOError as problem:
            # Two programs created the table at once. HBase tells one of them only in the text of the error.
            if "TableExistsException" not in str(problem):
                check_namespace(table, str(problem))
                raise

    gateway.repeated(f"make {table}", create)
    gateway.repeated(f"open {table}", lambda client: client.getRow(table.encode(), b"\x00", {}))


def check_namespace(table: str, problem: str) -> None:
    """Raise WrongUse when HBase has refused to make a table because its namespace is not there."""
    if "NamespaceNotFoundException" in problem:
        namespace = table.partition(":")[0]
        raise WrongUse(
            f"HBase has no namespace {namespace!r} for the table {table}. Make it in HBase's shell: "
            f"create_namespace '{namespace}'"
        )


def check_families(gateway: Gateway, table: str, families: dict[str, dict[str, Any]]) -> None:
    """Raise WrongUse when a family is missing, keeps another number of versions, or deletes rows after a time."""
    descriptors = gateway.repeated(f"describe {table}", lambda client: client.getColumnDescriptors(table.encode()))
    for name, options in families.items():
        column = descriptors.get(f"{name}:".encode())
        if column is None:
            raise WrongUse(f"HBase table {table} has no column family {name!r}; make one, or name another table")
        for option, wanted in options.items():
            if getattr(column, option) != wanted:
                raise WrongUse(
                    f"HBase table {table}, family {name!r}: {option} is {getattr(column, option)}, expected {wanted}. "
                    "Alter the family, or name another table"
                )
