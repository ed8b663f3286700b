"""Killing a window's job at a moment of the job itself: it has stored something of the window, and not committed it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil

from services import processes
from tidemark.errors import TidemarkError
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, Pending
from tidemark.offsets.counting import number_of

# A window takes seconds, of which most pass between the first file and the commit. On a busy machine it takes longer.
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Killed:
    """The window that a killed job held, how many files it had stored of it, and how many processes it had."""

    pending: Pending
    files: int
    processes: int


class KillInTheMiddle:
    """While the block runs, waits for the moment at which to kill the job of a run, in a thread of its own.

    A job that seems to be at that moment is stopped first, and then looked at once more. What stands still commits nothing,
    so it is certain that a killed job was in the middle. A job that was faster goes on; `killed` stays None if no other
    window comes.

    `run` is the run's name, or how that begins. `files` counts what an attempt has stored, `jobs` gives the processes of the
    job, none as long as it cannot be killed as a whole, and `say` hears what is waited for, each time that it changes.
    """

    def __init__(
        self,
        ledger: Ledger,
        run: str,
        files: Callable[[Pending], int],
        jobs: Callable[[], Sequence[psutil.Process]],
        say: Callable[[str], None],
    ) -> None:
        self.killed: Killed | None = None
        self._ledger, self._run, self._files, self._jobs, self._say = ledger, run, files, jobs, say
        self._said = ""
        self._over = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._wait, name="kill in the middle", daemon=True)

    def __enter__(self) -> KillInTheMiddle:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if problem is None and self._problem is not None:
            raise self._problem

    def _wait(self) -> None:
        try:
            while self.killed is None and not self._over.wait(LOOK_SECONDS):
                try:
                    self.killed = self._look()
                except TidemarkError as problem:
                    # A busy server answers late.
                    self._tell(f"for an answer: {problem}")
        except BaseException as problem:
            self._problem = problem

    def _look(self) -> Killed | None:
        pending = self._held()
        if pending is None or pending.attempt is None:
            self._tell(f"for {self._run} to claim a window")
            return None
        generation = f"window {pending.window.seq}, which generation {pending.attempt.generation} has claimed"
        if (files := self._files(pending)) == 0:
            self._tell(f"for the first file of {generation}")
            return None
        if not (job := self._jobs()):
            self._tell(f"for the processes of {generation}; {number_of(files, 'file')} stored")
            return None
        processes.send(job, signal.SIGSTOP)
        try:
            if self._held() == pending:
                processes.send(job, signal.SIGKILL)
                self._tell(
                    f"no longer: SIGKILL to {len(job)} processes at {generation}; {number_of(files, 'file')} stored"
                )
                return Killed(pending, files, len(job))
        finally:
            # For what was killed, this says nothing.
            processes.send(job, signal.SIGCONT)
        self._tell(f"for the next window: the job was faster than the kill, and goes on after {generation}")
        return None

    def _held(self) -> Pending | None:
        """The window that the run holds now, claimed and not committed."""
        found = self._ledger.head(INGEST)
        pending = found.head.pending if found else None
        held = pending is not None and pending.attempt is not None and pending.attempt.run.startswith(self._run)
        return pending if held else None

    def _tell(self, waits: str) -> None:
        if waits != self._said:
            self._said = waits
            self._say(f"the kill waits {waits}")
