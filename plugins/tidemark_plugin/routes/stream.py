"""The page of a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse

from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import MAX_OFFSET
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.coverage.bars import MOST_BARS, MOST_PARTITIONS, MOST_PIXELS, Asked
from tidemark.views.overview import worst_partitions
from tidemark.views.trend import LAST, trend
from tidemark_plugin import serving
from tidemark_plugin.answers import Coverage, Stream, Trend
from tidemark_plugin.asking import OK
from tidemark_plugin.viewing import User, Viewing


def routes(viewing: Viewing) -> APIRouter:
    router = APIRouter(tags=["stream"])

    @router.get("/streams/{name}", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await viewing.page("stream", request, name, user)

    @router.get("/api/streams/{name}", responses=serving.answers(Stream))
    async def one_stream(
        name: str, user: User, partitions: Annotated[int, Query(ge=1, le=MOST_PARTITIONS)] = MOST_PARTITIONS
    ) -> Response:
        """Positions, ends, lag, status and retention per partition; the lanes; the newest windows. Offsets are texts.

        Of more than so many `partitions`, those of the worst retention, status and lag.
        """
        answer = await viewing.shown(await viewing.stream(name, user))
        if answer.status == OK:
            answer = replace(answer, fields=worst_partitions(answer.fields, partitions))
        return serving.as_json(answer)

    @router.get("/api/streams/{name}/coverage", responses=serving.answers(Coverage))
    async def coverage(
        name: str,
        user: User,
        width: Annotated[int, Query(ge=1, le=MOST_PIXELS)] = 800,
        first: Annotated[int, Query(ge=0, le=MOST_PARTITIONS)] = 0,
        count: Annotated[int, Query(ge=1, le=MOST_BARS)] = MOST_BARS,
        partition: Annotated[str | None, Query(max_length=300)] = None,
        start: Annotated[int | None, Query(alias="from", ge=0, le=MAX_OFFSET)] = None,
        until: Annotated[int | None, Query(ge=0, le=MAX_OFFSET)] = None,
        gaps: bool = False,
    ) -> Response:
        """The coverage picture: for each partition a bar of blocks, `width` pixels wide, from the left to the right.

        `count` partitions from number `first` on, or one `partition`, written as topic/number, and of that the offsets
        `[from, until)`. A pixel has the most remarkable state of its offsets. With `gaps`, only of the partitions with a
        hole, or with lost, skipped or expired offsets.
        """
        file = await viewing.stream(name, user)
        read = await viewing.asking.answer(file, viewing.servers.index)
        if read.status != OK:
            return serving.as_json(read)
        asked = Asked(width, first, count, partition, start, until, gaps)
        return JSONResponse(await viewing.ask(name, user, lambda _: viewing.servers.bars(file, asked), "no coverage"))

    @router.get("/api/streams/{name}/trend", responses=serving.answers(Trend))
    async def trend_of(name: str, user: User) -> Response:
        """Lag, throughput and dead letters of the last windows of the ingest, the oldest first."""
        found = await viewing.ask(name, user, _trend, "no windows", ledger_only=True)
        return JSONResponse({"windows": found})

    return router


def _trend(opened: OpenStream) -> list[dict[str, Any]]:
    head = opened.book.head(INGEST)
    return [] if head is None else trend(newest_of_lane(opened.book, INGEST, head.head, LAST))
