"""What a person sees who waits at a terminal: computed from the ledger, and drawn within the width."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.support.protocol_world import OTHER, RUN, NoWork, World, hold
from tidemark.cli.progress import (
    STARTING,
    PartitionProgress,
    ShownJob,
    bars_of,
    few,
    job_progress,
    lanes_progress,
    reading_progress,
    window_of,
    window_progress,
    without_stages,
)
from tidemark.cli.terminal import Display, JobLog, is_terminal
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
from tidemark.errors import WrongUse
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.records import Head, Heartbeat, JobProgress
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.reading import Reading

BARS = (PartitionProgress("logs/0", 10),)
STAGE = "[Stage 3:=====>                                                   (1 + 2) / 8]"


def taken(world: World, by: protocol.Run = RUN) -> Head:
    """The head while a run holds a window."""
    seen: list[Head] = []
    world.open()
    world.process(world.pin(), by, lambda step: seen.append(world.head) if step == Step.TAKEN else None)
    return seen[0]


def beat_of(head: Head, step: str = "storing hbase", done: int = 4, later: int = 0) -> Heartbeat:
    assert head.pending is not None
    assert head.pending.attempt is not None
    generation = head.pending.attempt.generation + later
    return Heartbeat(generation=generation, run=RUN.name, at=1, step=step, done={"logs/0": done, "logs/9": 7})


def test_before_there_is_a_window_spark_starts() -> None:
    world = World()
    assert window_progress(None, None, RUN.name, (), 0) == ShownJob(STARTING)
    world.open()
    assert window_progress(world.head, None, RUN.name, (), 0) == ShownJob(STARTING)
    world.pin()
    window = window_of(world.head)
    assert window is not None
    assert bars_of(window.hull()) == BARS
    assert window_progress(world.head, None, RUN.name, BARS, 0) == ShownJob(STARTING, "window 1 of s/ingest", BARS)


def test_a_sign_of_life_says_the_step_and_how_many_are_done() -> None:
    head = taken(World())
    shown = window_progress(head, beat_of(head), RUN.name, BARS, 0)
    assert shown == ShownJob("storing hbase", "window 1 of s/ingest", (PartitionProgress("logs/0", 10, 4),))
    # What a task did twice is counted twice.
    assert window_progress(head, beat_of(head, done=14), RUN.name, BARS, 0).bars == (
        PartitionProgress("logs/0", 10, 10),
    )


def test_what_others_do_is_not_shown_as_this_runs() -> None:
    head = taken(World())
    waiting = ShownJob(STARTING, "window 1 of s/ingest", BARS)
    # An older attempt's sign of life, which stays in the ledger; and a window that another run holds.
    assert window_progress(head, beat_of(head, later=-1), RUN.name, BARS, 0) == waiting
    assert window_progress(head, beat_of(head), OTHER.name, BARS, 0) == waiting
    # The run's own one, of an earlier try.
    assert window_progress(head, beat_of(head), RUN.name, BARS, since=2) == waiting


def test_a_committed_window_is_done() -> None:
    world = World()
    world.one_window()
    # Some messages were skipped, or were dead letters: the bar is full all the same.
    done = ShownJob("committed", "window 1 of s/ingest", (PartitionProgress("logs/0", 10, 10),))
    assert window_progress(world.head, None, RUN.name, BARS, 0) == done
    assert window_progress(world.head, None, OTHER.name, BARS, 0) == ShownJob(STARTING)
    world.pin()
    protocol.process(world.ledger, world.sweeps, NoWork(), hold, "ingest", 2, RUN)
    assert window_progress(world.head, None, RUN.name, BARS, 0).window == "window 2 of s/ingest"


def test_the_bars_of_a_selection_are_as_long_as_what_is_selected() -> None:
    one, other = TopicPartition("logs", 2), TopicPartition("logs", 10)
    covers = RangeSet([OffsetRange(one, 5, 7), OffsetRange(one, 100, 101), OffsetRange(other, 0, 1000)])
    assert bars_of(covers) == (PartitionProgress("logs/2", 3), PartitionProgress("logs/10", 1000))


def test_what_the_program_itself_reads_has_a_bar_for_each_partition() -> None:
    one, other = TopicPartition("logs", 2), TopicPartition("logs", 10)
    reading = Reading()
    assert reading_progress("looking for the key", reading) == ShownJob("looking for the key")
    reading.begin(RangeSet([OffsetRange(one, 5, 7), OffsetRange(one, 100, 101), OffsetRange(other, 0, 1000)]))
    reading.passed(one, 2)
    reading.passed(one, 1)
    bars = (PartitionProgress("logs/2", 3, 3), PartitionProgress("logs/10", 1000, 0))
    assert reading_progress("looking for the key", reading) == ShownJob("looking for the key", None, bars)
    # Nothing is said of Spark before the first look.
    display = Display(Console(file=io.StringIO(), width=80), Clock(), ShownJob("looking for the key"))
    assert "looking for the key" in drawn(display)[0]


def test_lanes_that_work_at_the_same_time_have_a_bar_each() -> None:
    first = ShownJob(
        "storing", "window 3 of logs/replay-1", (PartitionProgress("logs/2", 5, 4), PartitionProgress("logs/10", 3, 1))
    )
    third = ShownJob("reading", "window 1 of logs/replay-3", (PartitionProgress("logs/2", 2, 0),))
    # The second one has no window yet.
    bars = (PartitionProgress("lane 1: window 3", 8, 5), PartitionProgress("lane 3: window 1", 2, 0))
    assert lanes_progress([first, ShownJob(), third]) == ShownJob("2 lanes", None, bars)
    assert lanes_progress([ShownJob()]) == ShownJob()


def test_an_audit_says_its_step_and_what_it_has_read() -> None:
    total = (("logs/2", 5), ("logs/10", 3), ("logs/11", 4))
    noted = JobProgress(run="mine", at=1, step="reading", done={"logs/10": 7, "logs/2": 4, "logs/9": 1}, total=total)
    noted = decode(encode(noted), JobProgress, "a note")
    # Bars stand as the partitions do; what was read twice fills no bar twice.
    bars = (PartitionProgress("logs/2", 5, 4), PartitionProgress("logs/10", 3, 3), PartitionProgress("logs/11", 4, 0))
    assert job_progress(noted, "mine", 1) == ShownJob("reading", None, bars)
    assert (
        job_progress(noted, "another", 1)
        == job_progress(None, "mine", 1)
        == job_progress(noted, "mine", 2)
        == ShownJob(STARTING)
    )


BAR_LISTS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=40).map(
    lambda found: [PartitionProgress(str(number), max(pair), min(pair)) for number, pair in enumerate(found)]
)


@given(bars=BAR_LISTS, most=st.integers(1, 20))
def test_few_bars_stand_for_all(bars: list[PartitionProgress], most: int) -> None:
    shown = few(bars, most)
    assert len(shown) == min(most, len(bars))
    assert sum(one.total for one in shown) == sum(one.total for one in bars)
    assert sum(one.done for one in shown) == sum(one.done for one in bars)
    kept = [one for one in shown if one in bars]
    assert [int(one.name) for one in kept] == sorted(int(one.name) for one in kept)
    if len(bars) > most:
        assert shown[-1].name == f"{len(bars) - most + 1} others"
        left = [one.total for one in bars if one not in kept]
        assert min([one.total for one in kept], default=10**9) >= max(left)


@given(st.text().filter(lambda text: "[Stage" not in text))
def test_a_line_of_the_log_stays_as_it_is(line: str) -> None:
    assert without_stages(line) == (line, None)
    # Spark ends its bar with no line end: a line of the log follows it at once.
    assert without_stages(STAGE + line) == (line, (1, 8))


def test_the_tasks_of_stages_at_once_are_added_up() -> None:
    assert without_stages("[Stage 3:> (0 + 2) / 4][Stage 4:==> (3 + 1) / 8]") == ("", (3, 12))
    assert without_stages("WARN [Stage 3] of (1 + 2) / 8") == ("WARN [Stage 3] of (1 + 2) / 8", None)


def test_a_jobs_log_is_a_file_and_what_the_job_says_is_known(tmp_path: Path) -> None:
    log = JobLog("orders", tmp_path)
    for number in range(30):
        log.write(f"WARN {number}")
    log.write(STAGE)
    assert log.tasks == (1, 8)
    log.write(" " * 80)
    assert log.tasks is None
    assert log.why() == [f"WARN {number}" for number in range(20, 30)]
    log.write("tidemark: Fenced: another run has it")
    assert log.why() == ["tidemark: Fenced: another run has it"]
    log.close(keep=True)
    assert log.path.stat().st_mode & 0o077 == 0
    assert log.path.name.startswith("tidemark-orders-")
    lines = log.path.read_text().splitlines()
    assert (len(lines), lines[-1]) == (31, "tidemark: Fenced: another run has it")
    log.close(keep=False)
    assert not log.path.exists()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def drawn(display: Display, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(display.rendered)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_step_and_a_bar_for_each_partition_are_drawn() -> None:
    clock = Clock()
    display = Display(Console(file=io.StringIO(), width=80), clock)
    bars = (PartitionProgress("logs/0", 10_000), PartitionProgress("logs/1", 500))
    display.show(ShownJob(STARTING, "window 7 of s/ingest", bars))
    for _ in range(3):
        clock.now += 2
        bars = tuple(PartitionProgress(one.name, one.total, min(one.total, one.done + 500)) for one in bars)
        display.show(ShownJob("storing hbase", "window 7 of s/ingest", bars), (3, 8))
    step, first, second = drawn(display)
    assert "window 7 of s/ingest: storing hbase 3 of 8 tasks" in step
    assert step.endswith("0:00:06")
    # 500 in two seconds; 8,500 are left.
    assert first.split()[0] == "logs/0"
    assert first.split()[-3:] == ["1500/10000", "250/s", "00:34"]
    assert second.split()[0] == "logs/1"
    assert "500/500" in second

    # The next sink counts from zero, and the next window has other partitions.
    display.show(
        ShownJob(
            "storing parquet",
            "window 7 of s/ingest",
            (PartitionProgress("logs/0", 10_000, 20), PartitionProgress("logs/1", 500)),
        )
    )
    assert drawn(display)[1].split()[-2:] == ["20/10000", "--:--"]
    display.show(ShownJob("reading", "window 8 of s/ingest", (PartitionProgress("logs/5", 3),)))
    assert [line.split()[0] for line in drawn(display)[1:]] == ["logs/5"]
    # At the end nothing spins, and the clock stands still.
    assert not drawn(display)[0].startswith(" ")
    display.ended()
    ended = drawn(display)
    clock.now += 60
    assert drawn(display) == ended
    assert ended[0].startswith(" ")
    assert "window 8 of s/ingest: reading" in ended[0]


def test_what_is_drawn_fits_and_is_never_a_code() -> None:
    display = Display(Console(file=io.StringIO(), width=80), Clock())
    hostile = "[bold]\x1b[2J‮" + "t" * 249
    display.show(ShownJob(hostile[:20], "window 1 of s/ingest", (PartitionProgress(f"{hostile}/0", 2 * 10**9, 10**9),)))
    lines = drawn(display)
    assert len(lines) == 2
    assert all(len(line) <= 80 for line in lines)
    assert "[bold]\\x1b[2J\\u202e" in lines[0]
    assert all(line.isprintable() for line in lines)
    assert "1000000000/2000000000" in lines[1]


@pytest.mark.parametrize(("term", "terminal"), [("xterm", True), ("dumb", False), ("", False)])
def test_bars_need_a_terminal_that_draws_them(monkeypatch: pytest.MonkeyPatch, term: str, terminal: bool) -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", term)
    assert is_terminal(Tty()) == terminal
    assert not is_terminal(io.StringIO())


def test_a_full_disk_does_not_stop_the_job(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from tidemark.cli.terminal import JobLog; "
        f"log = JobLog('orders', Path('{tmp_path}')); log.write('tidemark: why'); "
        "log.close(keep=True); print(log.why(), log.path.stat().st_size)"
    )
    # No file may have a byte.
    command = ["bash", "-c", 'ulimit -f 0; exec "$0" "$@"', sys.executable, "-B", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("['tidemark: why'] 0\n", 0), done.stderr


def test_without_a_place_for_the_log_nothing_is_started(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"no place for the job's log: .*No such file.*nowhere.*TMPDIR, or use -v"):
        JobLog("orders", tmp_path / "nowhere")
