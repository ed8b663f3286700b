"""The streams that a person may look at. Every route gets its stream here, so no route forgets to ask for the right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool

from tidemark.plugin import serving
from tidemark.plugin.access import get_user, known_dags, may_see, may_see_files, name_of
from tidemark.plugin.cached_queries import OK, Answer, CachedQueries, Question
from tidemark.plugin.parsing import near_limits
from tidemark.plugin.scheduling import scheduling_of
from tidemark.plugin.streams import Servers, StreamCache, WrongFile
from tidemark.runs.live.open_stream import OpenStream
from tidemark.streams.loading import StreamFile
from tidemark.views.messages.sandbox import asked_with_limits
from tidemark.views.overview import Overview
from tidemark.views.scheduling import Scheduling
from tidemark.views.stream_line import line_of
from tidemark.views.triage import StreamNow, invalid_stream, stream_now, stream_without_dag

User = Annotated[Any, Depends(get_user)]
# How old what is shown of all streams may be: of one that a page has just shown, of any other, and of many.
_SHOWN_SECONDS, _OLD_SECONDS, _SECONDS_OF_A_STREAM = 10.0, 60.0, 0.2
# So long a look at all streams waits for their servers.
_MOMENT_SECONDS = 1.0
T = TypeVar("T")
NO_STREAM = "no such stream: the page of all streams lists those that you may see"


@dataclass(frozen=True)
class StreamAccess:
    """The streams, their servers, and how these are asked. No method waits for a server in one of Airflow's threads."""

    known: StreamCache
    servers: Servers
    asking: CachedQueries

    async def visible(self, user: Any) -> tuple[dict[str, StreamFile], list[str]]:
        """The streams that a person may see by their names, and the problems of files that this person may see."""
        files, wrong = await run_in_threadpool(self._visible, user)
        return files, [one.problem for one in wrong]

    async def stream(self, name: str, user: Any) -> StreamFile:
        """The file of a stream. 404 for a stream that the person may not see, as for one that there is not."""
        files, _ = await self.visible(user)
        if name not in files:
            raise HTTPException(404, NO_STREAM)
        return files[name]

    async def page(self, page: str, request: Request, name: str, user: Any) -> Response:
        """A page about a stream. Its script says why there is nothing to see, so a refusal is this page too, with 404."""
        files, _ = await self.visible(user)
        return serving.page(page, request, 200 if name in files else 404)

    async def shown(self, name: str, user: Any) -> Overview:
        """A stream's overview for the page. Its holes are looked for beside: whoever asks after that sees them."""
        file = await self.stream(name, user)
        overview: Overview = await self.kept(file)
        self.asking.beside(file, self.servers.look_for_holes)
        return overview

    async def among_all(self, user: Any) -> tuple[dict[str, StreamFile], list[StreamNow], list[str]]:
        """The files that a person may see, each stream as it is known now, and the problems. Waits for no slow server.

        A file that cannot be used is a stream too, for those who may see it. What is not known yet is being asked for: whoever
        looks again sees it.
        """
        files, wrong = await run_in_threadpool(self._visible, user)
        older = max(_OLD_SECONDS, _SECONDS_OF_A_STREAM * len(files))
        flights = await run_in_threadpool(self.asking.look, files.values(), older)
        if flights:
            await asyncio.wait({asyncio.wrap_future(flight) for flight in flights}, timeout=_MOMENT_SECONDS)
        known = await run_in_threadpool(self._all_now, files, user)
        known += [
            invalid_stream(one.name, one.problem) if one.stream is None else stream_without_dag(one.stream, one.problem)
            for one in wrong
            if one.name is not None
        ]
        return files, known, [one.problem for one in wrong if one.name is None]

    async def look_again(self, files: Collection[StreamFile]) -> None:
        """Have some streams asked again whose answers are older than the page's. Waits for none."""
        await run_in_threadpool(self.asking.look, files, _SHOWN_SECONDS)

    async def scheduling(self, name: str, user: Any) -> Scheduling | None:
        """What Airflow knows of the ingest of a stream."""
        found = await run_in_threadpool(self._scheduling, [name], user)
        return found.get(_dag(name))

    def _scheduling(self, names: Collection[str], user: Any) -> dict[str, Scheduling]:
        return scheduling_of([_dag(name) for name in names], with_errors=may_see_files(user))

    def _all_now(self, files: Mapping[str, StreamFile], user: Any) -> list[StreamNow]:
        scheduling = self._scheduling(files, user)
        return [self._now(file, scheduling.get(_dag(name))) for name, file in files.items()]

    def _now(self, file: StreamFile, scheduling: Scheduling | None) -> StreamNow:
        answer = self.asking.known(file)
        if answer is None or answer.status != OK:
            return stream_now(file.stream, None, None if answer is None else answer.detail, scheduling)
        self.asking.beside(file, self.servers.look_for_holes)
        return stream_now(file.stream, line_of(answer.found), None, scheduling)

    async def kept(
        self, file: StreamFile, question: Question | None = None, *others: str, ledger_only: bool = False
    ) -> Any:
        """The answer to a question that is kept for all viewers; without one, to the first. Refuses as `ask` does."""
        answer = await self.asking.answer(file, question, *others, ledger_only=ledger_only)
        if answer.status != OK:
            raise HTTPException(answer.status, answer.detail)
        return answer.found

    async def ask(
        self,
        name: str,
        user: Any,
        question: Callable[[OpenStream], T | None],
        missing: str,
        *others: str,
        ledger_only: bool = False,
    ) -> T:
        """The answer to a question about a stream, which is asked in threads of the page's own and with a time limit.

        With `ledger_only`, also while Kafka is away. `others` names further servers that it asks. 404 with the
        sentence `missing` for the answer None; 429, 503, 504 or 500 with a sentence when there is no answer.
        """
        file = await self.stream(name, user)
        answer = await self.asking.once(
            file, lambda: question(self.servers.open(file)), *others, ledger_only=ledger_only, by=name_of(user)
        )
        return _found(answer, missing)

    async def ask_long(
        self,
        name: str,
        user: Any,
        key: str,
        question: Callable[[OpenStream], T | None],
        *others: str,
        ledger_only: bool = False,
        missing: str = "",
    ) -> T:
        """As `ask`, for a question that may take longer than a viewer waits: 504 then, and who asks again waits on.

        `key` says what is asked, `others` which further servers are. 404 with the sentence `missing` for the answer None, 409
        with a sentence for a plan that is stale.
        """
        file = await self.stream(name, user)
        return _found(
            await self.asking.long(
                file,
                key,
                lambda: question(self.servers.open(file)),
                *others,
                ledger_only=ledger_only,
                by=name_of(user),
            ),
            missing,
        )

    async def reading(self, topic: str, files: Mapping[str, StreamFile], user: Any) -> tuple[set[str], list[str]]:
        """The streams among these that read a topic, and a sentence on each of which it cannot be told.

        The topic is what somebody has typed. So it meets the patterns of the streams in a process of its own, with limits.
        """
        patterns = {
            name: [file.stream.source.pattern, *file.stream.source.exclude]
            for name, file in files.items()
            if file.stream.source.pattern is not None
        }
        named = {name for name, file in files.items() if topic in file.stream.source.named()}
        # Kafka's own topics match no pattern.
        if not patterns or topic.startswith("__"):
            return named, []
        question = {"kind": "names", "text": topic, "patterns": patterns}
        answer = await self.apart(user, lambda: asked_with_limits(question))
        if "problem" in answer:
            raise HTTPException(400, f"topic: the streams' patterns cannot be tried on it: {answer['problem']}")
        slow = [f"{name}: its pattern takes too long on this topic; say topics by name" for name in answer["slow"]]
        return named | set(answer["names"]), slow

    async def apart(self, user: Any, question: Callable[[], Answer | T]) -> T:
        """The answer to a question that asks no server. What people send in is read so, and never in the event loop."""
        return _found(await self.asking.apart(question, by=name_of(user)), "")

    async def near_limits(self, user: Any, streams: Collection[str]) -> list[str]:
        """The DAG files of some streams that come near Airflow's limits, for those who may see the problems of files."""
        return await run_in_threadpool(lambda: near_limits(streams) if may_see_files(user) else [])

    def _visible(self, user: Any) -> tuple[dict[str, StreamFile], list[WrongFile]]:
        """Reads files and Airflow's database, as Airflow does."""
        files, problems = self.known.now()
        dags = [_dag(name) for name in files]
        allowed = may_see(user, dags)
        others = {*dags} - {*allowed}
        new = others - known_dags(others)
        seen = {name: file for name, file in files.items() if _dag(name) in allowed}
        # Nobody has a right to a DAG that Airflow has not read, so its stream is shown as the problem of a file is.
        unread = [_unread(file) for name, file in files.items() if _dag(name) in new]
        wrong = [*problems, *unread]
        return seen, wrong if wrong and may_see_files(user) else []


def _found(answer: Answer | T | None, missing: str) -> T:
    if answer is None:
        raise HTTPException(404, missing)
    if isinstance(answer, Answer):
        raise HTTPException(answer.status, answer.detail)
    return answer


def _unread(file: StreamFile) -> WrongFile:
    name = file.stream.name
    said = (
        f"{file.path}: Airflow has no DAG {_dag(name)}. It reads a new file within some minutes; if this stays so, no DAG file "
        "builds the streams of this folder, or the DAG processor's log says why it failed"
    )
    return WrongFile(name, said, file.stream)


def _dag(stream: str) -> str:
    return f"{stream}__ingest"
