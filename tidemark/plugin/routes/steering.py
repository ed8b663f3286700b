"""How far a replay or backfill is, and pausing, resuming and cancelling it: as the commands of these names do."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from tidemark.plugin import serving
from tidemark.plugin.access import may_trigger, note_steering
from tidemark.plugin.bodies import body, described
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.runs import steering
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.forms import MAX_REASON
from tidemark.views.lane_progress import ProgressOfRun, progress_of

_MAX_OF_A_RUN = 600

NamedOffsets = Annotated[
    str, Query(min_length=1, max_length=_MAX_OF_A_RUN, description="a run as DAG/RUN, as cli/..., or a lane")
]


class SteerRequest(BaseModel):
    """Which run or lane, and why; a resume takes no reason."""

    run: Annotated[str, Field(min_length=1, max_length=_MAX_OF_A_RUN)]
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["progress"])

    @router.get("/api/streams/{name}/progress", responses=serving.PROBLEMS)
    async def progress(name: str, run: NamedOffsets, user: User) -> ProgressOfRun:
        """How far a replay or backfill is, per partition, by the ledger."""
        progress = await access.ask(
            name, user, lambda opened: progress_of(opened, run), "no such run", ledger_only=True
        )
        if not progress.lanes:
            return progress
        may = await run_in_threadpool(may_trigger, user, _dag_of(name, progress.lanes[0].lane))
        return replace(progress, may_steer=may)

    @router.post(
        "/api/streams/{name}/progress/{action}",
        responses=serving.PROBLEMS_OF_POST,
        openapi_extra=described(SteerRequest),
    )
    async def steer(
        name: str,
        action: Literal["pause", "resume", "cancel"],
        user: User,
        asked: Annotated[SteerRequest, Depends(body(SteerRequest))],
    ) -> ProgressOfRun:
        """Pause, resume or cancel a replay or backfill, for those who may trigger its DAG. Airflow's audit log notes it.

        A pause lets no further window begin. A cancel ends it now: its committed windows stay. A resume starts no task.
        """
        named = await access.ask(
            name, user, lambda opened: steering.lanes_of(opened, asked.run), "no such run", ledger_only=True
        )
        dag = _dag_of(name, named[-1])
        if not await run_in_threadpool(may_trigger, user, dag):
            raise HTTPException(403, f"to {action} a run is for those who may trigger {dag}")
        reason = asked.reason.strip()
        if action != "resume" and not reason:
            raise HTTPException(400, f"reason: say why; the ledger keeps it with the {action}")
        await run_in_threadpool(note_steering, user, dag, action, asked.run, reason)

        def act(opened: OpenStream) -> ProgressOfRun:
            _act(opened, action, named, reason)
            return progress_of(opened, asked.run)

        progress = await access.ask(name, user, act, "no such run", ledger_only=True)
        return replace(progress, may_steer=True)

    return router


def _act(opened: OpenStream, action: str, named: list[str], reason: str) -> None:
    if action == "cancel":
        steering.steer_lanes(named, lambda lane: steering.cancel(opened, lane, reason))
    elif action == "pause":
        steering.steer_lanes(named, lambda lane: steering.pause(opened, lane, reason))
    else:
        steering.steer_lanes(named, lambda lane: steering.resume(opened, lane))


def _dag_of(stream: str, lane: str) -> str:
    """The DAG that works on a lane. Of the lanes of a backfill, it is that of the first."""
    return f"{stream}__{lane.partition('-')[0]}"
