"""The page of all streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from tidemark.plugin import serving
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.views.state_words import StreamState
from tidemark.views.stream_line import StreamLine, line_of
from tidemark.views.triage import Sort, StateCount, StreamFilter, StreamNow, counted, in_order, matching

Topic = Annotated[str | None, Query(max_length=249, description="only those that read this topic")]


# Streams in one answer, and words of their files that can be chosen from.
MAX_LINES, _MAX_WORDS = 100, 200
Words = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class StreamPage:
    """Some of all streams in their order, from number `first` on, of the `found` ones that are wanted.

    `states` counts those that are wanted but for their state; `unknown` of them have not been asked yet. `of` are all that
    the person may see, with their `owners` and `tags`.
    """

    streams: list[StreamNow]
    first: int
    found: int
    of: int
    unknown: int
    states: list[StateCount]
    owners: list[str]
    tags: list[str]
    problems: list[str]


@dataclass(frozen=True)
class Streams:
    streams: list[str]
    problems: list[str]


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["streams"])

    @router.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return serving.page("streams", request)

    @router.get("/api/streams", responses=serving.PROBLEMS)
    async def list_streams(user: User, topic: Topic = None) -> Streams:
        """The names of the streams that you may see, and what is wrong with files that are no stream files.

        Also which DAG files come near Airflow's limits.
        """
        files, problems = await access.visible(user)
        reading, slow = (files, []) if topic is None else await access.reading(topic, files, user)
        return Streams(sorted(reading), [*problems, *slow, *await access.near_limits(user, files)])

    @router.get("/api/triage", responses=serving.PROBLEMS)
    async def triage(
        user: User,
        words: Words = "",
        state: StreamState | None = None,
        tag: Words = "",
        owner: Words = "",
        sort: Sort = "worst",
        down: bool = False,
        first: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        count: Annotated[int, Query(ge=1, le=MAX_LINES)] = 25,
    ) -> StreamPage:
        """The streams that you may see in one order over all of them, the worst first. Waits for no slow server.

        By state and its number, then by how long the oldest unread message waits. Other orders are ascending; `down` turns
        an order round. What is unknown comes last; ask again. `words` is any part of a name, description, owner, tag, state,
        rule or problem.
        """
        files, known, problems = await access.among_all(user)
        wanted = StreamFilter(words, state or "", tag, owner, sort, down)
        some = await run_in_threadpool(_among_all, known, wanted, first, count)
        await access.look_again([files[one.stream] for one in some.streams if not one.is_unread])
        near = await access.near_limits(user, [line.stream for line in known])
        return replace(some, problems=[*problems, *near])

    @router.get("/api/streams/{name}/line", responses=serving.PROBLEMS)
    async def line(name: str, user: User) -> StreamLine:
        """A stream in one line: status, lag, retention, the ingest's last commit and dead letters, the last audit."""
        return line_of(await access.shown(name, user))

    return router


def _among_all(known: list[StreamNow], wanted: StreamFilter, first: int, count: int) -> StreamPage:
    chosen = matching(known, wanted)
    ordered = in_order(chosen, wanted)
    # A page that is beyond the end, since streams have gone or are no longer wanted, is the last one.
    first = min(first, max(0, len(ordered) - 1) // count * count)
    return StreamPage(
        streams=ordered[first : first + count],
        first=first,
        found=len(ordered),
        of=len(known),
        unknown=sum(line.state is None for line in chosen),
        states=counted(chosen),
        owners=sorted({line.owner for line in known if line.owner is not None})[:_MAX_WORDS],
        tags=sorted({tag for line in known for tag in line.tags})[:_MAX_WORDS],
        problems=[],
    )
