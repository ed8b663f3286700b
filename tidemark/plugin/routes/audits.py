"""The page of a stream's audits."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tidemark.plugin import serving
from tidemark.plugin.viewing import User, Viewing
from tidemark.views.audits import MOST, SHOWN, AuditList, audits


def routes(viewing: Viewing) -> APIRouter:
    router = APIRouter(tags=["audits"])

    @router.get("/streams/{name}/audits", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await viewing.page("audits", request, name, user)

    @router.get("/api/streams/{name}/audits", responses=serving.PROBLEMS)
    async def newest(name: str, user: User, limit: Annotated[int, Query(ge=1, le=MOST)] = SHOWN) -> AuditList:
        """The audits that ended last, the newest first: outcome, counts, and the first coordinates of what they found."""
        return await viewing.ask(name, user, lambda opened: audits(opened, limit), "no audits", ledger_only=True)

    return router
