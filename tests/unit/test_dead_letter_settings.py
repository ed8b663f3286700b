"""What a stream file says of its dead letters: which store, and which places nothing else may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stream_text import MINIMAL
from tidemark.clients.connections import Connection
from tidemark.errors import InvalidStreamFile
from tidemark.ledger.records import SinkReceipt
from tidemark.sinks.dead_letters.kinds import KINDS
from tidemark.sinks.hbase.sink import HBaseAdmin
from tidemark.sinks.kinds import admin_of
from tidemark.streams.loading import StreamFile, load

LETTERS = "dead_letters:\n  type: hbase\n  table: orders_dead\n"


def read(tmp_path: Path, letters: str, more: str = "", sink: str = "{type: parquet, folder: rows}") -> StreamFile:
    text = MINIMAL.replace(LETTERS, f"dead_letters: {letters}\n").replace(
        "- type: hbase\n    table: orders\n", f"- {sink}\n"
    )
    path = tmp_path / "orders.yaml"
    path.write_text(text + more)
    return load(path)


def connections(name: str) -> Connection:
    return Connection(name, extra={"path": "/lake"})


@pytest.mark.covers("O11")
@pytest.mark.parametrize(
    ("said", "connection", "receipt"),
    [
        ("{folder: dead}", "lake_default", ("delta_dead_letters", {"base": "file:///lake/dead"})),
        ("{type: hbase, hbase: h, table: dead}", "h", ("hbase", {"connection": "h", "table": "dead"})),
        ("{type: parquet, folder: dead}", "lake_default", ("parquet_dead_letters", {"base": "file:///lake/dead"})),
        ("{type: delta, folder: dead}", "lake_default", ("delta_dead_letters", {"base": "file:///lake/dead"})),
        (
            "{type: sql}",
            "sql_default",
            ("sql_dead_letters", {"connection": "sql_default", "table": "tidemark_dead_letters"}),
        ),
    ],
)
def test_the_store_is_what_the_file_says_and_a_delta_table_otherwise(
    tmp_path: Path, said: str, connection: str, receipt: tuple[str, dict[str, str]]
) -> None:
    stream = read(tmp_path, said, "ledger: {type: sql}\n").stream
    assert stream.dead_letters.receipt(connections) == SinkReceipt(
        name="dead_letters", type=receipt[0], place=receipt[1]
    )
    assert stream.connections() == {"kafka_default", "lake_default", "sql_default", connection}


@pytest.mark.covers("O11")
@pytest.mark.parametrize(
    ("letters", "more", "problem"),
    [
        ("{type: parquet, folder: rows}", "", "folder 'rows' is named by two sinks"),
        ("{type: parquet, folder: rows/dead}", "", "of the dead letters"),
        ("{type: parquet, folder: ROWS}", "", "of the dead letters"),
        ("{type: parquet}", "", "dead_letters.folder: this key is missing"),
        ("{type: parquet, folder: dead, table: dead}", "", "table"),
        ("{type: delta, folder: rows}", "", "folder 'rows' is named by two sinks"),
        ("{type: orc, folder: dead}", "", "the type 'orc' is unknown"),
        ("{type: sql, table: tidemark_ledger}", "ledger: {type: sql}\n", "the ledger has the table 'tidemark_ledger'"),
        ("{type: sql, table: tidemark}", "ledger: {type: sql, table: tidemark_owners}\n", "'tidemark_owners'"),
    ],
)
def test_a_place_belongs_to_one_alone(tmp_path: Path, letters: str, more: str, problem: str) -> None:
    with pytest.raises(InvalidStreamFile) as caught:
        read(tmp_path, letters, more)
    assert problem in str(caught.value)


@pytest.mark.covers("O11")
def test_a_receipt_leads_to_what_clears_its_place() -> None:
    """Those of HBase are as they were before there were others."""
    found = {kind.settings.receipts(): admin_of(kind.settings.receipts()) for kind in KINDS.values()}
    assert isinstance(found["hbase"], HBaseAdmin)
    assert {type(one).__module__.rpartition(".")[0].rpartition(".")[2] for one in found.values()} == {*KINDS}
