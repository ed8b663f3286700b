"""Committed windows, for tests of reading and compacting their folders."""

from __future__ import annotations

from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import Attempt, LaneKind, Receipt, Record, SinkReceipt, Window, WindowRange
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import NOTHING, Count, PartitionTally
from tidemark.sinks.parquet.files import attempt_folder

AT = TopicPartition("logs", 0)


def committed(base: str, seq: int, offsets: range, *, lane: str = "ingest", generation: int | None = None) -> Committed:
    """A window with a row for each of its offsets. Its generation is also the time of its commit."""
    generation = generation or seq
    ranges = (
        WindowRange(
            topic="logs",
            incarnation=1,
            partition=0,
            start=offsets.start,
            until=offsets.stop,
            log_start=0,
            log_end=offsets.stop,
        ),
    )
    window = Window(seq=seq, ranges=ranges, topic_ids={}, isolation="read_committed", pinned_at=1, run="run")
    tally = PartitionTally(
        topic="logs",
        incarnation=1,
        partition=0,
        read=NOTHING,
        stored=NOTHING,
        rows=Count(len(offsets), "0" * 16),
    )
    place = {"base": base, "folder": attempt_folder(base, lane, seq, generation)}
    receipt = Receipt(
        tallies=(tally,),
        sinks=(SinkReceipt(name="parquet", type="parquet", place=place),),
        dead_letters=None,
        started_at=1,
        finished_at=1,
    )
    record = Record(
        stream="s",
        lane=lane,
        kind=LaneKind.INGEST,
        window=window,
        attempt=Attempt(generation=generation, token="t", run="run", taken_at=1, code_version="1", stream_digest="d"),
        receipt=receipt,
        positions=(),
        committed_at=generation,
        owes_sweep=False,
        previous=None,
    )
    return Committed(record, window.hull())


def authority_of(windows: list[Committed]) -> Authority:
    return Authority((one.generation, one.covers) for one in windows)
