"""The bodies of tasks that several DAGs share. What is heavy is imported inside: DAG files are parsed all the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.ranges import RangeSet
    from tidemark.streams.model import Stream

# Which runs a DAG allows, in the words that Airflow turns into an enum of its own (which is not public).
ON_SCHEDULE: list[Any] = ["scheduled", "manual"]
ON_REQUEST: list[Any] = ["manual", "operator_triggered"]

# The same for a first try and its retries: by it the ledger knows that a retry is one.
RUN = "{{ dag.dag_id }}/{{ run_id }}"


def run_name(context: Mapping[str, Any]) -> str:
    return f"{context['dag'].dag_id}/{context['run_id']}"


def results_asset(stream: Stream) -> Asset:
    """What other DAGs can be scheduled on: an event for each run that committed windows."""
    return Asset(name=f"{stream.stream}_results", uri=f"tidemark://{stream.stream}/results", group="tidemark")


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Tidemark's errors as Airflow's: what trying again cannot mend is not tried again."""
    try:
        yield
    except TidemarkError as problem:
        kind = AirflowException if problem.retriable else AirflowFailException
        raise kind(f"{type(problem).__name__}: {problem}") from problem


def describe(ranges: RangeSet) -> dict[str, Any]:
    """A selection for a task's log and result: how much it is, and its first ranges."""
    shown = [str(one) for one, _ in zip(ranges, range(100), strict=False)]
    return {"offsets": ranges.count(), "ranges": shown}


def publish(stream_file: str, stream: Stream, lane: Any) -> Any:
    """The task `publish`: an asset event with the ranges and counts of what the run committed in a lane."""
    asset = results_asset(stream)

    @task(task_id="publish", outlets=[asset])
    def publish_committed(lane: str, **context: Any) -> None:
        from tidemark.views.summary import committed_by, windows
        from tidemark_dags.connections import open_here
        from tidemark_dags.metrics import send_counts, send_positions

        with airflow_errors():
            opened = open_here(stream_file)
            records = committed_by(opened, lane, run_name(context))
            send_counts(opened.book.stream, records)
            send_positions(opened)
        context["outlet_events"][asset].extra = {"lane": lane, "windows": windows(records)}

    return publish_committed(lane)
