"""The page of a window."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from tidemark.plugin import serving
from tidemark.plugin.viewing import User, Viewing
from tidemark.views.window import WindowShown, window_of

Lane = Annotated[str, Path(min_length=1, max_length=200)]
Seq = Annotated[int, Path(ge=1, lt=2**63)]


def routes(viewing: Viewing) -> APIRouter:
    router = APIRouter(tags=["windows"])

    @router.get("/streams/{name}/windows/{lane}/{seq}", include_in_schema=False)
    async def page(request: Request, name: str, lane: str, seq: str, user: User) -> Response:  # noqa: ARG001 (the script reads them)
        return await viewing.page("window", request, name, user)

    @router.get("/api/streams/{name}/windows/{lane}/{seq}", responses=serving.PROBLEMS)
    async def one_window(name: str, lane: Lane, seq: Seq, user: User) -> WindowShown:
        """One window: ranges, tallies, gaps with their reasons, its attempt, its sinks, and the time of each step."""
        return await viewing.ask(
            name, user, lambda opened: window_of(opened, lane, seq), "no such window", ledger_only=True
        )

    return router
