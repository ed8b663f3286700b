"""The page of a stream."""

from __future__ import annotations

from fastapi import APIRouter, Response

from tidemark_plugin import serving
from tidemark_plugin.viewing import User, Viewing


def routes(viewing: Viewing) -> APIRouter:
    router = APIRouter(tags=["stream"])

    @router.get("/streams/{name}", include_in_schema=False)
    async def page(name: str, user: User) -> Response:
        return await viewing.page("stream.html", name, user)

    @router.get("/api/streams/{name}", responses=serving.PROBLEMS)
    async def one_stream(name: str, user: User) -> Response:
        """Positions, ends, lag, status and retention per partition; the lanes; the newest windows. Offsets are texts."""
        return serving.as_json(await viewing.asking.answer(await viewing.stream(name, user)))

    return router
