"""A stream of the demonstration: its messages, its windows as a person reads them, and the kill of one of its jobs."""

from __future__ import annotations

import os
from collections.abc import Callable

from rich.padding import Padding
from rich.table import Table

from demo.killing import Killed, KillInTheMiddle
from demo.stage import ClaimFailed, Stage
from demo.watching import Watch
from demo.window_jobs import in_an_engine
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.ledger.records import INGEST, Pending, Record
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.open_stream import OpenStream

# A job that commits before it is killed shows nothing, and is followed by the next.
TRIES_TO_KILL = 5


class ShownStream:
    """A stream that reads one topic."""

    def __init__(self, stage: Stage, opened: OpenStream, topic: str) -> None:
        self.stage, self.opened, self.topic = stage, opened, topic

    def number_of_messages(self) -> int:
        """How many messages the topic has ever had."""
        found = self.opened.log.topics([self.topic], READ_UNCOMMITTED)[self.topic]
        return sum(partition.end for partition in found.partitions.values())

    def produce(self, count: int, *, formats: int = 2) -> None:
        self.stage.produce(self.topic, count, first=self.number_of_messages(), formats=formats)

    def ingest(self, count: int, *, formats: int = 2) -> list[Record]:
        """Produce messages, and let Airflow run the ingest until they are committed. Gives the windows."""
        before, dag, stage = self.seq(), f"{self.opened.stream.name}__{INGEST}", self.stage
        self.produce(count, formats=formats)
        stage.wait_for_dag(dag)
        run = stage.airflow.trigger(dag)
        state = self.watch(dag, run)
        stage.claim(state == "success", f"{dag} ended with {state}", dag, run)
        # Usually one window; a scheduled run that was on its way may have read a part.
        records = self.committed_after(before)
        stage.claim(counted(records, "read") == count, f"{count} produced, {counted(records, 'read')} read")
        return records

    def watch(self, dag: str, run: str) -> str:
        """Show a run of a DAG until it ends, and give its state."""
        return Watch(self.stage.console, self.stage.airflow, self.opened).run(dag, run)

    def positions(self) -> dict[TopicPartition, int]:
        found = self.opened.ledger.head(INGEST)
        return found.head.offsets() if found else {}

    def seq(self) -> int:
        found = self.opened.ledger.head(INGEST)
        return found.head.seq if found else 0

    def committed_after(self, seq: int) -> list[Record]:
        found = [self.opened.ledger.record(INGEST, number) for number in range(seq + 1, self.seq() + 1)]
        return [record[1] for record in found if record is not None]

    def show_window(self, record: Record) -> None:
        table = Table(
            "partition", "from", "until", "read", "stored", "dead letters", "ack value", box=None, pad_edge=False
        )
        for column in table.columns[1:-1]:
            column.justify = "right"
        tallies = {tally.at: tally for tally in record.tallies}
        for one in record.window.ranges:
            tally = tallies.get(one.at)
            counts = (tally.read, tally.stored, tally.invalid) if tally else None
            numbers = [str(count.number) for count in counts] if counts else ["0", "0", "0"]
            table.add_row(str(one.at), str(one.start), str(one.until), *numbers, tally.read.ack if tally else "")
        self.stage.console.print(f"  window {record.seq} of lane {record.lane}, generation {record.attempt.generation}")
        self.stage.console.print(Padding(table, (0, 0, 0, 2)))

    # a kill

    def killing(self, run: str, folder: Callable[[str, int, int], str], say: Callable[[str], None]) -> KillInTheMiddle:
        """The kill of a run's job in its engine, once a file is in the folder of its lane, window and generation."""

        def files(pending: Pending) -> int:
            generation = pending.attempt.generation if pending.attempt else 0
            below = os.walk(folder(INGEST, pending.window.seq, generation).removeprefix("file://"))
            return sum(name.endswith(".parquet") for _, _, names in below for name in names)

        return KillInTheMiddle(self.opened.ledger, run, files, lambda: in_an_engine(self.stage.site), say)

    def claim_killed(self, killed: Killed | None) -> Killed:
        """Claim that a job was killed in the middle of its window."""
        if killed is None:
            raise ClaimFailed(
                f"each of {TRIES_TO_KILL} jobs was faster than the kill, which stopped none before its commit"
            )
        self.stage.claim(
            killed.files > 0,
            f"the job was killed before its commit, with {number_of(killed.files, 'file')} of its window there",
        )
        return killed

    def claim_read_again(self, killed: Killed, before: int, count: int) -> None:
        """Claim that the windows since window `before`, the killed one among them, account for `count` messages."""
        records, window = self.committed_after(before), killed.pending.window
        again = next(record for record in records if record.seq == window.seq)
        claim = self.stage.claim
        claim(again.window == window, f"the next try read the same window {again.seq}, range for range")
        first = killed.pending.attempt.generation if killed.pending.attempt else 0
        claim(again.attempt.generation > first, "under a newer generation, so the killed try can never count")
        read, stored, dead = (counted(records, name) for name in ("read", "stored", "dead letters"))
        claim(read == stored + dead == count, f"expected {count} = stored {stored} + dead letters {dead}")


def counted(records: list[Record], what: str) -> int:
    tallies = [tally for record in records for tally in record.tallies]
    if what == "read":
        return sum(tally.read.number for tally in tallies)
    if what == "stored":
        return sum(tally.stored.number for tally in tallies)
    return sum(tally.dead_letters for tally in tallies)
