"""The page of a plan: what a replay, a backfill or an erasure would do, before anything is started."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from tidemark.errors import WrongUse
from tidemark.plugin import serving
from tidemark.plugin.access import may_trigger, note_key_search
from tidemark.plugin.bodies import body, described
from tidemark.plugin.cached_queries import WRONG, Answer, dead_letters_of, sinks_of
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.runs.requests.forms import BackfillRequest, EraseRequest, ReplayRequest, checked
from tidemark.views.erasure_preview import ErasureShown, to_erase
from tidemark.views.plan import PlanShown, planned

_REQUESTS: dict[str, type[BackfillRequest] | type[ReplayRequest]] = {
    "replay": ReplayRequest,
    "backfill": BackfillRequest,
}
_MAX_FIELDS = 40
_ONLY_LOOKS = {"reason": "only looks", "dry_run": True}
Wanted = TypeVar("Wanted", bound=BackfillRequest | ReplayRequest | EraseRequest)
Fields = Annotated[dict[str, str | int | bool | list[str] | None], Field(max_length=_MAX_FIELDS)]


class RequestToPlan(BaseModel):
    """A request to plan: the fields of the form of the DAG `NAME__replay` or `NAME__backfill`. The reason may be missing."""

    kind: Literal["replay", "backfill"]
    fields: Fields


class ErasureToPlan(BaseModel):
    """An erasure to plan: the fields of the form of the DAG `NAME__erase`. The reason may be missing."""

    fields: Fields


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["plans"])
    stale = {"description": "The plan that `plan` names is stale.", "model": serving.Problem}
    problems = {**serving.PROBLEMS_OF_POST, 409: stale}

    @router.get("/streams/{name}/plan", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await access.page("planner", request, name, user)

    @router.post("/api/streams/{name}/plan", responses=problems, openapi_extra=described(RequestToPlan))
    async def resolve(
        name: str, user: User, asked: Annotated[RequestToPlan, Depends(body(RequestToPlan))]
    ) -> PlanShown:
        """The offsets that a replay or backfill would read and replace, and the answer to each other offset. Changes nothing.

        With the field `plan`, a digest that an earlier answer has given: 409 if the plan is another one by now.
        """
        await access.stream(name, user)
        # It is not asked for yet, and nothing is started.
        fields = {**asked.fields, **_ONLY_LOOKS}
        if asked.fields.get("records_file") and not await run_in_threadpool(may_trigger, user, f"{name}__{asked.kind}"):
            # An error names what stands in a wrong line.
            raise HTTPException(403, f"records_file: files are for those who may trigger {name}__{asked.kind}")
        request, key = await access.apart(user, lambda: _read(_REQUESTS[asked.kind], fields))
        return await access.ask_long(name, user, key, lambda opened: planned(opened, request))

    @router.post("/api/streams/{name}/erasure", responses=problems, openapi_extra=described(ErasureToPlan))
    async def to_be_erased(
        name: str, user: User, asked: Annotated[ErasureToPlan, Depends(body(ErasureToPlan))]
    ) -> ErasureShown:
        """The messages that would be erased, and what would remain where. Changes nothing.

        A key is looked for in Kafka for those who may trigger the DAG `NAME__erase`, and Airflow's audit log notes who did.
        With the field `plan`, as above.
        """
        file, dag = await access.stream(name, user), f"{name}__erase"
        may = await run_in_threadpool(may_trigger, user, dag)
        for field in ("key", "records_file"):
            if asked.fields.get(field) and not may:
                raise HTTPException(403, f"{field}: what has a key, and files, are for those who may trigger {dag}")
        fields = {**asked.fields, **_ONLY_LOOKS}
        request, key = await access.apart(user, lambda: _read(EraseRequest, fields))
        if request.key:
            await run_in_threadpool(note_key_search, user, dag, key)
        others = (dead_letters_of(file), *sinks_of(file))
        erasure = await access.ask_long(name, user, key, lambda opened: to_erase(opened, request), *others)
        return replace(erasure, may_start=may)

    return router


def _read(kind: type[Wanted], fields: dict[str, Any]) -> tuple[Wanted, str] | Answer:
    """The request, and a name for it. Not in the event loop: a text of a million characters takes a while."""
    try:
        request = checked(kind, fields, fields)
    except WrongUse as problem:
        return Answer(WRONG, detail=str(problem))
    return request, hashlib.sha256(json.dumps([kind.kind.value, fields], sort_keys=True).encode()).hexdigest()
