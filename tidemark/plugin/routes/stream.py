"""The page of a stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import MAX_OFFSET
from tidemark.plugin import serving
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.coverage.bars import MAX_BARS, MAX_PARTITIONS, MAX_PIXELS, BarQuery, Coverage
from tidemark.views.coverage.times import LAST_MS, CoverageInTime, Step, TimeRequest
from tidemark.views.trend import LAST, Trend, trend
from tidemark.views.triage import StreamShown, with_state


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["stream"])

    @router.get("/streams/{name}", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await access.page("stream", request, name, user)

    @router.get("/api/streams/{name}", responses=serving.PROBLEMS)
    async def one_stream(
        name: str, user: User, partitions: Annotated[int, Query(ge=1, le=MAX_PARTITIONS)] = MAX_PARTITIONS
    ) -> StreamShown:
        """Positions, ends, lag, status and retention per partition; the lanes; the newest windows. Offsets are texts.

        With more than this many `partitions`, those of the worst retention, status and lag.
        """
        return with_state(await access.shown(name, user), partitions, await access.scheduling(name, user))

    @router.get("/api/streams/{name}/coverage", responses=serving.PROBLEMS)
    async def coverage(
        name: str,
        user: User,
        width: Annotated[int, Query(ge=1, le=MAX_PIXELS)] = 800,
        first: Annotated[int, Query(ge=0, le=MAX_PARTITIONS)] = 0,
        count: Annotated[int, Query(ge=1, le=MAX_BARS)] = MAX_BARS,
        partition: Annotated[str | None, Query(max_length=300)] = None,
        start: Annotated[int | None, Query(alias="from", ge=0, le=MAX_OFFSET)] = None,
        until: Annotated[int | None, Query(ge=0, le=MAX_OFFSET)] = None,
        gaps: bool = False,
    ) -> Coverage:
        """The coverage picture: for each partition a bar of blocks, `width` pixels wide, from the left to the right.

        `count` partitions from number `first` on, or one `partition`, written as topic/number, and of that the offsets
        `[from, until)`. A pixel has the most remarkable state of its offsets. With `gaps`, only of the partitions with a
        hole, or with lost, skipped or expired offsets.
        """
        file = await access.stream(name, user)
        await access.kept(file, access.servers.index)
        asked = BarQuery(width, first, count, partition, start, until, gaps)
        return await access.ask(name, user, lambda _: access.servers.bars(file, asked), "no coverage")

    @router.get("/api/streams/{name}/coverage/times", responses=serving.PROBLEMS)
    async def in_time(
        name: str,
        user: User,
        step: Step = "hour",
        since: Annotated[
            int | None, Query(ge=0, le=LAST_MS, description="ms since 1970; without it, the newest")
        ] = None,
        until: Annotated[int | None, Query(ge=0, le=LAST_MS)] = None,
        first: Annotated[int, Query(ge=0, le=MAX_PARTITIONS)] = 0,
        count: Annotated[int, Query(ge=1, le=MAX_BARS)] = MAX_BARS,
        partition: Annotated[str | None, Query(max_length=300)] = None,
    ) -> CoverageInTime:
        """The coverage picture by event time: for each partition and each hour or day, what has become of its messages."""
        file = await access.stream(name, user)
        await access.kept(file, access.servers.index)
        asked = TimeRequest(step, since, until, first, count, partition)
        return await access.ask_long(name, user, f"times {asked}", lambda _: access.servers.in_time(file, asked))

    @router.get("/api/streams/{name}/trend", responses=serving.PROBLEMS)
    async def trend_of(name: str, user: User) -> Trend:
        """Lag, throughput and dead letters of the last windows of the ingest, the oldest first."""
        return await access.ask(name, user, _trend, "no windows", ledger_only=True)

    return router


def _trend(opened: OpenStream) -> Trend:
    head = opened.ledger.head(INGEST)
    return trend([] if head is None else newest_of_lane(opened.ledger, INGEST, head.head, LAST))
