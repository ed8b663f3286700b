"""Looking through messages, dead letters and rows from the command line: as many questions as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.browsing.items import SearchBudget, SearchResult
from tidemark.views.browsing.messages import MessageQuery

# Of one question to Kafka and the stores.
_ITEMS, _BYTES, _SECONDS = 100_000, 100_000_000, 30.0

Reader = Callable[[OpenStream, MessageQuery, SearchBudget], SearchResult]


def answers(reader: Reader, opened: OpenStream, asked: MessageQuery) -> Iterator[SearchResult]:
    """The answers until there is no more to be found, or as much as was asked for."""
    left = asked.count
    go_on: str | None = asked.go_on
    while go_on is not None and left > 0:
        answer = reader(opened, replace(asked, count=left, go_on=go_on), SearchBudget.of(_ITEMS, _BYTES, _SECONDS))
        yield answer
        left, go_on = left - len(answer.items), answer.go_on
