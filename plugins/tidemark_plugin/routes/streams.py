"""The page of all streams."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from tidemark_plugin import serving
from tidemark_plugin.viewing import User, Viewing


def routes(viewing: Viewing) -> APIRouter:
    router = APIRouter(tags=["streams"])

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return serving.file("streams.html")

    @router.get("/api/streams")
    async def list_streams(user: User) -> dict[str, Any]:
        """The names of the streams that you may see, and what is wrong with files that are no stream files."""
        found, problems = await viewing.visible(user)
        return {"streams": sorted(found), "problems": problems}

    return router
