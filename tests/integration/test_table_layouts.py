"""Tables of the sink `hbase` with columns of other names, with packed cells, and with their regions."""

from __future__ import annotations

from typing import Any

import happybase
import pytest

from tests.support.command_line import asked
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS
from tidemark.clients.environment import from_environment
from tidemark.clients.hbase.thrift2 import gateway2, thrift
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.reading import hbase_rows
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks import results

pytestmark = pytest.mark.usefixtures("spark")


def with_layouts(live: LiveStream, **packed: Any) -> None:
    plain, folder = {"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}
    mapped = {"type": "hbase", "name": "mapped", "table": f"{live.name}_mapped", "columns": {"host": "h", "path": "p"}}
    small = {"type": "hbase", "name": "packed", "table": f"{live.name}_packed", "packed": True, "regions": 4, **packed}
    live.rewrite(sinks=[plain, folder, mapped, small])


@pytest.mark.full
def test_every_layout_is_read_the_same(make: Make, ledger: str, spark: Any) -> None:
    live = make(CDN, ledger=LEDGERS[ledger])
    with_layouts(live)
    live.produce(150)
    live.ingest()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9)))
    live.assert_exactly_what_was_read()
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    wanted = live.expected().rows
    for name, columns in (("mapped", {b"d:h", b"d:p"}), ("packed", {b"d:_packed"})):
        table = f"{live.name}_{name}"
        rows = hbase_rows(live.opened.ledger, stream_table(live.opened, "hbase_default", table), name)
        found = {
            (one.place.partition.topic, one.place.partition.partition, one.place.offset, one.place.index): {
                field: value.decode() for field, value in one.fields.items()
            }
            for one in rows
        }
        assert found == wanted
        cells = {column for _, row in connection.table(table).scan(row_stop=b"\xff") for column in row}
        assert columns <= cells
        assert not {b"d:host", b"d:path"} & cells
    shown = asked("results", str(live.file), "--sink", "packed", "--limit", "1000")
    assert {one["coordinate"]: one["fields"] for one in shown} == {
        f"{topic}/{partition}@{offset}": fields for (topic, partition, offset, _), fields in wanted.items()
    }
    assert [len(connection.client.getTableRegions(f"{live.name}{end}".encode())) for end in ("", "_packed")] == [1, 4]
    connection.close()
    typed = [
        {tuple(row) for row in results(spark, live.opened, name).collect()} for name in ("hbase", "mapped", "packed")
    ]
    assert typed[0] == typed[1] == typed[2]
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()

    # A table keeps the layout that it was made with.
    with_layouts(live, packed=False)
    live.produce(10)
    with pytest.raises(
        WrongUse, match=f"table {live.name}_packed was made with packed True, the stream file says unset"
    ):
        live.ingest()
    assert live.head().seq == 1


@pytest.mark.full
@pytest.mark.covers("N86")
def test_tables_in_a_namespace(make: Make) -> None:
    """Results, values by key, dead letters and the ledger itself: found by the name that HBase's shell shows."""
    live = make(CDN)
    namespace = live.name
    gateway2(from_environment, "hbase_default").repeated(
        "make a namespace", lambda client: client.createNamespace(thrift.TNamespaceDescriptor(name=namespace))
    )

    def within(space: str) -> dict[str, Any]:
        return {
            "ledger": {"type": "hbase", "table": f"{space}:ledger"},
            "sinks": [
                {"type": "hbase", "table": f"{space}:rows", "regions": 4},
                {"type": "hbase_latest", "table": f"{space}:latest", "folder": f"{live.name}_latest", "key": ["host"]},
            ],
            "dead_letters": {"type": "hbase", "table": f"{space}:dead"},
        }

    live.rewrite(**within(namespace))
    live.produce(60)
    live.ingest()
    rows = hbase_rows(live.opened.ledger, stream_table(live.opened, "hbase_default", f"{namespace}:rows"), "hbase")
    found = {(one.place.partition.topic, one.place.partition.partition, one.place.offset) for one in rows}
    assert found == {place[:3] for place in live.expected().rows}
    assert len(found) > 40
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (3, 9)))
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    there = {name.decode() for name in connection.tables() if name.startswith(f"{namespace}:".encode())}
    connection.close()
    assert there == {f"{namespace}:{name}" for name in ("ledger", "rows", "latest", "dead")}

    other = make(CDN)
    other.rewrite(**within("nowhere"))
    other.produce(10)
    with pytest.raises(WrongUse, match=r"no namespace 'nowhere' for the table .*create_namespace 'nowhere'"):
        other.ingest()
