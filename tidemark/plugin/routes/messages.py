"""The page of a message: where it went, and the message itself for those who may see payloads."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from tidemark.plugin import serving
from tidemark.plugin.access import may_trigger, note_look
from tidemark.plugin.cached_queries import dead_letters_of, kafka_of, sinks_of
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.messages import trace
from tidemark.views.messages.message import MessageShown, page_of
from tidemark.views.messages.record import has_records, record_of

# A topic may have its incarnation behind a #.
_MAX_OF_A_TOPIC, _MAX_OF_AN_OFFSET = 249 + 10, 40

Topic = Annotated[str, Path(min_length=1, max_length=_MAX_OF_A_TOPIC)]
Partition = Annotated[int, Path(ge=0, lt=2**31)]
Offset = Annotated[
    str,
    Path(
        min_length=1,
        max_length=_MAX_OF_AN_OFFSET,
        description="an offset; or a time with its zone, such as 2026-11-21T07:00:00Z: the first message at or after it",
    ),
]
Payload = Annotated[
    bool,
    Query(
        description="also key, value, headers and stored fields: for those who may trigger the replay DAG, and noted"
    ),
]
Whole = Annotated[
    bool,
    Query(
        description="also what other servers know: rows in files and topics, and with `payload` what the value says. It may "
        "take longer: after 504, ask again"
    ),
]


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["messages"])

    @router.get("/streams/{name}/messages", include_in_schema=False)
    async def page(request: Request, name: str, user: User) -> Response:
        return await access.page("message", request, name, user)

    @router.get("/api/streams/{name}/messages/{topic}/{partition}/{offset}", responses=serving.PROBLEMS)
    async def one_message(
        name: str,
        topic: Topic,
        partition: Partition,
        offset: Offset,
        user: User,
        payload: Payload = False,
        whole: Whole = False,
    ) -> MessageShown:
        """Where a message went: its fate in a sentence, its windows, what is stored of it, and what Kafka still has."""
        file = await access.stream(name, user)
        may = await run_in_threadpool(may_trigger, user, _replay_dag(name))
        if payload and not may:
            raise HTTPException(403, f"payloads are for those who may trigger {_replay_dag(name)}")
        named = f"{topic}/{partition}@{offset}"
        if payload and not offset.isdigit():
            raise HTTPException(400, "a payload is shown by its offset: ask for the time without the payload first")
        if payload:
            # Before the answer: whoever has seen it is in the log, and not only whoever got it in time.
            await run_in_threadpool(note_look, user, _replay_dag(name), named)

        # Without them, the answer says so; a late one names them.
        others = [kafka_of(file), dead_letters_of(file)]

        def question(opened: OpenStream) -> MessageShown:
            return _found(opened, named, payload=payload, whole=whole)

        if whole:
            # Files and other servers: what they keep waiting are such questions, and no others.
            others += sinks_of(file)
            message = await access.ask_long(name, user, f"{named} {payload}", question, *others, ledger_only=True)
        else:
            message = await access.ask(name, user, question, "no such message", *others, ledger_only=True)
        return replace(message, may_see_payload=may)

    return router


def _found(opened: OpenStream, named: str, *, payload: bool, whole: bool) -> MessageShown:
    located = trace.located(opened, trace.coordinate(opened, named), all_sinks=whole)
    record = record_of(opened.stream, opened.connections, located.message) if whole and payload else None
    order, records = list(opened.stream.fields), has_records(opened.stream)
    return page_of(located, payload=payload, order=order, has_record=records, record=record)


def _replay_dag(stream: str) -> str:
    return f"{stream}__replay"
