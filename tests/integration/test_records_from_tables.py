"""Offsets that another stream has chosen and stored as a table: they drive a replay and an audit."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import pyarrow as pa
import pytest

from services import environment
from tests.support.command_line import asked, tidemark
from tests.support.live_streams import Make
from tests.support.oracle import CDN
from tests.support.scheme_cases import CASES
from tidemark.clients.hbase.encoding import encode_rows
from tidemark.clients.hbase.endpoint import hbase_endpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.tables import ensure_table
from tidemark.errors import WrongUse
from tidemark.offsets.coordinate_files import lines_of
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs import erasing
from tidemark.runs.auditing import requested
from tidemark.runs.requests.forms import AuditRequest, EraseRequest
from tidemark.runs.requests.record_tables import named_records

pytestmark = pytest.mark.usefixtures("spark")

# Every fifth message, whatever it says.
CHOSEN = {
    "sql": "SELECT * FROM messages WHERE offset % 5 = 0",
    "fields": {"topic": "string", "partition": "integer", "offset": "integer"},
}


@pytest.mark.covers("S8")
def test_the_coordinates_that_a_stream_stores_drive_a_replay_and_an_audit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few bytes at a time, and the same messages.
    live = make(CDN, source={"fetch": {"max.partition.fetch.bytes": 512, "max.poll.records": 7}})
    live.produce(200)
    live.ingest()
    live.assert_exactly_what_was_read()

    (metadata,) = (case.scheme for case in CASES if case.name == "message_metadata")
    chooser = make(CDN, scheme=metadata, checks=[], transform=CHOSEN, source={"topics": list(live.topics)})
    chooser.ingest()
    folder = chooser.site.folder("lake") / chooser.name
    ends = live.positions().items()
    # A row names the very message that it was made of.
    fifth = {f"{topic}#1,{partition},{offset}" for (topic, partition), end in ends for offset in range(0, end, 5)}
    # No transform sees a tombstone.
    rows = live.expected().rows.items()
    wanted = fifth | {"{}#1,{},{}".format(*place[:3]) for place, fields in rows if not fields}
    assert set(lines_of(folder).splitlines()) == wanted

    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(folder.parent))
    for said in (("--records", f"@{folder}"), ("--records-file", folder.name)):
        found = asked("replay", str(live.file), *said, "--reason", "chosen elsewhere", "--dry-run")
        assert (found["offsets"], found["left_out"]) == (len(wanted), {})

    for name, value in {**environment.spark(live.site), **environment.connections(live.site)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    out, _ = tidemark("audit", str(live.file), "--records", f"@{folder}", "--json")
    report = json.loads(out)
    assert (report["clean"], report["expected"]) == (True, len(wanted))


NUMBERS: dict[str, Callable[[int], bytes]] = {
    "text": lambda number: str(number).encode(),
    "long": lambda number: number.to_bytes(8, "big"),
    "int": lambda number: number.to_bytes(4, "big"),
}


def put(gateway: Gateway, table: str, rows: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
    """Rows by their keys, each with its cells."""
    cells = ((key, *cell) for key, of_row in rows for cell in of_row.items())
    while some := list(islice(cells, 30_000)):
        keys, columns, values = (pa.array(one, pa.binary()) for one in zip(*some, strict=True))
        gateway.put(table, encode_rows(keys, [(columns, values)]), 1)


@pytest.mark.full
@pytest.mark.covers("S8", "Q9")
def test_records_of_an_hbase_table(make: Make) -> None:
    live = make(CDN)
    live.produce(60)
    live.ingest()
    topic = live.topics[0]
    gateway = Gateway(hbase_endpoint(live.opened.connections("hbase_default")))
    large, small, bad, empty = (f"{live.name}_{one}" for one in ("large", "small", "bad", "empty"))
    for table in (large, small, bad, empty):
        ensure_table(gateway, table, {"d": {}, "m": {}})
    # Far more rows than a page has, and beside each a cell that nobody has asked for.
    note, rows = b"x" * 500, 120_000
    put(
        gateway,
        large,
        (
            (b"%06d" % at, {b"d:topic": b"t", b"d:partition": b"%d" % (at % 3), b"d:offset": b"%d" % at, b"d:n": note})
            for at in range(rows)
        ),
    )
    put(
        gateway,
        small,
        [
            *(
                (kind.encode(), {b"m:t": topic.encode(), b"m:p": write(1), b"m:o": write(at)})
                for at, (kind, write) in enumerate(NUMBERS.items())
            ),
            (b"of another kind", {b"d:note": note}),
        ],
    )
    live.rewrite(
        record_tables=[
            {"table": large},
            {"table": small, "topic": "m:t", "partition": "m:p", "offset": "m:o"},
            {"table": bad},
            {"table": empty},
            {"table": f"{live.name}_none"},
            {"table": f"default:{small}", "topic": "x:t"},
        ]
    )
    tracemalloc.start()
    found = named_records(live.opened, f"hbase:{large}").open
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == RangeSet.of_intervals(
        (TopicPartition("t", partition), [(at, at + 1) for at in range(partition, rows, 3)]) for partition in range(3)
    )
    # What is kept are the records: about two hundred bytes for each.
    assert peak < 50 << 20

    wanted = RangeSet([OffsetRange(TopicPartition(topic, 1), 0, len(NUMBERS))])
    name = f"hbase:{small}"
    assert requested(live.opened, AuditRequest(records_file=name)) == wanted
    assert erasing.wanted(live.opened, EraseRequest(records_file=name, reason="a test"))[0] == wanted
    said = ("--records-file", name, "--reason", "chosen elsewhere", "--dry-run")
    assert asked("replay", "--yes", str(live.file), *said)["ranges"] == [
        {"partition": f"{topic}/1", "from": "0", "until": str(len(NUMBERS))}
    ]
    assert asked("backfill", "--yes", str(live.file), *said)["left_out"]["a window has read them"]["offsets"] == len(
        NUMBERS
    )

    whole = {b"d:topic": b"t", b"d:partition": b"0", b"d:offset": b"5"}
    bad_cells = (
        (b"d:topic", b"a/b", "expected the name of a topic, found 'a/b'"),
        (b"d:topic", b"\xff", r"expected the name of a topic, found b'\xff'"),
        (b"d:partition", b"-1", "expected a partition from 0 to 2^31-1, found '-1'"),
        (b"d:partition", (2**31).to_bytes(8, "big"), "expected a partition from 0 to 2^31-1, found 2147483648"),
        (b"d:offset", b"\xff" * 8, r"expected an offset from 0 to 2^63-2, found b'\xff\xff\xff\xff\xff\xff\xff\xff'"),
        (b"d:offset", b"12345.67", "expected an offset from 0 to 2^63-2, found '12345.67'"),
        (b"d:offset", None, "expected an offset from 0 to 2^63-2, found None"),
    )
    for number, (column, cell, why) in enumerate(bad_cells):
        # Before those of the cases until now.
        key = b"bad\x00%d" % (9 - number)
        cells = {one: value for one, value in {**whole, column: cell}.items() if value is not None}
        put(gateway, bad, [(b"a good one", whole), (key, cells)])
        with pytest.raises(WrongUse) as caught:
            named_records(live.opened, f"hbase:{bad}")
        assert str(caught.value) == f"HBase table {bad}, row {key!r}, column {column.decode()}: {why}"
    with pytest.raises(WrongUse, match=f"records_file hbase:{empty}: it has no records"):
        named_records(live.opened, f"hbase:{empty}")
    for name, why in (
        (f"{live.name}_none", "HBase has no such table at the connection hbase_default"),
        (f"default:{small}", "has no column family 'x'"),
        (live.name, "the stream file does not allow this table"),
    ):
        _, error = tidemark(
            "replay", "--yes", str(live.file), "--records-file", f"hbase:{name}", "--reason", "a test", code=2
        )
        assert why in error
    gateway.close()
