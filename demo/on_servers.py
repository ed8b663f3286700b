"""What the demonstration shows on servers: HBase, ZooKeeper and a Spark cluster, through Airflow."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import happybase
import yaml

from demo.shown_stream import TRIES_TO_KILL, ShownStream
from demo.stage import Chapter, Stage
from demo.window_jobs import engines
from services import environment
from services.site import REPOSITORY
from tidemark.ledger.records import LaneKind, Record
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
STREAM = REPOSITORY / "dags" / "streams" / "cdn_logs.yaml"
FROM_NOW = "cdn_logs_from_now"

FIRST, SECOND, THIRD, LATE = 60_000, 20_000, 60_000, 4_000
DELETED = 10
BACKFILLED = 500


class OnServers:
    """The example stream, in Airflow, with its ledger and its results in HBase. One stream of it runs on a Spark cluster."""

    servers = (
        "zookeeper",
        "hbase-master",
        "hbase-region",
        "thrift",
        "thrift2",
        "kafka",
        "spark-master",
        "spark-worker",
    )

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.site, self.console, self.claim = stage.site, stage.console, stage.claim
        self.opened = open_stream(STREAM)
        self.stream = ShownStream(stage, self.opened, TOPIC)

    def chapters(self) -> list[Chapter]:
        return [
            self.first_window,
            self.second_window,
            self.killed_window,
            self.audit_and_repair,
            self.backfill,
            self.redrive,
        ]

    # chapters: their docstrings are their titles

    def first_window(self) -> None:
        """From Kafka to HBase, through Airflow

        Four sinks at once: rows in HBase and Parquet, aggregates by host and minute, and a topic of normalised lines.
        """
        self.stage.make_topics(TOPIC, WRITTEN)
        if self.stream.positions():
            self._tidy_up()
        records = self.stream.ingest(FIRST)
        for record in records:
            self.stream.show_window(record)
        self._show_rows(records[-1])
        self._show_dead_letters()
        self._show_totals()

    def second_window(self) -> None:
        """The next run

        It reads exactly what has come since.
        """
        before = self.stream.positions()
        records = self.stream.ingest(SECOND)
        read = RangeSet(one.as_range() for record in records for one in record.window.ranges)
        since = RangeSet(OffsetRange(at, before.get(at, 0), until) for at, until in self.stream.positions().items())
        self.claim(read == since, f"the windows hold what came since the last position: {since.count()} offsets")

    def killed_window(self) -> None:
        """A kill -9 in the middle of a run of Airflow

        Airflow's own retry reads the same window, in the warm engine, which goes on.
        """
        dag, before = "cdn_logs__ingest", self.stream.seq()
        warm = self._engine()
        killed, number = None, 0
        while killed is None and number < TRIES_TO_KILL:
            number += 1
            self.stream.produce(THIRD)
            run = self.stage.airflow.trigger(dag)
            with self.stream.killing(f"{dag}/{run}", self._folder, self.stage.say) as killing:
                state = self.stream.watch(dag, run)
            self.claim(state == "success", f"run {number} ended with {state}, after Airflow's own retry", dag, run)
            killed = killing.killed
        certain = self.stream.claim_killed(killed)
        self.claim(self._engine() == warm, "Spark was not started again: the retry ran in the same warm engine")
        self.stream.claim_read_again(certain, before, THIRD * number)
        self._audit(clean=True)

    def audit_and_repair(self) -> None:
        """Ten rows are deleted behind Tidemark's back

        The audit names exactly these ten, replays them into the one sink that lacks them, and audits that again.
        """
        gone = self._delete_rows()
        before, replayed = self.stream.positions(), self._replayed()
        report = self._audit_with_repair()
        (hbase,) = [place for place in report["places"] if place["name"] == "hbase"]
        self.claim(set(hbase["missing_at"]) == gone, f"the audit names exactly those {DELETED} records")
        self.console.print("  " + ", ".join(sorted(gone)), soft_wrap=True)
        read = self._replayed() - replayed
        self.claim(read == gone, f"the replay has read exactly those {len(read)} records")
        self._show_totals()
        self.claim(self.stream.positions() == before, "the replay has not moved the ingest's position")
        self._audit(clean=True)

    def backfill(self) -> None:
        """A backfill, on a Spark cluster

        A second stream starts at the end of the topic. A backfill reads what it left out, in a lane of its own.
        """
        opened = self._stream_from_now(formats=1)
        dag = f"{FROM_NOW}__ingest"
        self.stage.run_dag(dag)
        self.stream.produce(LATE)
        self.stage.run_dag(dag)
        left_out = selecting.before_the_first_window(opened)
        wanted = RangeSet(
            OffsetRange(at, max(intervals[-1][0], intervals[-1][1] - BACKFILLED), intervals[-1][1])
            for at in left_out.partitions
            if (intervals := left_out.of(at))
        )
        self.claim(bool(wanted), f"{left_out.count()} offsets before its first window are in no window")
        ranges = "\n".join(f"{one.partition}@{one.start}-{one.until}" for one in wanted)
        self.stage.run_dag(
            f"{FROM_NOW}__backfill", {"ranges": ranges, "reason": "left out at the start", "dry_run": False}
        )
        filled = opened.ledger.authority().covered() & wanted
        self.claim(
            filled == wanted, f"the backfill has filled {wanted.count()} of them: {ranges.replace(chr(10), ' ')}"
        )

    def redrive(self) -> None:
        """A redrive, with its diff first

        That stream knew one of two formats: its dead letters become rows.
        """
        before = self._dead_letters(open_stream(self._file_from_now()))
        opened = self._stream_from_now(formats=2)
        asked = {"dead_letters": "*", "compare": True, "reason": "the second format was missing"}
        dag = f"{FROM_NOW}__replay"
        run = self.stage.run_dag(dag, asked)
        diff = stored_comparison(opened, f"{dag}/{run}")
        self.console.print(f"  the diff of a dry run: {diff.sentence()}", soft_wrap=True)
        (rows,) = [place for place in diff.places if place.name == "hbase"]
        after = self._dead_letters(opened)
        self.claim(
            rows.new > 0 and (rows.changed, rows.gone) == (0, 0),
            f"it names {rows.new} rows that are new, and no row that changes or goes",
        )
        self.claim(after == before, "nothing has changed yet")
        self.stage.run_dag(dag, {**asked, "dry_run": False})
        left = self._dead_letters(opened).total()
        self.claim(
            before.total() == rows.new + left, f"{before.total()} dead letters: {rows.new} are rows, {left} stay"
        )

    # what the chapters are made of

    def _tidy_up(self) -> None:
        """Finish an earlier demo, which may have ended anywhere: before reading its messages, or before the repair."""
        self.console.print("  there was a demo before this one: first, what it left")
        self.stage.run_dag("cdn_logs__ingest")
        self._audited({"repair": "execute"})

    def _audit(self, *, clean: bool) -> dict[str, Any]:
        """Run the audit, and claim that it is `clean` or not. Gives its report."""
        state, report, run = self._audited()
        said = "finds nothing" if clean else "fails, because there are differences"
        holds = (state == "success") == clean == report["clean"]
        self.claim(holds, f"the audit {said}", "cdn_logs__audit", run)
        return report

    def _audit_with_repair(self) -> dict[str, Any]:
        """Run an audit that repairs what it finds, and audits that again. Gives the first of its reports."""
        dag = "cdn_logs__audit"
        state, report, run = self._audited({"repair": "execute"})
        self.claim(not report["clean"], "the audit finds differences", dag, run)
        self.claim(state == "success", "it has replayed its findings, and audited them again", dag, run)
        again = self.stage.airflow.result(dag, run, "report_again")
        self.console.print(f"  after the repair: {again['sentence']}", soft_wrap=True)
        return report

    def _audited(self, conf: dict[str, Any] | None = None) -> tuple[str, dict[str, Any], str]:
        """Run the audit and give its state, its report, and its run."""
        dag = "cdn_logs__audit"
        self.stage.wait_for_dag(dag)
        run = self.stage.airflow.trigger(dag, conf)
        with self.console.status(f"{dag} is running"):
            state = self.stage.airflow.wait(dag, run)
        report: dict[str, Any] = self.stage.airflow.result(dag, run, "report")
        self.console.print(f"  audit: {report['sentence']}", soft_wrap=True)
        return state, report, run

    def _folder(self, lane: str, seq: int, generation: int) -> str:
        """Where an attempt writes its Parquet files."""
        (sink,) = [one for one in self.opened.stream.sinks if isinstance(one, ParquetSink)]
        return attempt_folder(sink.base(self.opened.connections), lane, seq, generation)

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
        for at, end in self.stream.positions().items():
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

        It knows the first one of the two formats, or both. Its jobs run on the Spark cluster.
        """
        stream = yaml.safe_load(STREAM.read_text())
        stream["stream"] = FROM_NOW
        stream["source"]["start"] = "latest"
        stream["sinks"] = [{"type": "hbase", "table": FROM_NOW}]
        stream["dead_letters"] = {"type": "hbase", "table": f"{FROM_NOW}_dead_letters"}
        stream["scheme"]["patterns"] = stream["scheme"]["patterns"][:formats]
        stream["engine"] |= {"spark": "spark_cluster", "master": environment.spark_master(self.site)}
        path = self._file_from_now()
        path.write_text(yaml.safe_dump(stream, sort_keys=False))
        return open_stream(path)

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
        self.claim(requests == stored, f"{len(found)} hosts and minutes have {requests} requests, as many as rows")

    def _replayed(self) -> set[str]:
        """The coordinates of all messages that replays have read."""
        return {
            str(Coordinate(one.partition, offset))
            for window in self.opened.ledger.committed()
            if window.record.kind == LaneKind.REPLAY
            for one in window.covers
            for offset in range(one.start, one.until)
        }


def _first(record: Record) -> tuple[PartitionTally, ...]:
    """The tallies of a window that is no replay; none for a replay."""
    return () if record.kind == LaneKind.REPLAY else record.tallies
