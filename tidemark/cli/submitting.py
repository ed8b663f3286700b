"""Starting a Spark job from the command line, and ending with its exit code."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from typing import Any

import typer

from tidemark import errors
from tidemark.cli import programs, progress, terminal
from tidemark.cli.output import data, error
from tidemark.errors import EXIT_DONE, ProcessingFailed
from tidemark.ledger.records import Pending, Window
from tidemark.offsets.counting import number_of
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.answers import MAX_LINES, OffsetAnswer
from tidemark.streams.engine import STAGES
from tidemark.submit.command import WINDOW_JOB, job_environment, submit_command
from tidemark.submit.ivy_lines import saying_without_ivy
from tidemark.views.summary import committed_by, windows
from tidemark.views.values import as_plain

# The job's own exit codes; the job says why before. Code 1 is spark-submit's, when it could not start the job.
_OWN_CODES = {*range(errors.EXIT_WRONG_USE, errors.EXIT_LEDGER_UNREADABLE + 1), errors.EXIT_INTERNAL}


@dataclass(frozen=True)
class JobEnd:
    """The accepted exit code of a job, and where its log is, in the words of an error."""

    code: int
    log: str


def new_run() -> str:
    """A name for a run without a given name."""
    return f"cli/{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def submit(
    opened: OpenStream,
    job: str,
    arguments: Sequence[str],
    accepted: Sequence[int] = (EXIT_DONE,),
    *,
    look: terminal.Look,
    verbose: bool,
) -> JobEnd:
    """Run a job. Returns an accepted exit code, and ends the program with any other.

    At a terminal, standard error shows what `look` finds, and the job's log goes to a file, which stays unless the job
    ended with 0. Elsewhere, and with `verbose`, the log is on standard error.

    Raises WrongUse for a lake that no job could write to, before a job starts, ProcessingFailed when the job did not end by
    itself, and Interrupted when this program was told to end.
    """
    opened.check_lakes()
    connection = opened.connections(opened.stream.engine.spark)
    if verbose or not terminal.on_terminal():
        command = submit_command(opened.stream, connection, job, [*arguments])
        return _ended(programs.run(command, job_environment(), saying_without_ivy(error)), "above", accepted)
    command = submit_command(opened.stream, connection, job, [*arguments], {STAGES: "true"})
    log, code = terminal.JobLog(opened.stream.name), None
    try:
        with terminal.displayed(look, log):
            code = programs.run(command, job_environment(), saying_without_ivy(log.write))
    finally:
        log.close(keep=code != EXIT_DONE)
        if code is not None and code not in accepted:
            for said in log.why():
                error(said)
        if code is None or code not in accepted:
            error(f"The job's log: {log.path}")
    return _ended(code, f"in {log.path}", accepted)


def _ended(code: int, log: str, accepted: Sequence[int]) -> JobEnd:
    if code in accepted:
        return JobEnd(code, log)
    if code in _OWN_CODES:
        raise typer.Exit(code)
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code} and did not say why"
    raise ProcessingFailed(f"the Spark job {ended}; what it has not committed does not count. Its log is {log}.")


def process(
    opened: OpenStream,
    command: str,
    lane: str,
    run: str,
    pending: Pending | None,
    *,
    take_over: bool = False,
    verbose: bool = False,
) -> None:
    """Process a pinned window, or None, and those after it. `command` is how to go on after a failure."""
    if pending is not None:
        error(f"run {run}: window {pending.window.seq} of {opened.ledger.stream}/{lane}")
        arguments = ["--stream-file", str(opened.file.path), "--lane", lane]
        arguments += ["--seq", str(pending.window.seq), "--run", run, *(["--take-over"] if take_over else [])]
        try:
            submit(opened, WINDOW_JOB, arguments, look=_windows_of(opened, lane, run), verbose=verbose)
        except BaseException:
            error(f"To go on: {command} --run {run}")
            raise


def process_together(
    opened: OpenStream,
    command: str,
    jobs: Sequence[Sequence[str]],
    run: str,
    *,
    take_over: bool = False,
    verbose: bool = False,
) -> None:
    """Process the lanes of a run in several jobs at the same time. `jobs` has the lanes of each, in their order.

    Each job pins its own windows. A job that fails stops none of the others; this program then ends with the exit code
    of the first that has failed.
    """
    named = [f"{opened.ledger.stream}/{job[0]}" for job in jobs]
    error(f"run {run}: {len(jobs)} lanes at a time: {', '.join(named)}")
    opened.check_lakes()
    connection = opened.connections(opened.stream.engine.spark)
    quiet = terminal.on_terminal() and not verbose
    commands = [
        submit_command(
            opened.stream,
            connection,
            WINDOW_JOB,
            ["--stream-file", str(opened.file.path), "--lane", job[0], "--run", run]
            + [f"--then={lane}" for lane in job[1:]]
            + (["--take-over"] if take_over else []),
        )
        for job in jobs
    ]
    codes: list[int | None] = [None] * len(jobs)
    logs = [terminal.JobLog(opened.stream.name) for _ in jobs] if quiet else []
    says = [saying_without_ivy(log.write) for log in logs] or [
        saying_without_ivy(partial(_said_by, name)) for name in named
    ]
    looks = [_windows_of(opened, lane, run) for job in jobs for lane in job]
    shown = (
        terminal.displayed(lambda: progress.lanes_progress([look() for look in looks]), None)
        if quiet
        else nullcontext()
    )
    try:
        with shown:
            codes[:] = programs.run_together(list(zip(commands, says, strict=True)), job_environment())
    finally:
        for name, code, log in zip_longest(named, codes, logs):
            if log is not None:
                log.close(keep=code != EXIT_DONE)
            if code != EXIT_DONE:
                ended = "was interrupted" if code is None else f"ended with code {code}"
                error(f"{name}: its job {ended}" + (f", and its log is {log.path}" if log is not None else ""))
                for said in log.why() if log is not None else ():
                    _said_by(name, said)
        if any(code != EXIT_DONE for code in codes):
            error(f"What is committed stays. To read what is left: {command} --run {run}")
    for code in codes:
        if code is not None:
            _ended(code, "above", (EXIT_DONE,))


def _said_by(name: str, line: str) -> None:
    error(f"{name}: {line}")


def _windows_of(opened: OpenStream, lane: str, run: str) -> terminal.Look:
    """How far a run is with the windows of a lane."""
    known: tuple[Window | None, tuple[progress.PartitionProgress, ...]] = (None, ())
    began = opened.ledger.clock()

    def look() -> progress.ShownJob:
        nonlocal known
        stored = opened.ledger.head(lane)
        head = stored.head if stored else None
        window = progress.window_of(head)
        if window != known[0]:
            # A selection may have very many offsets: they are counted once.
            known = (window, progress.bars_of(opened.ledger.covers(window)) if window is not None else ())
        return progress.window_progress(head, opened.ledger.last_beat(lane), run, known[1], began)

    return look


def show_committed(
    opened: OpenStream,
    mine: Sequence[str],
    run: str,
    *,
    as_json: bool,
    answers: Sequence[OffsetAnswer] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Show the windows that a run has committed in its lanes; for a backfill or replay also the answers to its offsets.

    `more` are further keys of the JSON.
    """
    topics = opened.ledger.topics()
    committed = [
        {**as_plain(window), **({"lane": lane} if len(mine) > 1 else {})}
        for lane in mine
        for window in windows(topics, committed_by(opened, lane, run))
    ]
    columns = ("seq", "generation", "read", "stored", "dead_letters")
    rows = [[row[name] for name in columns] for row in committed]
    value: dict[str, Any] = {"stream": opened.ledger.stream, "lane": mine[0], "run": run, "windows": committed}
    if answers is not None:
        value["answers"] = [answer.as_fields(topics) for answer in answers]
    value.update(more or {})
    # Of a run that found nothing new, the words are all there is to say.
    if committed or as_json:
        data(value, as_json=as_json, rows=rows, columns=("window", "generation", "read", "stored", "dead letters"))
    if answers and not as_json:
        show_answers(opened, answers)


def show_answers(opened: OpenStream, answers: Sequence[OffsetAnswer]) -> None:
    """A table of the first answers; `--json` has all of them."""
    topics = opened.ledger.topics()
    rows = [list(answer.as_fields(topics).values()) for answer in answers[:MAX_LINES]]
    data(None, as_json=False, rows=rows, columns=("partition", "from", "until", "offsets", "answer"))
    if len(answers) > MAX_LINES:
        error(f"{number_of(len(answers) - MAX_LINES, 'more line')}: --json shows them")
