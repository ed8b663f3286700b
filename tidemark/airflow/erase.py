"""NAME__erase: removes the results of messages from every sink and the dead letters, for good. No replay brings them back.

Kafka's own copy stays until Kafka deletes it. The task `publish` says what remains where.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, TriggerRule, task
from airflow.sdk.exceptions import AirflowSkipException

from tidemark.airflow.approval import approved_by, second_person
from tidemark.airflow.requests import params
from tidemark.airflow.steps import (
    ON_REQUEST,
    airflow_errors,
    answered,
    asked_of,
    committed_event,
    describe,
    keep_answer,
    results_asset,
    run_name,
)
from tidemark.airflow.stream_dag import stream_dag
from tidemark.ledger.records import LaneKind
from tidemark.offsets.counting import number_of
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.requests.forms import EraseRequest
from tidemark.streams.model import Stream

if TYPE_CHECKING:
    from tidemark.offsets.ranges import RangeSet
    from tidemark.runs.live.open_stream import OpenStream

log = logging.getLogger(__name__)

DESCRIPTION = "Remove the results of messages from every sink, for good: no replay brings them back"


def erase_dag(path: Path, stream: Stream) -> DAG:
    """Check the request, ask a second person where the stream file says so, erase, and say what remains."""
    file, approve_above, asset = str(path), stream.limits.approve_above, results_asset(stream)
    with stream_dag(
        stream,
        LaneKind.ERASE.value,
        description=DESCRIPTION,
        doc=__doc__,
        schedule=None,
        params=params(EraseRequest, approve_above),
        allowed_run_types=ON_REQUEST,
    ) as dag:

        @task
        def check(**context: Any) -> None:
            """Check the request, and find its offsets and where their results are. A dry run ends here."""
            counts = _found(context, file)
            context["ti"].xcom_push(key="found", value=counts)
            if context["params"]["dry_run"]:
                said = f"dry run: {number_of(counts['offsets'], 'offset')} would be erased"
                keep_answer(context, said)
                raise AirflowSkipException(f"{said}: {counts['ranges']}")
            if not counts["offsets"]:
                said = counts["done_before"] or "nothing was found that is not erased already"
                keep_answer(context, said)
                raise AirflowSkipException(said)

        @task
        def erase(**context: Any) -> None:
            """Open the lane, which claims the offsets, and erase them."""
            from tidemark.airflow.connections import open_here
            from tidemark.runs import erasing
            from tidemark.runs.requests import selecting
            from tidemark.runs.windows import lanes

            if context["params"]["dry_run"]:
                # Even when someone clears this task of a dry run.
                raise AirflowSkipException("this is a dry run")
            run, counts = run_name(context), context["ti"].xcom_pull(task_ids="check", key="found")
            with airflow_errors(context):
                opened = open_here(file)
                lane = lanes.lane_name(LaneKind.ERASE, run)
                if erasing.begun(opened, run, counts["asked"]) is None:
                    chosen = erasing.choose(opened, selecting.stored_selection(opened, counts["selection"]))
                    second = approved_by(context, counts["selection"]) if approve_above is not None else None
                    by = Requesters(context["dag_run"].triggering_user_name, second)
                    asked = asked_of(context, EraseRequest)
                    erasing.open_erasure(opened, run, chosen, asked.reason, by, asked=counts["asked"], plan=asked.plan)
                context["ti"].xcom_push(key="lane", value=lane)
                erasing.erase(opened, lane, run)

        @task(outlets=[asset])
        def publish(**context: Any) -> dict[str, Any]:
            """The erased messages, and what remains where, as the task's result. The asset's event names the windows."""
            from tidemark.airflow.connections import open_here
            from tidemark.runs import erasing
            from tidemark.runs.requests.answers import exact
            from tidemark.views.summary import committed_by

            with airflow_errors(context):
                opened = open_here(file)
                lane = context["ti"].xcom_pull(task_ids="erase", key="lane")
                done = erasing.done(opened, lane)
                remains = _remains(opened, done.erased)
                event = committed_event(opened, lane, committed_by(opened, lane, run_name(context)))
            context["outlet_events"][asset].extra = event
            erased = done.erased.count()
            left = ", ".join(place["name"] for place in remains if place["remains"])
            after = f"something remains in {left}" if left else "nothing remains"
            keep_answer(context, f"erased {erased} message{'s' * (erased != 1)}; {after}")
            return {
                "lane": lane,
                "windows": event["windows"],
                "erased": erased,
                "tombstones": [tombstone.as_fields() for tombstone in done.tombstones],
                "remains": remains,
                **answered(opened, exact(done.answers)),
            }

        begin: Any = erase()
        checked_request: Any = check()
        if approve_above is None:
            checked_request >> begin
        else:
            checked_request >> second_person(approve_above, TriggerRule.ALL_SUCCESS) >> begin
        begin >> publish()
    return dag


def _found(context: Any, file: str) -> dict[str, Any]:
    """A request's offsets to erase, as the page of the run shows them."""
    from tidemark.airflow.connections import open_here
    from tidemark.runs import erasing
    from tidemark.runs.requests.answers import exact
    from tidemark.runs.requests.identity import fields_of
    from tidemark.runs.windows import lanes

    with airflow_errors(context):
        asked = asked_of(context, EraseRequest)
        opened = open_here(file)
        fields = fields_of(opened, asked, lanes.begun(opened, LaneKind.ERASE, run_name(context)))
        chosen, how = erasing.requested(opened, run_name(context), asked, fields)
        done_before = lanes.completion_note(opened, LaneKind.ERASE, run_name(context))
        if done_before:
            log.warning("%s", done_before)
        if how:
            log.info("%s", how)
        if not asked.dry_run:
            erasing.clear_again(opened, chosen.erased_before)
        log.info("%s%s offsets to erase", "dry run: " if asked.dry_run else "", chosen.offsets.count())
        return {
            **describe(opened, chosen.offsets),
            "asked": fields,
            "done_before": done_before,
            "plan": erasing.digest(opened, chosen),
            "selection": opened.ledger.store_selection(chosen.offsets).digest if chosen.offsets else "",
            **answered(opened, exact(chosen.answers)),
            "remains": _remains(opened, chosen.named),
        }


def _remains(opened: OpenStream, offsets: RangeSet) -> list[dict[str, Any]]:
    """The places with results of some offsets, and what each holds of them once they are erased. Logs them."""
    from tidemark.runs import erasing

    remains = erasing.remaining(opened, offsets)
    for one in remains:
        log.info("%s (%s, %s): remains: %s", one.name, one.type, one.where(), one.remains or "nothing")
    return [one.as_fields() for one in remains]
