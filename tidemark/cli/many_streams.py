"""Many streams at once: those of one set of servers one after another, different servers at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import InvalidStreamFile, TidemarkError, Unreachable
from tidemark.runs.live.open_stream import OpenStream
from tidemark.streams.loading import StreamFile, load, name_in
from tidemark.views.stream_line import StreamLine
from tidemark.views.triage import StreamNow, invalid_stream, stream_now

# Sets of servers that are asked at once.
_AT_ONCE = 8


@dataclass(frozen=True)
class StreamSeen:
    """A stream, opened where that was possible, and the error that kept it from being seen."""

    now: StreamNow
    opened: OpenStream | None = None
    problem: TidemarkError | None = None


def looked_at(
    paths: Iterable[Path], open_: Callable[[Path], OpenStream], look: Callable[[OpenStream], StreamLine]
) -> list[StreamSeen]:
    """Each stream as it is now, in the order of the files. One that cannot be seen takes no other with it.

    Servers that do not answer are waited for once, whatever the number of their streams, and hold up no others.
    """
    streams: dict[Path, StreamSeen] = {}
    by_servers: dict[tuple[str, str], list[tuple[Path, StreamFile]]] = {}
    for path in paths:
        try:
            file = load(path)
        except InvalidStreamFile as problem:
            streams[path] = _unseen(name_in(path) or path.stem, problem, None)
            continue
        streams[path] = StreamSeen(stream_now(file.stream, None))
        by_servers.setdefault((file.stream.source.kafka, file.stream.ledger.connection), []).append((path, file))

    def look_at(files: list[tuple[Path, StreamFile]]) -> None:
        away: Unreachable | None = None
        for path, file in files:
            if away is not None:
                streams[path] = _unseen(file.stream.name, away, file)
                continue
            try:
                opened = open_(path)
                line = look(opened)
                # Show the ledger's part; do not wait for the servers again.
                away = None if line.kafka_problem is None else Unreachable(line.kafka_problem)
                streams[path] = StreamSeen(stream_now(file.stream, line), opened, away)
            except TidemarkError as problem:
                streams[path] = _unseen(file.stream.name, problem, file)
                away = problem if isinstance(problem, Unreachable) else None

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        # Any other error ends the command.
        list(threads.map(look_at, by_servers.values()))
    return list(streams.values())


def _unseen(name: str, problem: TidemarkError, file: StreamFile | None) -> StreamSeen:
    said = f"{type(problem).__name__}: {problem}"
    if file is not None:
        return StreamSeen(stream_now(file.stream, None, said), problem=problem)
    return StreamSeen(invalid_stream(name, said), problem=problem)
