"""What the demonstration shows with Kafka and a folder alone: the first commands of README.md, a kill, a replay, a proof.

The ledger is a file of SQLite, the results are a Delta table, and Spark runs on this machine. In the end, Airflow runs the
same stream.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from demo.shown_stream import TRIES_TO_KILL, ShownStream, counted
from demo.stage import Chapter, Stage
from services import environment
from services.site import Site
from tidemark.runs.live.open_stream import open_stream
from tidemark.sinks.delta.attempts import attempt_folder
from tidemark.sinks.delta.settings import DeltaSink

TOPIC, STREAM = "access-logs", "access_logs"
FIRST, SECOND, LAST = 20_000, 40_000, 5_000
# The name of a run that a person has started begins so.
RUN = "cli/"
COUNT = f"SELECT count(*) FROM {STREAM}"  # noqa: S608
NO_PATTERN = "matches no pattern"

# The second format, in the form of `patterns` in the stream file. It has three fields less, which are null.
SECOND_FORMAT = r"""
  - name: with_tabs
    regex: '(\d{4}-\d\d-\d\d\t[\d:]{8})\t\S+\t(\d+)\t(\S+)\t([A-Z]+)\t\S+\t(\S+)\t(\d{3})\t(\S+)\t(\S+)(-)?(-)?(-)?'
    fields: [time, size, host, method, path, status, rest, protocol, user, referer, agent]
    timestamp: "yyyy-MM-dd'\t'HH:mm:ss"
