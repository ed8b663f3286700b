"""Messages that Kafka has deleted: what was counted when they were read still tells what is wrong with their rows."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from tests.support.damage import delete_rows, place
from tests.support.live_streams import Make
from tests.support.oracle import LEDGERS, Example, Outcome
from tidemark.audit.report import AuditReport
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.ledger.codec import decode
from tidemark.ledger.records import LaneKind
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.hashing import coordinate_hash
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Count
from tidemark.sinks.hbase.rows import PartitionKeys
from tidemark.sinks.hbase.table import stream_table
from tidemark.spark.jobs.audit import audit, main

MESSAGES = 25_000
INVALID = {7, 12_345}
STRING: dict[str, Any] = {
    "source": {},
    "scheme": {"type": "string"},
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}


@pytest.mark.full
@pytest.mark.covers("N6")
@pytest.mark.usefixtures("spark")
def test_a_row_of_a_forgotten_message_is_missed_in_its_block(make: Make, ledger: str) -> None:
    example = Example(
        "numbers", STRING, ("numbers",), 1, lambda count, first: iter(()), lambda value: Outcome({}, None)
    )
    live = make(example, ledger=LEDGERS[ledger])
    (topic,) = live.topics
    live.kafka.send((topic, 0, None, b"\xff" if one in INVALID else b"%d" % one) for one in range(MESSAGES))
    (record,) = live.ingest()
    at = TopicPartition(topic, 0)
    blocks = live.opened.ledger.blocks(record)
    assert blocks is not None
    counted = {one.block: (one.stored, one.dead_letters) for one in blocks.partitions[0].blocks}
    assert counted == {
        block: tuple(
            Count.of(len(chosen), reduce(int.__xor__, (coordinate_hash(at, offset) for offset in chosen), 0))
            for chosen in ([one for one in offsets if one not in INVALID], [one for one in offsets if one in INVALID])
        )
        for block, offsets in enumerate((range(10_000), range(10_000, 20_000), range(20_000, MESSAGES)))
    }

    # A replay of a part of a block, with a dead letter in it. Then Kafka forgets two blocks and a part of the third.
    (replayed,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (5, 9), (900, 901)))
    assert replayed.receipt is not None
    assert replayed.receipt.blocks is None
    live.kafka.delete_records(topic, 0, 20_500)
    report = audit(live.opened, "clean")
    assert report.clean, report.sentence()
    assert (report.expected, report.by_tallies, report.unproven) == (4_500, 20_500, 0)
    assert "20500 offsets are no longer in Kafka, 20500 of them were compared" in report.sentence()
    assert verify(live.opened.ledger) == []

    # Behind Tidemark's back: rows and a dead letter are deleted, and a cell is changed.
    delete_rows(live, live.name, 0, 0, 12_000)
    delete_rows(live, f"{live.name}_dead", 0, 0, 12_345)
    table = stream_table(live.opened, "hbase_default", live.name)
    cell = Mutation(column=b"d:value", value=b"someone else's")
    row = BatchMutation(row=PartitionKeys(at).key(20_100, 0), mutations=[cell])
    name, generation = live.name.encode(), record.attempt.generation
    table._gateway.once(lambda client: client.mutateRowsTs(name, [row], generation, {}))
    assert main(["--stream-file", str(live.file), "--run", "differs"]) == 1
    stored = live.opened.ledger.report("differs")
    assert stored is not None
    report = decode(stored, AuditReport, "the report")
    assert [str(one) for one in place(report, "hbase").blocks_at] == [
        f"{topic}/0@10000-20000 of window ingest/1: expected 9999 rows, found 9998",
        f"{topic}/0@20000-25000 of window ingest/1: 5000 rows, and the contents of some are not what was stored",
    ]
    assert [str(one) for one in place(report, "dead letters").blocks_at] == [
        f"{topic}/0@10000-20000 of window ingest/1: expected 1 messages, found 0"
    ]
    assert place(report, "parquet").blocks == 0
    assert "missing 0, different 0, extra 0, twice 0, debris 0" in report.sentence()
    assert report.sentence().endswith("blocks that differ: 3")
