"""Whether Airflow will run a stream's ingest: part of the stream's state. Pure: takes what Airflow's database says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.offsets.times import in_utc, in_words
from tidemark.views.state_words import StateReason, StreamState

# Airflow begins a run within seconds of its time. One that waits for longer than this is late.
PATIENCE_MS = 10 * 60_000


@dataclass(frozen=True)
class RunInAirflow:
    """A run of the ingest. `since` is when it came into its state."""

    run: str
    state: str
    since: int | None


@dataclass(frozen=True)
class SilentProgram:
    """A program of Airflow that gives no sign of life. `since`: its last one; None if there was none ever."""

    name: str
    since: int | None


@dataclass(frozen=True)
class Scheduling:
    """What Airflow knows of a stream's ingest. Times are milliseconds since 1970.

    `stale`: Airflow has dropped the DAG. `import_error`: the last line of its file's import error, empty for those who may not
    see it; None without one. `due`: when the next run begins. `last`: the newest run.
    """

    dag: str
    now: int
    paused: bool = False
    stale: bool = False
    import_error: str | None = None
    due: int | None = None
    last: RunInAirflow | None = None
    silent: tuple[SilentProgram, ...] = ()

    @property
    def will_run(self) -> bool:
        """Whether Airflow begins a run when it is due."""
        return not (self.paused or self.stale or self.import_error is not None or self.silent)


def scheduling_problems(seen: Scheduling, unread: str = "") -> Iterator[StateReason]:
    """Why a stream's ingest will not run, or did not. `unread`: what waits meanwhile, in a sentence."""
    yield from _without_dag(seen)
    for program in seen.silent:
        yield _silent(seen, program)
    if (late := _overdue(seen)) is not None:
        yield late
    if seen.paused:
        waits = f": {unread}" if unread else ""
        yield StateReason(
            StreamState.PAUSED,
            f"in Airflow{waits}",
            f"the DAG {seen.dag} is paused in Airflow: nothing is read until it is resumed{waits and f'; {unread}'}",
            f"Resume the DAG {seen.dag}: a run that was due meanwhile begins at once",
        )
    if seen.last is not None and seen.last.state == "failed":
        when = "" if seen.last.since is None else f" {in_words(seen.now - seen.last.since)} ago"
        yield StateReason(
            StreamState.FAILED,
            f"last run failed{when}",
            f"the last run of the ingest, {seen.last.run}, has failed{when}",
            "The run's page says why",
        )


def _without_dag(seen: Scheduling) -> Iterator[StateReason]:
    if seen.import_error is not None:
        said = f": {seen.import_error}" if seen.import_error else ""
        yield StateReason(
            StreamState.NO_DAG,
            f"import error{said}",
            f"Airflow cannot import the file of the DAG {seen.dag}, so no run begins{said}",
            "Correct that file: Airflow's list of import errors has the whole error",
        )
    elif seen.stale:
        yield StateReason(
            StreamState.NO_DAG,
            "dropped by Airflow",
            f"Airflow has dropped the DAG {seen.dag}, so no run begins",
            "The DAG processor did not find it in its file, or took too long for the file: its log says which. Many streams "
            "need several DAG files, with build_dags(..., shard=(1, 2)) and (2, 2)",
        )


def _silent(seen: Scheduling, program: SilentProgram) -> StateReason:
    since = "has never given a sign of life"
    if program.since is not None:
        since = f"has given no sign of life for {in_words(seen.now - program.since)}"
    means = (
        "no run begins"
        if program.name == "scheduler"
        else "no change of a DAG or stream file is seen, and DAGs may be stale"
    )
    return StateReason(
        StreamState.NO_HEARTBEAT,
        f"{program.name} is silent",
        f"Airflow's {program.name.replace('-', ' ')} {since}: {means}",
        f"Start `airflow {program.name}`, or see its log",
    )


def _overdue(seen: Scheduling) -> StateReason | None:
    """A run whose time has passed, or that is in the queue for long. A paused DAG has no runs that are due."""
    if seen.paused:
        return None
    last = seen.last
    if last is not None and last.state == "queued" and last.since is not None:
        if seen.now - last.since <= PATIENCE_MS:
            return None
        waits = in_words(seen.now - last.since)
        return StateReason(
            StreamState.OVERDUE,
            f"queued for {waits}",
            f"the run {last.run} of the ingest has waited in Airflow's queue for {waits}",
            "See the scheduler's log, and the limits of runs that are active at once",
        )
    running = last is not None and last.state == "running"
    if running or seen.due is None or seen.now - seen.due <= PATIENCE_MS:
        return None
    late = in_words(seen.now - seen.due)
    return StateReason(
        StreamState.OVERDUE,
        f"run due {late} ago",
        f"the run of the ingest that was due at {in_utc(seen.due)}, {late} ago, has not begun",
        "See the scheduler's log",
    )
