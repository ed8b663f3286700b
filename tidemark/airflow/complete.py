"""The last task of the ingest: announces each hour that became complete, as an event of an asset of its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow.sdk import Asset, TriggerRule, task
from airflow.sdk.exceptions import AirflowSkipException

from tidemark.airflow.steps import airflow_errors, run_name
from tidemark.streams.model import Stream


def complete_asset(stream: Stream) -> Asset:
    """The asset of DAGs that need whole hours: an event for each run after which more hours are complete."""
    return Asset(name=f"{stream.name}_complete", uri=f"tidemark://{stream.name}/complete", group="tidemark")


def announce(stream_file: str, stream: Stream) -> Any:
    """The task `announce`. It runs when nothing was new too: an hour also becomes complete because the clock goes on.

    Airflow's state of the asset has the hours that were announced. It is no part of the ledger: without it, the hours of
    the last week are announced once more. A retry announces what an earlier try of its run has noted.
    """
    asset = complete_asset(stream)

    @task(task_id="announce", outlets=[asset], trigger_rule=TriggerRule.NONE_FAILED)
    def announce_hours(**context: Any) -> dict[str, Any]:
        """Announce each hour that has become complete, to the DAGs that wait for it."""
        from tidemark.airflow.connections import open_here
        from tidemark.airflow.metrics import send_watermark
        from tidemark.views.event_time.completeness import NOTHING_NOTED, announced_before, noted
        from tidemark.views.event_time.progress import MAX_HOURS, hour_shown, progress, progress_shown

        run, state = run_name(context), context["asset_state_store"][asset]
        before = announced_before(state.get("announced") or NOTHING_NOTED, run)
        with airflow_errors(context):
            seen = progress(open_here(stream_file))
            watermark = seen.watermark()
            send_watermark(seen, watermark)
            hours = seen.became_complete(watermark, before)
        if not hours:
            raise AirflowSkipException("no more hours are complete")
        announced = {"hours": [asdict(hour_shown(*one)) for one in hours], **progress_shown(seen, watermark)}
        context["outlet_events"][asset].extra = announced
        # Further back, no hour is due any more.
        state.set("announced", noted(before, [hour.start for hour, _ in hours], run, 2 * MAX_HOURS))
        return announced

    return announce_hours()
