"""Bodies of tasks that several DAGs share. They import heavy modules inside, since Airflow parses DAG files all the time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark.errors import TidemarkError
from tidemark.runs.requests.forms import Request, checked

if TYPE_CHECKING:
    from tidemark.ledger.records import LaneKind, Record
    from tidemark.offsets.ranges import RangeSet
    from tidemark.runs.live.open_stream import OpenStream
    from tidemark.runs.requests.answers import OffsetAnswer
    from tidemark.streams.model import Stream

log = logging.getLogger(__name__)

# The runs that a DAG allows, as words that Airflow turns into an enum of its own (which is not public).
ON_REQUEST: list[Any] = ["manual", "operator_triggered"]
ON_SCHEDULE: list[Any] = ["scheduled", *ON_REQUEST]

# The same for a first try and its retries: by this name the ledger recognises a retry.
RUN = "{{ dag.dag_id }}/{{ run_id }}"
# What the job of a run notes of itself is told apart from what an earlier try has noted.
TRY_NUMBER = "--try-number={{ ti.try_number }}"
_DRAWN = "tidemark_drawn_once"


def run_name(context: Mapping[str, Any]) -> str:
    return f"{context['dag'].dag_id}/{context['run_id']}"


def drawn_once(context: Mapping[str, Any]) -> str:
    """What tells a task from that of the same name in another Airflow: drawn at the first try, and the same at all others."""
    store = context["task_state_store"]
    drawn: str | None = store.get(_DRAWN)
    if drawn is None:
        drawn = token_hex(8)
        store.set(_DRAWN, drawn)
    return drawn


def asked_of(context: Mapping[str, Any], kind: type[Request]) -> Request:
    """The request of a run, checked. Raises WrongUse.

    Where Airflow sends events of OpenLineage, it adds a key to the conf of a run that another DAG triggers.
    """
    sent = {name: value for name, value in (context["dag_run"].conf or {}).items() if name != "openlineage"}
    return checked(kind, context["params"], sent)


def results_asset(stream: Stream) -> Asset:
    """The asset that other DAGs can be scheduled on: an event for each run that committed windows."""
    return Asset(name=f"{stream.name}_results", uri=f"tidemark://{stream.name}/results", group="tidemark")


@contextmanager
def airflow_errors(context: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Tidemark's errors as Airflow's: Airflow does not retry errors that a retry cannot mend.

    With the context of a task of ours, the error's sentence is the answer of its run.
    """
    try:
        yield
    except TidemarkError as problem:
        said = f"{type(problem).__name__}: {problem}"
        if context is not None:
            keep_answer(context, said)
        kind = AirflowException if problem.retriable else AirflowFailException
        raise kind(said) from problem


def keep_answer(context: Mapping[str, Any], said: str) -> None:
    """Keeps what the answer of a run is, in one line, as an XCom: the run's note and page have it, and not only the log."""
    from tidemark.views.summary import ANSWER

    context["ti"].xcom_push(key=ANSWER, value=said)


def describe(opened: OpenStream, ranges: RangeSet) -> dict[str, Any]:
    """A selection for a task's log and result: the number of its offsets, and its first ranges."""
    from tidemark.ledger.incarnations import written_range

    topics = opened.ledger.topics()
    shown = [written_range(topics, one) for one, _ in zip(ranges, range(100), strict=False)]
    return {"offsets": ranges.count(), "ranges": shown}


def answered(opened: OpenStream, answers: Sequence[OffsetAnswer]) -> dict[str, Any]:
    """The answers to the offsets of a request, for a task's result: totals, and the first lines. Logs them as a table.

    Numbers of offsets are texts: the page of the run reads them in a browser, which rounds numbers above 2^53.
    """
    from tidemark.runs.requests.answers import MAX_LINES, answer_texts, table

    topics = opened.ledger.topics()
    for line in table(answers, topics):
        log.info("%s", line)
    return answer_texts(answers, topics, MAX_LINES)


def _event_time(opened: OpenStream) -> dict[str, Any]:
    """The stream's watermark for an event. What was committed is published even when the watermark cannot be known."""
    from tidemark.views.event_time.progress import progress, progress_shown

    try:
        seen = progress(opened)
        return progress_shown(seen, seen.watermark())
    except TidemarkError as problem:
        log.warning("no watermark of %s: %s", opened.ledger.stream, problem)
        return {"watermark": None}


def committed_event(opened: OpenStream, lane: str, records: Sequence[Record]) -> dict[str, Any]:
    """The contents of the results' event: the windows that a run has committed in a lane, and the stream's watermark."""
    from tidemark.views.summary import windows

    return {
        "lane": lane,
        "windows": [asdict(window) for window in windows(opened.ledger.topics(), records)],
        **_event_time(opened),
    }


def publish(stream_file: str, stream: Stream, kind: LaneKind) -> Any:
    """The task `publish`: the ranges and counts of what the run committed in its lanes, as an asset event and its result.

    The first lane is the event's own; `then` has the others of a backfill or replay, in the order of its jobs. The event has
    the stream's watermark too. After a backfill or replay, the result has the answer to each offset too.
    """
    asset = results_asset(stream)

    @task(task_id="publish", outlets=[asset])
    def publish_committed(**context: Any) -> dict[str, Any]:
        """Publish what was committed: ranges and counts, as an event for other DAGs and as the task's result."""
        from tidemark.airflow.connections import open_here
        from tidemark.airflow.metrics import send_counts, send_positions
        from tidemark.ledger.records import INGEST, LaneKind
        from tidemark.runs.requests.outcomes import answers_of
        from tidemark.runs.windows.lanes import lanes_of
        from tidemark.views.summary import answer_of, committed_by, said_of, windows

        with airflow_errors(context):
            opened = open_here(stream_file)
            run = run_name(context)
            lane, *others = [INGEST] if kind == LaneKind.INGEST else lanes_of(opened, kind, run)
            committed = {one: committed_by(opened, one, run) for one in (lane, *others)}
            everything = [record for records in committed.values() for record in records]
            topics = opened.ledger.topics()
            send_counts(opened.ledger.stream, everything)
            send_positions(opened)
            of_lanes = committed.values() if lane != INGEST else ()
            answers = sorted(answer for records in of_lanes for answer in answers_of(opened, records))
        event = committed_event(opened, lane, committed[lane])
        if others:
            event["then"] = [
                {"lane": name, "windows": [asdict(window) for window in windows(topics, committed[name])]}
                for name in others
            ]
        context["outlet_events"][asset].extra = event
        result = {name: value for name, value in event.items() if name in ("lane", "windows", "then")}
        result |= answered(opened, answers) if answers else {}
        # The last lines of the log are what somebody wants to know who opens it.
        keep_answer(context, answer_of(topics, everything))
        for line in said_of(topics, everything):
            log.info("%s", line)
        return result

    return publish_committed()
