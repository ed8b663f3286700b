"""The display of a job at a terminal: its step, and a bar for each partition. The log goes to a file."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from tidemark.cli.output import plain
from tidemark.cli.progress import ShownJob, few, reading_progress, without_stages
from tidemark.errors import TidemarkError, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.offsets.reading import Reading

# How often the ledger is asked, in seconds. Jobs write a sign of life every three seconds (`tidemark.commit.fence`).
LOOK_SECONDS = 1.0
# Enough lines of a log to show the problem, if the job itself did not name it.
_LAST_LINES = 10

Look = Callable[[], ShownJob]


def is_terminal(stream: TextIO) -> bool:
    """Whether bars can be drawn there. Emacs and the like are dumb terminals."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


class JobLog:
    """The file of a job's log, and the lines that an error needs. A new file for each job, readable by its owner only.

    Raises WrongUse where no file can be made.
    """

    def __init__(self, stream: str, folder: Path | None = None) -> None:
        try:
            number, name = tempfile.mkstemp(".log", f"tidemark-{stream}-", folder)
        except OSError as problem:
            raise WrongUse(
                f"there is no place for the job's log: {problem}. Make room there, name another folder in TMPDIR, "
                "or use -v, which needs no file"
            ) from problem
        self.path = Path(name)
        self._file = os.fdopen(number, "w", encoding="utf-8", errors="replace")
        self._answers: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self.tasks: tuple[int, int] | None = None

    def write(self, line: str) -> None:
        """Take a line of the job's output. The bars of Spark's stages are not written."""
        said, tasks = without_stages(line)
        if not said.strip():
            # A bar; or spaces, with which Spark takes its bars back when a job has ended.
            self.tasks = tasks
            return
        # A full disk must not stop the job, which would wait for its output to be read.
        with suppress(OSError):
            self._file.write(f"{said}\n")
            self._file.flush()
        self._last.append(said)
        if said.startswith("tidemark: "):
            self._answers.append(said)

    def why(self) -> list[str]:
        """The job's own reason for its end; the last lines of the log if it gave none."""
        return self._answers or list(self._last)

    def close(self, *, keep: bool) -> None:
        with suppress(OSError):
            self._file.close()
        if not keep:
            self.path.unlink(missing_ok=True)


class Display:
    """Shows the progress of a job, `first` until there is any. `get_time` returns seconds, for tests."""

    def __init__(
        self, console: Console, get_time: Callable[[], float] | None = None, first: ShownJob | None = None
    ) -> None:
        name = Column(no_wrap=True, overflow="ellipsis", max_width=max(10, console.width // 3))
        self._step = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False, style=""),
            TextColumn("{task.fields[tasks]}", markup=False, style="progress.download"),
            TimeElapsedColumn(),
            get_time=get_time,
        )
        self._bars = Progress(
            TextColumn("  {task.description}", markup=False, style="", table_column=name),
            BarColumn(20),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            get_time=get_time,
        )
        self._now = self._step.add_task("", total=None, tasks="")
        self._names: tuple[str | None, ...] = ()
        self.rendered = Group(self._step, self._bars)
        self.show(first or ShownJob())

    def show(self, shown: ShownJob, tasks: tuple[int, int] | None = None) -> None:
        """Show this now. `tasks`: how many of Spark's tasks are done, of how many."""
        window = f"{shown.window}: " if shown.window else ""
        said = f"{tasks[0]} of {number_of(tasks[1], 'task')}" if tasks else ""
        self._step.update(self._now, description=plain(f"{window}{shown.step}"), tasks=said)
        bars = few(shown.bars)
        names = (shown.window, *(bar.name for bar in bars))
        if names != self._names:
            for number in self._bars.task_ids:
                self._bars.remove_task(number)
            self._names = names
        for bar in bars[len(self._bars.tasks) :]:
            self._bars.add_task(plain(bar.name), total=bar.total)
        for bar, task in zip(bars, self._bars.tasks, strict=True):
            if bar.done < task.completed:
                # The next sink begins: its messages are counted from zero.
                self._bars.reset(task.id)
            self._bars.update(task.id, completed=bar.done)

    def ended(self) -> None:
        """Nothing goes on any more: what stays at the terminal spins no longer."""
        self._step.update(self._now, total=1, completed=1)


class _Rate(ProgressColumn):
    """Messages a second, over the last half minute; of what is done, over all of it."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.0f}/s" if speed else "", style="progress.data.speed", justify="right")


@contextmanager
def displayed(look: Look, log: JobLog | None, first: ShownJob | None = None) -> Iterator[None]:
    """Show on standard error what `look` finds, until the block ends, and `first` before that. Needs a terminal there.

    With the job's log, Spark's tasks are counted too.
    """
    console = Console(stderr=True)
    display = Display(console, first=first)
    over = threading.Event()

    def show() -> None:
        # Where the ledger does not answer, what was seen last stays.
        with suppress(TidemarkError):
            display.show(look(), log.tasks if log is not None else None)

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            show()

    with Live(display.rendered, console=console, redirect_stdout=False):
        thread = threading.Thread(target=watch, name="progress", daemon=True)
        thread.start()
        try:
            yield
            over.set()
            thread.join()
            show()
        finally:
            over.set()
            display.ended()


@contextmanager
def reading_shown(step: str, reading: Reading) -> Iterator[None]:
    """Show at a terminal how far this program itself is with reading offsets, until the block ends. Elsewhere nothing."""
    if on_terminal():
        with displayed(lambda: reading_progress(step, reading), None, ShownJob(step)):
            yield
    else:
        yield


def on_terminal() -> bool:
    return is_terminal(sys.stderr)
