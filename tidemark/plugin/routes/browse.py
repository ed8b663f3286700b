"""The page that looks through messages, dead letters and rows by what is in them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse

from tidemark.plugin import serving
from tidemark.plugin.access import may_trigger, note_look
from tidemark.plugin.cached_queries import dead_letters_of, sinks_of
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.forms import MAX_TIME, WINDOW_PATTERN
from tidemark.views.browsing.dead_letters import FIELDS, dead_letters
from tidemark.views.browsing.exports import Format, exported
from tidemark.views.browsing.filters import MAX_CHARACTERS
from tidemark.views.browsing.items import SearchBudget, SearchResult
from tidemark.views.browsing.messages import MessageQuery, messages
from tidemark.views.browsing.page_items import Browsed, page_of
from tidemark.views.browsing.places import SearchScope
from tidemark.views.browsing.results import results

# What one question may look at; and how much of the time that a person waits.
_MAX_ITEMS, _MAX_BYTES, _SHARE = 20_000, 16_000_000, 0.6
MAX_COUNT = 100

SinkType = Literal["messages", "dead-letters", "results"]
_FIELDS: dict[SinkType, tuple[str, ...]] = {"messages": (), "dead-letters": (*FIELDS, "window"), "results": ()}
Place = Annotated[
    str,
    Query(
        max_length=350,
        description="TOPIC, TOPIC/PARTITION or TOPIC/PARTITION@FROM-UNTIL; empty for the only topic, or that of the window",
    ),
]
Window = Annotated[
    str, Query(pattern=WINDOW_PATTERN, description="a window as LANE/NUMBER; of dead letters, also a lane")
]
Time = Annotated[
    str,
    Query(
        max_length=MAX_TIME, description="a time with its zone: of messages from the first at or after it, or up to it"
    ),
]
Filter = Annotated[
    str,
    Query(
        max_length=MAX_CHARACTERS,
        description='such as key = "c17" and $.amount < 0; it needs `payload`',
    ),
]
Count = Annotated[int, Query(ge=1, le=MAX_COUNT)]
Newest = Annotated[bool, Query(description="from the newest back: of messages, else of windows")]
SearchCursor = Annotated[
    str, Query(max_length=400, description="what the answer before has given, to go on from there")
]
Sink = Annotated[str, Query(max_length=100, description="of results: the name of a sink; by default the first one")]
Payload = Annotated[
    bool,
    Query(description="also keys, values and headers: for those who may trigger the replay DAG, and noted"),
]


async def asked_of(
    where: Place = "",
    window: Window = "",
    since: Time = "",
    until: Time = "",
    filter: Filter = "",  # noqa: A002 (the name of the parameter)
    count: Count = 50,
    newest: Newest = False,
    go_on: SearchCursor = "",
) -> MessageQuery:
    """The question of an address."""
    return MessageQuery(SearchScope(where, window, since, until), filter, count, newest, go_on)


Question = Annotated[MessageQuery, Depends(asked_of)]


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["messages"])
    seconds = _SHARE * access.asking.settings.page_wait_seconds

    async def found(
        name: str, kind: SinkType, asked: MessageQuery, user: User, sink: str, *, payload: bool
    ) -> tuple[SearchResult, bool]:
        file = await access.stream(name, user)
        dag = f"{name}__replay"
        may = await run_in_threadpool(may_trigger, user, dag)
        if (payload or asked.filter) and not may:
            raise HTTPException(403, f"payloads, and filters by them, are for those who may trigger {dag}")
        if asked.filter and not payload:
            raise HTTPException(400, "a filter looks at payloads: ask for these too")
        if payload:
            # Before the answer: whoever has seen it is in the log, and not only whoever got it in time.
            await run_in_threadpool(note_look, user, dag, _noted(kind, asked))

        def question(opened: OpenStream) -> SearchResult:
            return _read(opened, kind, asked, SearchBudget.of(_MAX_ITEMS, _MAX_BYTES, seconds), sink or None)

        others = {"dead-letters": [dead_letters_of(file)], "results": sinks_of(file)}.get(kind, [])
        ledger_only = kind != "messages"
        key = f"browse {kind} {sink} {asked}"
        return await access.ask_long(name, user, key, question, *others, ledger_only=ledger_only), may

    @router.get("/streams/{name}/browse", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await access.page("browse", request, name, user)

    @router.get("/api/streams/{name}/browse/{kind}", responses=serving.PROBLEMS)
    async def browse(
        name: str,
        kind: SinkType,
        asked: Question,
        user: User,
        payload: Payload = False,
        sink: Sink = "",
    ) -> Browsed:
        """Messages that Kafka holds, or dead letters or rows that count, which fit a filter: some of them, and up to where.

        A question looks at this many messages and bytes, and for this long: `go_on` goes on from there. Erased messages are
        left out.
        """
        answer, may = await found(name, kind, asked, user, sink, payload=payload)
        return await access.apart(
            user, lambda: page_of(answer, payload=payload, may_see_payload=may, letters=kind == "dead-letters")
        )

    @router.get("/api/streams/{name}/browse/{kind}/file", responses=serving.PROBLEMS, response_class=PlainTextResponse)
    async def file(
        name: str,
        kind: SinkType,
        asked: Question,
        user: User,
        form: Annotated[Format, Query(alias="format")] = "jsonl",
        sink: Sink = "",
    ) -> Response:
        """The same as a file with whole payloads: CSV, or JSON with a line for each message."""
        answer, _ = await found(name, kind, asked, user, sink, payload=True)
        stream = (await access.stream(name, user)).stream
        fields = tuple(stream.fields) if kind == "results" else _FIELDS[kind]
        text = await access.apart(user, lambda: exported(answer.items, form, fields, rows=kind == "results"))
        kinds: dict[Format, str] = {"csv": "text/csv", "jsonl": "application/jsonl"}
        named = {"Content-Disposition": f'attachment; filename="{name}-{kind}.{form}"'}
        return Response(text, media_type=f"{kinds[form]}; charset=utf-8", headers=named)

    return router


def _read(
    opened: OpenStream, kind: SinkType, asked: MessageQuery, meter: SearchBudget, sink: str | None
) -> SearchResult:
    if kind == "messages":
        return messages(opened, asked, meter)
    return dead_letters(opened, asked, meter) if kind == "dead-letters" else results(opened, asked, meter, sink)


def _noted(kind: SinkType, asked: MessageQuery) -> str:
    """The page that a person looks at, for the audit log. The filter, which may hold what was erased since, is not named."""
    where = asked.where
    parts = [
        where.where or "all",
        f"window {where.window}" if where.window else "",
        f"since {where.since}" if where.since else "",
        f"until {where.until}" if where.until else "",
        "the newest" if asked.backwards else "",
        f"from {asked.go_on}" if asked.go_on else "",
        "by a filter" if asked.filter else "",
    ]
    return ", ".join([f"{kind.replace('-', ' ')} of {parts[0]}", *(one for one in parts[1:] if one)])
