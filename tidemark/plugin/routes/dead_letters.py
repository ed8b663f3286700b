"""The page of the dead letters."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tidemark.plugin import serving
from tidemark.plugin.cached_queries import dead_letters_of
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.runs.requests.forms import MAX_TIME, WINDOW_PATTERN
from tidemark.runs.requests.selecting import times
from tidemark.streams.loading import StreamFile
from tidemark.views.dead_letters import EXAMPLES, MAX_EXAMPLES, DeadLettersShown, dead_letters, page_of

# How much of the time that a person waits goes into counting; the rest is for opening the stream and for the answer.
_SHARE = 0.5

Reason = Annotated[str | None, Query(max_length=2_000, description="exactly this reason, or this error class")]
Window = Annotated[str, Query(pattern=WINDOW_PATTERN, description="this lane, or one window of it as LANE/NUMBER")]

Time = Annotated[
    str,
    Query(
        max_length=MAX_TIME, description="a time with its zone: of messages from the first at or after it, or up to it"
    ),
]
Examples = Annotated[int, Query(ge=1, le=MAX_EXAMPLES, description="how many messages of each group are named")]


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["dead letters"])
    seconds = _SHARE * access.asking.settings.page_wait_seconds

    def everything(file: StreamFile) -> DeadLettersShown:
        """Kept for whoever looks next: the first look at a long history takes longer than a viewer waits."""
        return _counted(access.servers.open(file), DeadLetterFilter(), EXAMPLES, seconds)

    @router.get("/streams/{name}/dead-letters", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await access.page("dead-letters", request, name, user)

    @router.get("/api/streams/{name}/dead-letters", responses=serving.PROBLEMS)
    async def in_groups(
        name: str,
        user: User,
        reason: Reason = None,
        window: Window = "",
        since: Time = "",
        until: Time = "",
        examples: Examples = EXAMPLES,
    ) -> DeadLettersShown:
        """The dead letters that count, by reason and error class, with windows and examples; those of the newest windows
        first, as many as can be counted in time.
        """
        file = await access.stream(name, user)
        wanted = DeadLetterFilter(reason or None, window)
        table = dead_letters_of(file)
        if wanted == DeadLetterFilter() and not since and not until and examples == EXAMPLES:
            kept: DeadLettersShown = await access.kept(file, everything, table, ledger_only=True)
            return kept

        def question(opened: OpenStream) -> DeadLettersShown:
            lower, upper = times(since, until)
            return _counted(opened, replace(wanted, since=lower, until=upper), examples, seconds)

        return await access.ask(name, user, question, "no dead letters", table, ledger_only=True)

    return router


def _counted(opened: OpenStream, wanted: DeadLetterFilter, examples: int, seconds: float) -> DeadLettersShown:
    until: list[float] = []

    def enough(_: int) -> bool:
        # The time for counting begins when the ledger is read.
        if not until:
            until.append(time.monotonic() + seconds)
        return time.monotonic() > until[0]

    return page_of(dead_letters(opened, wanted, examples=examples, enough=enough))
