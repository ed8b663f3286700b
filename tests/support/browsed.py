"""What looking through the rows of a sink finds, question by question."""

from __future__ import annotations

from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.browsing.items import Item, SearchBudget
from tidemark.views.browsing.messages import MessageQuery
from tidemark.views.browsing.places import SearchScope
from tidemark.views.browsing.results import results


def browsed(
    opened: OpenStream, sink: str, filter_: str = "", *, count: int = 50, backwards: bool = False, **where: str
) -> list[Item]:
    """All items, `count` at a time; none is found twice."""
    found: list[Item] = []
    go_on: str | None = ""
    while go_on is not None:
        asked = MessageQuery(SearchScope(**where), filter_, count, backwards, go_on)
        answer = results(opened, asked, SearchBudget.of(1e9, 1e9, 60), sink)
        found += answer.items
        go_on = answer.go_on
    assert len({(one.at, one.index) for one in found}) == len(found)
    return found


def places_of(items: list[Item]) -> list[tuple[str, int]]:
    """The coordinate of each item and its number among the rows of a message."""
    return [(str(one.at), one.index) for one in items]
