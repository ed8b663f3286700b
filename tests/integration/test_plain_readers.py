"""Who reads a sink without Tidemark: what docs/readers.md says is seen before a commit and after a replay, cell by cell."""

from __future__ import annotations

import json
import re
from typing import Any

import happybase
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.support.covering import REPOSITORY
from tests.support.cuts import Cut, cut_after
from tests.support.fixed_layouts import FIXED
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import ORDERS
from tests.support.sink_topics import written
from tidemark.cli.commands.results import read_rows
from tidemark.commit.protocol import Step
from tidemark.ledger.records import LaneKind

pytestmark = pytest.mark.usefixtures("spark")

SINKS = ("hbase", "hbase_latest", "hbase_aggregates", "keys", "parquet", "delta", "kafka")
SUMS, ROWS = {"amount": {"sum": "amount"}}, {"rows": "count"}


def plainly(live: LiveStream) -> dict[str, list[str]]:
    """The amounts of order 2 that a reader sees who knows nothing of generations, in each sink."""
    base = f"{live.site.folder('lake')}/{live.name}"
    with happybase.ConnectionPool(1, port=live.site.port("thrift")).connection() as connection:
        rows = [cells for _, cells in connection.table(live.name).scan() if cells.get(b"d:id") == b"2"]
        newest = [cells for _, cells in connection.table(f"{live.name}_latest").scan() if cells.get(b"d:id") == b"2"]
        sums, keys = (
            [cells for _, cells in connection.table(f"{live.name}_{name}").scan() if cells.get(b"d:id") == b"2"]
            for name in ("sums", "keys")
        )
    files = ds.dataset(base, format="parquet", exclude_invalid_files=True).to_table().to_pylist()
    messages = [json.loads(value or b"") for _, _, _, value in written(live, f"{live.name}-out")]
    found: dict[str, list[Any]] = {
        "hbase": [cells[b"d:amount"].decode() for cells in rows],
        "hbase_latest": [cells[b"d:amount"].decode() for cells in newest],
        "hbase_aggregates": [cells[b"d:amount"].decode() for cells in sums],
        "keys": [cells[b"d:amount"].decode() for cells in keys],
        "parquet": [row["amount"] for row in files if row["id"] == 2],
        "delta": [
            row["amount"] for row in DeltaTable(f"{base}_delta").to_pyarrow_table().to_pylist() if row["id"] == 2
        ],
        "kafka": [message["amount"] for message in messages if message["id"] == 2],
    }
    return {sink: sorted(str(amount) for amount in amounts) for sink, amounts in found.items()}


def counting(live: LiveStream) -> dict[str, list[str]]:
    """The same by Tidemark's readers."""
    opened = live.opened
    found = {}
    for sink in opened.stream.sinks:
        rows = [_fields(row) for row in read_rows(opened, sink, 100)]
        found[sink.name] = [str(row["amount"]) for row in rows if str(row["id"]) == "2"]
    return found


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    if "values" in row:
        return {**row["key"], **row["values"]}
    return row.get("fields") or json.loads(row["value"])


@pytest.mark.full
def test_what_a_plain_reader_sees(make: Make) -> None:
    live = make(ORDERS)
    live.kafka.create(f"{live.name}-out", 1)
    sinks: list[dict[str, Any]] = [
        {"type": "hbase", "table": live.name},
        {"type": "hbase_latest", "table": f"{live.name}_latest", "folder": f"{live.name}_latest", "key": "customer"},
        {
            "type": "hbase_aggregates",
            "table": f"{live.name}_sums",
            "folder": f"{live.name}_sums",
            "key": "id",
            "values": SUMS,
        },
        # With a key that the bug fix makes another one.
        {
            "type": "hbase_aggregates",
            "name": "keys",
            "table": f"{live.name}_keys",
            "folder": f"{live.name}_keys",
            "key": ["id", "amount"],
            "values": ROWS,
        },
        {"type": "parquet", "folder": live.name},
        {"type": "delta", "folder": f"{live.name}_delta"},
        {"type": "kafka", "topic": f"{live.name}-out"},
    ]
    assert [sink.get("name", sink["type"]) for sink in sinks] == list(SINKS)
    live.rewrite(sinks=sinks)
    orders = [{"id": number, "customer": "zoë", "amount": number / 4, "paid": True} for number in (1, 2)]
    live.kafka.send((live.topics[0], 0, b"zoe", json.dumps(order).encode()) for order in orders)
    live.ingest()
    assert plainly(live) == {key: ["0.5"] for key in SINKS}
    assert counting(live) == {key: ["0.5"] for key in SINKS}

    live.rewrite(sinks=sinks, transform=FIXED)
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 2)), "fix", on_step=cut_after(Step.VERIFIED))
    newest, both = ["5.0"], ["0.5", "5.0"]
    assert plainly(live) == {
        "hbase": newest,
        "hbase_latest": ["0.5"],
        "hbase_aggregates": ["0.5"],
        "keys": ["0.5"],
        "parquet": both,
        "delta": ["0.5"],
        "kafka": both,
    }
    assert counting(live) == {key: ["0.5"] for key in SINKS}

    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 2)), "fix")
    seen = plainly(live)
    assert seen == {
        "hbase": newest,
        "hbase_latest": newest,
        "hbase_aggregates": newest,
        "keys": newest,
        "parquet": both,
        "delta": newest,
        # And what the first try of the replay has left.
        "kafka": [*both, "5.0"],
    }
    assert counting(live) == dict.fromkeys(SINKS, newest)


def test_the_table_has_a_row_for_each_sink() -> None:
    section = (REPOSITORY / "docs" / "readers.md").read_text().split("## Each sink")[1].split("\n## ")[0]
    named = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[1:]
    lakes = ["Delta", "Iceberg", "newest rows in Delta or Iceberg", "totals in Delta or Iceberg", "Parquet"]
    assert named == [*lakes, "HBase", "newest rows in HBase", "aggregates in HBase", "Kafka"]
