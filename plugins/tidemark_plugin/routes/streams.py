"""The page of all streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Response

from tidemark.views.line import line_of
from tidemark_plugin import serving
from tidemark_plugin.asking import OK
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

    @router.get("/api/streams/{name}/line", responses=serving.PROBLEMS)
    async def line(name: str, user: User) -> Response:
        """A stream in one line: status, lag, retention, dead letters of the last windows, last commit and audit."""
        answer = await viewing.asking.answer(await viewing.stream(name, user))
        return serving.as_json(replace(answer, fields=line_of(answer.fields)) if answer.status == OK else answer)

    return router
