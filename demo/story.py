"""The chapters of the demonstration. Each says what it does, does it through Airflow, and checks its claims."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import happybase
import yaml
from deltalake import DeltaTable
from kafka import KafkaAdminClient
from rich.console import Console
from rich.table import Table

from demo.airflow import Airflow
from demo.cdn_lines import produce
from demo.killing import KillInTheMiddle
from demo.watching import Watch
from demo.window_jobs import engines, in_an_engine
from services import environment
from services.site import REPOSITORY, Site
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.ledger.records import INGEST, LaneKind, Pending, Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.comparisons import stored_comparison
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.requests import selecting
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.sink import HBaseAggregatesAdmin
from tidemark.sinks.hbase.rows import PartitionKeys
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.parquet.files import attempt_folder
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.sinks.reading import hbase_rows, pieces, rows_of_pieces

TOPIC, WRITTEN = "cdn-logs", "cdn-logs-normalised"
PARTITIONS = 4
STREAM = REPOSITORY / "dags" / "streams" / "cdn_logs.yaml"
FROM_NOW = "cdn_logs_from_now"
ALONE = "access_logs"

FIRST, SECOND, THIRD, LATE = 200_000, 50_000, 150_000, 4_000
DELETED = 10
BACKFILLED = 500
# A job that commits before it is killed shows nothing, and is followed by the next.
TRIES_TO_KILL = 5


class ClaimFailed(Exception):
    """A claim of the demonstration did not hold."""


class Story:
    """The state of the demonstration so far, and its chapters in order."""

    def __init__(self, site: Site, console: Console) -> None:
        os.environ.update(
            {**environment.connections(site, warm=True), **environment.spark(site), **environment.engines(site)}
        )
        self.site = site
        self.console = console
        self.airflow = Airflow(site)
        self.opened = open_stream(STREAM)
        self.watch = Watch(console, self.airflow, self.opened)

    def chapters(self) -> list[Callable[[], None]]:
        return [
            self.first_window,
            self.second_window,
            self.killed_window,
            self.audit_and_repair,
            self.backfill,
            self.redrive,
            self.on_one_machine,
        ]

    # chapters: their docstrings are their titles

    def first_window(self) -> None:
        """From Kafka to a table"""
        admin = KafkaAdminClient(bootstrap_servers=self.site.address("kafka"))
        missing = {TOPIC, WRITTEN} - set(admin.list_topics())
        if missing:
            admin.create_topics(
                {topic: {"num_partitions": PARTITIONS, "replication_factor": 1} for topic in sorted(missing)}
            )
        admin.close()
        if self._positions():
            self._tidy_up()
        records = self._ingest(FIRST)
        for record in records:
            self._show_window(record)
        self._show_rows(records[-1])
        self._show_dead_letters()
        self._show_totals()

    def second_window(self) -> None:
        """The next run reads exactly what has come since"""
        before = self._positions()
        records = self._ingest(SECOND)
        read = RangeSet(one.as_range() for record in records for one in record.window.ranges)
        since = RangeSet(OffsetRange(at, before.get(at, 0), until) for at, until in self._positions().items())
        self._claim(read == since, f"the windows hold what came since the last position: {since.count()} offsets")

    def killed_window(self) -> None:
        """A run whose Spark job is killed in the middle, in a warm engine that goes on"""
        dag, before = "cdn_logs__ingest", self._seq()
        warm = self._engine()
        for number in range(1, TRIES_TO_KILL + 1):
            self._produce(THIRD)
            run = self.airflow.trigger(dag)
            with self._killing(f"{dag}/{run}") as killing:
                state = self.watch.run(dag, run)
            self._claim(state == "success", f"run {number} ended with {state}, after Airflow's own retry", dag, run)
            if (killed := killing.killed) is not None:
                break
        if killed is None:
            raise ClaimFailed(
                f"each of {TRIES_TO_KILL} jobs was faster than the kill, which stopped none before its commit"
            )
        self._claim(
            killed.files > 0, f"the job was killed before its commit, with {killed.files} files of its window there"
        )
        self._claim(self._engine() == warm, "Spark was not started again: the retry ran in the same warm engine")
        records = self._committed_after(before)
        window = killed.pending.window
        again = next(record for record in records if record.seq == window.seq)
        self._claim(again.window == window, f"the retry read the same window {again.seq}, range for range")
        first = killed.pending.attempt.generation if killed.pending.attempt else 0
        self._claim(again.attempt.generation > first, "under a newer generation, so the killed try can never count")
        read, stored, dead = (_counted(records, name) for name in ("read", "stored", "dead letters"))
        whole = THIRD * number
        self._claim(read == stored + dead == whole, f"expected {whole} = stored {stored} + dead letters {dead}")
        self._audit(clean=True)

    def audit_and_repair(self) -> None:
        """Ten rows are deleted behind Tidemark's back"""
        gone = self._delete_rows()
        before, replayed = self._positions(), self._replayed()
        report = self._audit_with_repair()
        (hbase,) = [place for place in report["places"] if place["name"] == "hbase"]
        self._claim(set(hbase["missing_at"]) == gone, f"the audit names exactly those {DELETED} records")
        self.console.print("  " + ", ".join(sorted(gone)), soft_wrap=True)
        read = self._replayed() - replayed
        self._claim(read == gone, f"the replay has read exactly those {len(read)} records")
        self._show_totals()
        self._claim(self._positions() == before, "the replay has not moved the ingest's position")
        self._audit(clean=True)

    def backfill(self) -> None:
        """A stream that starts at the end, and a backfill of what it left out"""
        opened = self._stream_from_now(formats=1)
        dag = f"{FROM_NOW}__ingest"
        self._run(dag)
        self._produce(LATE)
        self._run(dag)
        left_out = selecting.before_the_first_window(opened)
        wanted = RangeSet(
            OffsetRange(at, max(intervals[-1][0], intervals[-1][1] - BACKFILLED), intervals[-1][1])
            for at in left_out.partitions
            if (intervals := left_out.of(at))
        )
        self._claim(bool(wanted), f"{left_out.count()} offsets before its first window are in no window")
        ranges = "\n".join(f"{one.partition}@{one.start}-{one.until}" for one in wanted)
        self._run(f"{FROM_NOW}__backfill", {"ranges": ranges, "reason": "left out at the start", "dry_run": False})
        filled = opened.ledger.authority().covered() & wanted
        self._claim(
            filled == wanted, f"the backfill has filled {wanted.count()} of them: {ranges.replace(chr(10), ' ')}"
        )

    def redrive(self) -> None:
        """That stream knew one of two formats: its dead letters become rows, and a diff says so first"""
        before = self._dead_letters(open_stream(self._file_from_now()))
        opened = self._stream_from_now(formats=2)
        asked = {"dead_letters": "*", "compare": True, "reason": "the second format was missing"}
        dag = f"{FROM_NOW}__replay"
        run = self._run(dag, asked)
        diff = stored_comparison(opened, f"{dag}/{run}")
        self.console.print(f"  the diff of a dry run: {diff.sentence()}", soft_wrap=True)
        (rows,) = [place for place in diff.places if place.name == "hbase"]
        after = self._dead_letters(opened)
        self._claim(
            rows.new > 0 and (rows.changed, rows.gone) == (0, 0),
            f"it names {rows.new} rows that are new, and no row that changes or goes",
        )
        self._claim(after == before, "nothing has changed yet")
        self._run(dag, {**asked, "dry_run": False})
        left = self._dead_letters(opened).total()
        self._claim(
            before.total() == rows.new + left, f"{before.total()} dead letters: {rows.new} are rows, {left} stay"
        )

    # what the chapters are made of

    def _ingest(self, count: int) -> list[Record]:
        """Produce messages, and run the ingest until they are committed. Gives the windows."""
        before = self._seq()
        self._produce(count)
        dag = "cdn_logs__ingest"
        self.airflow.wait_for_dag(dag)
        run = self.airflow.trigger(dag)
        state = self.watch.run(dag, run)
        self._claim(state == "success", f"{dag} ended with {state}", dag, run)
        # Usually one window; a scheduled run that was on its way may have read a part.
        records = self._committed_after(before)
        self._claim(_counted(records, "read") == count, f"{count} produced, {_counted(records, 'read')} read")
        return records

    def _produce(self, count: int) -> None:
        began = time.monotonic()
        produce(self.site.address("kafka"), TOPIC, count, first=sum(self._ends().values()))
        self.console.print(f"  {count} lines produced to {TOPIC} in {time.monotonic() - began:.0f} s")

    def _run(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        self.airflow.wait_for_dag(dag)
        run = self.airflow.trigger(dag, conf)
        with self.console.status(f"{dag} is running"):
            state = self.airflow.wait(dag, run)
        self._claim(state == "success", f"{dag} ended with {state}", dag, run)
        return run

    def _tidy_up(self) -> None:
        """Finish an earlier demo, which may have ended anywhere: before reading its messages, or before the repair."""
        self.console.print("  there was a demo before this one: first, what it left")
        self._run("cdn_logs__ingest")
        self._audited({"repair": "execute"})

    def _audit(self, *, clean: bool) -> dict[str, Any]:
        """Run the audit, and claim that it is `clean` or not. Gives its report."""
        state, report, run = self._audited()
        said = "finds nothing" if clean else "fails, because there are differences"
        holds = (state == "success") == clean == report["clean"]
        self._claim(holds, f"the audit {said}", "cdn_logs__audit", run)
        return report

    def _audit_with_repair(self) -> dict[str, Any]:
        """Run an audit that repairs what it finds, and audits that again. Gives the first of its reports."""
        dag = "cdn_logs__audit"
        state, report, run = self._audited({"repair": "execute"})
        self._claim(not report["clean"], "the audit finds differences", dag, run)
        self._claim(state == "success", "it has replayed its findings, and audited them again", dag, run)
        again = self.airflow.result(dag, run, "report_again")
        self.console.print(f"  after the repair: {again['sentence']}", soft_wrap=True)
        return report

    def _audited(self, conf: dict[str, Any] | None = None) -> tuple[str, dict[str, Any], str]:
        """Run the audit and give its state, its report, and its run."""
        dag = "cdn_logs__audit"
        self.airflow.wait_for_dag(dag)
        run = self.airflow.trigger(dag, conf)
        with self.console.status(f"{dag} is running"):
            state = self.airflow.wait(dag, run)
        report: dict[str, Any] = self.airflow.result(dag, run, "report")
        self.console.print(f"  audit: {report['sentence']}", soft_wrap=True)
        return state, report, run

    def _killing(self, run: str) -> KillInTheMiddle:
        """The kill of a run's job in its engine, once there is a file of its attempt in the Parquet folder."""
        opened = open_stream(STREAM)
        (sink,) = [one for one in opened.stream.sinks if isinstance(one, ParquetSink)]
        base = sink.base(opened.connections)

        def files(pending: Pending) -> int:
            generation = pending.attempt.generation if pending.attempt else 0
            folder = attempt_folder(base, INGEST, pending.window.seq, generation)
            below = os.walk(folder.removeprefix("file://"))
            return sum(name.endswith(".parquet") for _, _, names in below for name in names)

        def say(waits: str) -> None:
            self.console.print(f"  {waits}", markup=False, soft_wrap=True)

        return KillInTheMiddle(opened.ledger, run, files, lambda: in_an_engine(self.site), say)

    def _engine(self) -> list[int]:
        """The process of the warm engine's JVM."""
        return [int(one["jvm"]) for one in engines(self.site)]

    def _delete_rows(self) -> set[str]:
        """Delete ten result rows with plain HBase calls, and give their coordinates."""
        table = stream_table(self.opened, "hbase_default", "cdn_logs")
        connection = happybase.Connection("127.0.0.1", self.site.port("thrift"))
        plain = connection.table("cdn_logs")
        view = self.opened.ledger.view()
        gone: set[str] = set()
        for at, end in self._positions().items():
            rows = rows_of_pieces(self.opened.ledger, table, view, [OffsetRange(at, end - 5_000, end)])
            for row in [row for row in rows if row.fields][::2_000][: DELETED - len(gone)]:
                plain.delete(PartitionKeys(at).key(row.place.offset, 0))
                gone.add(f"{at}@{row.place.offset}")
        connection.close()
        return gone

    def _file_from_now(self) -> Path:
        return self.site.folder("streams") / f"{FROM_NOW}.yaml"

    def _stream_from_now(self, *, formats: int) -> OpenStream:
        """A stream on the same topic that starts at the end, described by a file beside the servers' state.

        It knows the first one of the two formats, or both.
        """
        stream = yaml.safe_load(STREAM.read_text())
        stream["stream"] = FROM_NOW
        stream["source"]["start"] = "latest"
        stream["sinks"] = [{"type": "hbase", "table": FROM_NOW}]
        stream["dead_letters"] = {"type": "hbase", "table": f"{FROM_NOW}_dead_letters"}
        stream["scheme"]["patterns"] = stream["scheme"]["patterns"][:formats]
        path = self._file_from_now()
        path.write_text(yaml.safe_dump(stream, sort_keys=False))
        return open_stream(path)

    def on_one_machine(self) -> None:
        """The same topic with Kafka and a folder alone: SQLite and a Delta table"""
        home = self.site.folder("demo", "home")
        shutil.rmtree(home)
        known = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CONN_")}
        known.pop("TIDEMARK_STREAMS", None)
        kafka = "AIRFLOW_CONN_KAFKA_DEFAULT"
        variables = {**known, kafka: os.environ[kafka], "TIDEMARK_HOME": str(home)}

        def tidemark(*words: str) -> str:
            self.console.print(f"  $ tidemark {' '.join(words)}", markup=False, soft_wrap=True)
            command = [sys.executable, "-m", "tidemark", *words]
            done = subprocess.run(command, cwd=home.parent, env=variables, capture_output=True, text=True, check=False)
            # Spark's own log of a run is long.
            said = done.stdout + done.stderr if words[0] == "init" else done.stdout
            for line in said.splitlines():
                self.console.print(f"  {line}", markup=False, soft_wrap=True)
            if done.returncode:
                raise ClaimFailed(f"tidemark {words[0]} ended with {done.returncode}:\n{done.stderr[-1_000:]}")
            return done.stdout

        tidemark("init", ALONE, "--topic", TOPIC)
        tidemark("run", ALONE)
        tidemark("results", ALONE, "--limit", "3")
        proof = tidemark("audit", ALONE)
        number = sum(self._ends().values())
        clean = f"expected {number}," in proof and "missing 0, different 0, extra 0, twice 0" in proof
        self._claim(clean, f"the ledger in a file and the rows in {home} account for all {number} messages")
        table = DeltaTable(home / "lake" / ALONE).to_pyarrow_dataset()
        ((seen,),) = duckdb.from_arrow(table).count("*").fetchall()
        self._claim(f"stored {seen}," in proof, f"DuckDB finds {seen} rows in the Delta table, as many as the audit")

    def _show_window(self, record: Record) -> None:
        table = Table(
            "partition", "from", "until", "read", "stored", "dead letters", "ack value", box=None, pad_edge=False
        )
        tallies = {tally.at: tally for tally in record.tallies}
        for one in record.window.ranges:
            tally = tallies.get(one.at)
            counts = (tally.read, tally.stored, tally.invalid) if tally else None
            numbers = [str(count.number) for count in counts] if counts else ["0", "0", "0"]
            table.add_row(str(one.at), str(one.start), str(one.until), *numbers, tally.read.ack if tally else "")
        self.console.print(f"  window {record.seq} of lane {record.lane}, generation {record.attempt.generation}")
        self.console.print(table)

    def _show_rows(self, record: Record) -> None:
        table = stream_table(self.opened, "hbase_default", "cdn_logs")
        view = self.opened.ledger.view("hbase")
        rows = rows_of_pieces(self.opened.ledger, table, view, pieces(record.window.hull()))
        for row in islice(rows, 5):
            words = " ".join(row.fields[name].decode() for name in self.opened.stream.fields if name in row.fields)
            self.console.print(f"  {row.place.partition}@{row.place.offset}  {words}", markup=False, soft_wrap=True)

    def _show_dead_letters(self) -> None:
        for reason, number in self._dead_letters(self.opened).most_common():
            self.console.print(f"  {number:6} dead letters: {reason}")

    def _dead_letters(self, opened: OpenStream) -> Counter[str]:
        """How many dead letters a stream has, by their reasons."""
        dead = hbase_rows(opened.ledger, opened.dead_letter_table(), None)
        return Counter(row.fields["reason"].decode() for row in dead)

    def _show_totals(self) -> None:
        """Compare the aggregates with the rows that the same windows have stored."""
        (sink,) = [one for one in self.opened.stream.sinks if isinstance(one, HBaseAggregatesSink)]
        found = [*HBaseAggregatesAdmin().rows(self.opened, sink, sys.maxsize)]
        whole = (row for row in found if None not in row["key"].values())
        for row in sorted(whole, key=lambda row: [*row["key"].values()])[:3]:
            words = [*row["key"].values(), *(f"{name} {value}" for name, value in row["values"].items())]
            self.console.print(f"  {'  '.join(words)}", markup=False, soft_wrap=True)
        requests = sum(int(row["values"]["requests"]) for row in found)
        stored = sum(tally.rows.number for window in self.opened.ledger.committed() for tally in _first(window.record))
        self._claim(requests == stored, f"{len(found)} hosts and minutes have {requests} requests, as many as rows")

    def _replayed(self) -> set[str]:
        """The coordinates of all messages that replays have read."""
        return {
            str(Coordinate(one.partition, offset))
            for window in self.opened.ledger.committed()
            if window.record.kind == LaneKind.REPLAY
            for one in window.covers
            for offset in range(one.start, one.until)
        }

    def _ends(self) -> dict[int, int]:
        """The ends of the topic's partitions: how many messages each ever had."""
        log = self.opened.log.topics([TOPIC], READ_UNCOMMITTED)[TOPIC]
        return {at: partition.end for at, partition in log.partitions.items()}

    def _positions(self) -> dict[Any, int]:
        found = self.opened.ledger.head(INGEST)
        return found.head.offsets() if found else {}

    def _pending(self) -> Pending | None:
        found = self.opened.ledger.head(INGEST)
        return found.head.pending if found else None

    def _seq(self) -> int:
        found = self.opened.ledger.head(INGEST)
        return found.head.seq if found else 0

    def _committed_after(self, seq: int) -> list[Record]:
        found = [self.opened.ledger.record(INGEST, number) for number in range(seq + 1, self._seq() + 1)]
        return [record[1] for record in found if record is not None]

    def _claim(self, holds: bool, claim: str, dag: str = "", run: str = "") -> None:
        if holds:
            self.console.print(f"  [green]✓[/] {claim}", soft_wrap=True)
            return
        log = f"\n{self.airflow.last_lines(dag, run)}" if dag else ""
        raise ClaimFailed(f"{claim}{log}")


def _first(record: Record) -> tuple[PartitionTally, ...]:
    """The tallies of a window that is no replay; none for a replay."""
    return () if record.kind == LaneKind.REPLAY else record.tallies


def _counted(records: list[Record], what: str) -> int:
    tallies = [tally for record in records for tally in record.tallies]
    if what == "read":
        return sum(tally.read.number for tally in tallies)
    if what == "stored":
        return sum(tally.stored.number for tally in tallies)
    return sum(tally.dead_letters for tally in tallies)
