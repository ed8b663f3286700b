"""The page of a stream's completeness in event time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response

from tidemark.plugin import serving
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.plugin.streams import InEventTime
from tidemark.views.event_time.calendar import (
    Calendar,
    Hour,
    calendar_of,
    hour_asked,
    hour_whole,
    hours_asked,
)
from tidemark.views.event_time.progress import MAX_HOURS

Answered = TypeVar("Answered", Calendar, Hour)
_MAX_OF_A_TIME = 40

Since = Annotated[
    str, Query(max_length=_MAX_OF_A_TIME, description="the first hour, like 2026-11-21T13Z; else the last ones")
]
Hours = Annotated[int, Query(ge=1, le=MAX_HOURS)]
Begins = Annotated[
    str, Path(min_length=1, max_length=_MAX_OF_A_TIME, description="the hour that begins then, like 2026-11-21T13Z")
]


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["completeness"])

    @router.get("/streams/{name}/completeness", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await access.page("completeness", request, name, user)

    @router.get("/api/streams/{name}/completeness", responses=serving.PROBLEMS)
    async def calendar(name: str, user: User, since: Since = "", hours: Hours = MAX_HOURS) -> Calendar:
        """The watermark, and for each hour a word, what is missing, and what came late. As it was seen just now."""

        def answer(in_event_time: InEventTime) -> Calendar:
            return calendar_of(
                in_event_time.seen,
                hours_asked(since, hours, in_event_time.seen.now),
                in_event_time.watermark,
                in_event_time.first,
            )

        return await _answered(name, user, answer)

    @router.get("/api/streams/{name}/completeness/{hour}", responses=serving.PROBLEMS)
    async def one_hour(name: str, hour: Begins, user: User) -> Hour:
        """One hour, partition by partition: the rule, what is missing, what of that a backfill can read, what came late."""
        return await _answered(
            name,
            user,
            lambda in_event_time: hour_whole(in_event_time.seen, hour_asked("hour", hour), in_event_time.first),
        )

    async def _answered(name: str, user: User, answer: Callable[[InEventTime], Answered]) -> Answered:
        file = await access.stream(name, user)
        # Its answer stays: the first look at a long history takes longer than a viewer waits.
        await access.kept(file, access.servers.look_at_times)
        return await access.ask(name, user, lambda _: answer(access.servers.in_event_time(file)), "no such hour")

    return router
