"""The page of all streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tidemark.plugin import serving
from tidemark.plugin.viewing import User, Viewing
from tidemark.views.stream_line import Line, line_of

Topic = Annotated[str | None, Query(max_length=249, description="only those that read this topic")]


@dataclass(frozen=True)
class Streams:
    streams: list[str]
    problems: list[str]


def routes(viewing: Viewing) -> APIRouter:
    router = APIRouter(tags=["streams"])

    @router.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return serving.page("streams", request)

    @router.get("/api/streams", responses=serving.PROBLEMS)
    async def list_streams(user: User, topic: Topic = None) -> Streams:
        """The names of the streams that you may see, and what is wrong with files that are no stream files.

        Also which DAG files come near Airflow's limits.
        """
        found, problems = await viewing.visible(user)
        reading, slow = (found, []) if topic is None else await viewing.reading(topic, found, user)
        return Streams(sorted(reading), [*problems, *slow, *await viewing.near_limits(user, found)])

    @router.get("/api/streams/{name}/line", responses=serving.PROBLEMS)
    async def line(name: str, user: User) -> Line:
        """A stream in one line: status, lag, retention, the ingest's last commit and dead letters, the last audit."""
        return line_of(await viewing.shown(name, user))

    return router
