"""Records of a request's `records_file`: a file, or with `hbase:TABLE` an HBase table by its columns.

A form names such a table, and an error shows the contents of a wrong cell. So the stream file has to name the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidemark.clients.hbase.endpoint import TableMissing, hbase_endpoint
from tidemark.errors import RecordsGone, WrongUse
from tidemark.offsets.coordinates import NamedOffsets
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.record_files import Rows, records_in, records_of
from tidemark.streams.record_tables import RecordTable

if TYPE_CHECKING:
    from tidemark.clients.hbase.gateway import Gateway

# HBase's client is loaded where it is needed: every command that takes records comes by here.

_TABLE = "hbase:"
# Java's int and long, as HBase's `Bytes.toBytes` writes them. With 0 as the first byte they are no text, and not
# negative; no partition and no offset comes near 2^24 and 2^56.
_INTEGERS = (4, 8)


def named_records(opened: OpenStream, name: str) -> NamedOffsets:
    """The records in a file below TIDEMARK_SELECTIONS, or with `hbase:TABLE` in a table that the stream file allows.

    Raises WrongUse naming the file and the line, or the table, the row and the column, of what is wrong. Raises Unreachable.
    """
    table = _named(opened, name)
    if table is None:
        return records_in(name)
    from tidemark.clients.hbase.gateway import Gateway

    gateway = Gateway(hbase_endpoint(opened.connections(table.hbase)))
    try:
        return records_of(name, _rows(gateway, table), [f", column {column}" for column in table.columns])
    except TableMissing:
        raise RecordsGone(f"records_file {name}: HBase has no such table at the connection {table.hbase}") from None
    finally:
        gateway.close()


def _named(opened: OpenStream, name: str) -> RecordTable | None:
    """The table that a name means; None where it means a file."""
    if not name.startswith(_TABLE):
        return None
    allowed = {table.table: table for table in opened.stream.record_tables}
    allowed_table = allowed.get(name.removeprefix(_TABLE))
    if allowed_table is None:
        raise WrongUse(
            f"records_file {name}: the stream file does not allow this table. record_tables in {opened.file.path.name} "
            f"has {', '.join(allowed) or 'none'}"
        )
    return allowed_table


def _rows(gateway: Gateway, table: RecordTable) -> Rows:
    """The rows that have a cell in any of the three columns, read in pages."""
    from tidemark.clients.hbase.tables import check_families

    check_families(gateway, table.table, {column.partition(":")[0]: {} for column in table.columns})
    columns = [column.encode() for column in table.columns]
    for key, cells in gateway.scan(table.table, b"", None, columns=columns):
        yield f"HBase table {table.table}, row {key!r}", list(_values(cells, columns))


def _values(cells: dict[bytes, Any], columns: list[bytes]) -> Iterator[object]:
    topic, *numbers = (cells.get(column) for column in columns)
    yield _text(topic)
    yield from map(_number, numbers)


def _text(cell: bytes | None) -> object:
    return cell.decode() if cell is not None and cell.isascii() else cell


def _number(cell: bytes | None) -> object:
    """A number in ASCII digits as that text, or in binary; anything else as it is."""
    if cell is not None and len(cell) in _INTEGERS and cell[0] == 0:
        return int.from_bytes(cell, "big")
    return _text(cell)
