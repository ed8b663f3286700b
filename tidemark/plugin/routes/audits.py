"""The page of a stream's audits."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tidemark.plugin import serving
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.views.audits import MAX_AUDITS, SHOWN, AuditList, audits


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["audits"])

    @router.get("/streams/{name}/audits", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await access.page("audits", request, name, user)

    @router.get("/api/streams/{name}/audits", responses=serving.PROBLEMS)
    async def newest(name: str, user: User, limit: Annotated[int, Query(ge=1, le=MAX_AUDITS)] = SHOWN) -> AuditList:
        """The audits that ended last, the newest first: outcome, counts, and the first coordinates of what they found."""
        return await access.ask(name, user, lambda opened: audits(opened, limit), "no audits", ledger_only=True)

    return router
