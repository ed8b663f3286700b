"""The page of all streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from tidemark.views.stream_line import line_of
from tidemark_plugin import serving
from tidemark_plugin.answers import Line, Streams
from tidemark_plugin.asking import OK
from tidemark_plugin.viewing import User, Viewing

Topic = Annotated[str | None, Query(max_length=249, description="only those that read this topic")]


def routes(viewing: Viewing) -> APIRouter:
    router = APIRouter(tags=["streams"])

    @router.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return serving.page("streams", request)

    @router.get("/api/streams", responses=serving.answers(Streams), response_model=None)
    async def list_streams(user: User, topic: Topic = None) -> dict[str, Any]:
        """The names of the streams that you may see, and what is wrong with files that are no stream files.

        Also which DAG files come near Airflow's limits.
        """
        found, problems = await viewing.visible(user)
        reading, slow = (found, []) if topic is None else await viewing.reading(topic, found, user)
        return {"streams": sorted(reading), "problems": [*problems, *slow, *await viewing.near_limits(user, found)]}

    @router.get("/api/streams/{name}/line", responses=serving.answers(Line))
    async def line(name: str, user: User) -> Response:
        """A stream in one line: status, lag, retention, the ingest's last commit and dead letters, the last audit."""
        answer = await viewing.shown(await viewing.stream(name, user))
        return serving.as_json(replace(answer, fields=line_of(answer.fields)) if answer.status == OK else answer)

    return router