"""


def forget(site: Site) -> None:
    """Remove the ledger and the table of an earlier demonstration, whose topic is made anew. Its DAGs must not begin before."""
    command = ["airflow", "dags", "pause", "--yes", "--treat-dag-id-as-regex", f"{STREAM}__.*"]
    settings = {**os.environ, **environment.everything(site)}
    subprocess.run([sys.executable, "-m", *command], env=settings, capture_output=True, check=False)
    shutil.rmtree(environment.home(site))


class OnOneMachine:
    """The stream `access_logs`, from the first command on."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.console, self.claim, self.tidemark = stage.console, stage.claim, stage.tidemark
        self.home = environment.home(stage.site)
        self.file = self.home / "streams" / f"{STREAM}.yaml"

    def chapters(self) -> list[Chapter]:
        """Those that need Kafka alone. After them comes `in_airflow`."""
        return [self.first_commands, self.killed_run, self.fixed_parser, self.proof]

    @cached_property
    def stream(self) -> ShownStream:
        return ShownStream(self.stage, open_stream(self.file), TOPIC)

    def first_commands(self) -> None:
        """From a topic to a table

        `init` drafts one file from the messages, which is the whole pipeline. `run` reads what is in the topic.
        """
        self.stage.make_topics(TOPIC, anew=True)
        self.stage.produce(TOPIC, FIRST, first=0, formats=1)
        self.tidemark("init", STREAM, "--topic", TOPIC, errors=_is_said)
        self.tidemark("run", STREAM)
        self.tidemark("results", STREAM, "--limit", "2")

    def killed_run(self) -> None:
        """A kill -9 in the middle of the next run

        Of a killed run nothing counts. The next one reads the same window, message for message.
        """
        rows, before = self._rows(), self.stream.seq()
        killed, number = None, 0
        while killed is None and number < TRIES_TO_KILL:
            number += 1
            self.stream.produce(SECOND)
            with self.stream.killing(RUN, self._folder, self._say_of_kill) as killing:
                self.tidemark("run", STREAM, errors=_of_end, may_fail=True)
            killed = killing.killed
        certain = self.stream.claim_killed(killed)
        self.claim(self._rows() == rows, f"readers see nothing of it: DuckDB still counts {rows} rows")
        run = certain.pending.attempt.run if certain.pending.attempt else ""
        self.tidemark("run", STREAM, "--run", run)
        self.stream.claim_read_again(certain, before, SECOND * number)

    def fixed_parser(self) -> None:
        """A bug is fixed, and a replay reads its messages again

        A third of those lines have a format that the file did not know. With a second pattern they become rows.
        """
        self.tidemark("dead-letters", STREAM)
        dead, rows = self._dead_letters(), self._rows()
        self._add_second_format()
        asked = ("--dead-letters", NO_PATTERN, "--reason", "the format with tabs")
        self.tidemark("replay", STREAM, *asked, "--compare", "--yes", output=_without_examples)
        left, more = self._dead_letters(), self._rows() - rows
        self.claim(dead == left + more, f"{dead} dead letters: {more} are rows now, {left} stay")

    def proof(self) -> None:
        """Proof, and DuckDB beside it

        The audit compares each row with its message in Kafka. Any other program counts the same rows.
        """
        (expected, stored), rows = self._audited(), self._rows()
        width = len(str(stored))
        self.stage.say(f"tidemark audit  {stored:{width}}  rows are stored, each once")
        self.stage.say(f"DuckDB          {rows:{width}}  {COUNT}")
        self.claim(stored == rows, f"both find {rows} rows")
        number = self.stream.number_of_messages()
        self.claim(
            expected == number, f"all {number} messages are accounted for: {stored} rows, the others dead letters"
        )

    def in_airflow(self) -> None:
        """The same stream in Airflow

        Each stream file is five DAGs. Airflow runs them by the clock, or when somebody triggers one.
        """
        rows = self._rows()
        records = self.stream.ingest(LAST)
        for record in records:
            self.stream.show_window(record)
        stored = counted(records, "stored")
        self.claim(self._rows() == rows + stored, f"DuckDB counts {rows + stored} rows")

    # what the chapters are made of

    def _audited(self) -> tuple[int, int]:
        """The numbers of messages and of rows that a clean audit has found."""
        said = self.tidemark("audit", STREAM).output
        counts = re.match(r"expected (\d+), stored (\d+), .*missing 0, different 0, extra 0, twice 0", said)
        self.claim(counts is not None, "the audit finds no difference")
        expected, stored = counts.groups() if counts else ("", "")
        return int(expected), int(stored)

    def _folder(self, lane: str, seq: int, generation: int) -> str:
        """Where an attempt writes its files."""
        (sink,) = [one for one in self.stream.opened.stream.sinks if isinstance(one, DeltaSink)]
        return attempt_folder(sink.base(self.stream.opened.connections), lane, seq, generation)

    def _say_of_kill(self, waits: str) -> None:
        _, kills, job = waits.partition("SIGKILL")
        if kills:
            self.stage.say(f"{kills}{job}")

    def _rows(self) -> int:
        """How many rows DuckDB counts in the Delta table."""
        return _count(self.home / "lake" / STREAM)

    def _dead_letters(self) -> int:
        return _count(self.home / "lake" / f"{STREAM}_dead")

    def _add_second_format(self) -> None:
        """Add a pattern behind the first one of the stream file, and show what was added."""
        text = self.file.read_text()
        first, behind, others = text.partition("\n\n# One row a message")
        self.file.write_text(f"{first}{SECOND_FORMAT.rstrip()}{behind}{others}")
        self.stage.say(f"a change in {self.file.name}:")
        for line in SECOND_FORMAT.strip("\n").splitlines():
            self.console.print(f"  + {line}", style="green", markup=False, soft_wrap=True)


def _count(table: Path) -> int:
    with duckdb.connect() as connection:
        connection.register(STREAM, DeltaTable(table).to_pyarrow_dataset())
        ((number,),) = connection.sql(COUNT).fetchall()
    return int(number)


def _is_said(line: str) -> bool:
    return bool(line.strip())


def _without_examples(line: str) -> bool:
    """Whether a line is none of those that name single messages, of which a replay shows up to 100."""
    return f"{TOPIC}/" not in line and not line.startswith(("partition", "delta: ", "dead letters: "))


def _of_end(line: str) -> bool:
    return line.startswith(("tidemark: ", "To go on:"))
