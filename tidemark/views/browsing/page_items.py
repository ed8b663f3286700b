"""Search results as people in a browser may see them: values cut and as text, or only their sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from tidemark.ledger.incarnations import Topics, written, written_range
from tidemark.views.browsing.items import Item, SearchResult
from tidemark.views.messages.message import Header, headers_shown
from tidemark.views.messages.payloads import Masked, Value, masked, shown
from tidemark.views.values import Number

# Of a value: enough to know it by. The page of the message has more.
MAX_SHOWN = 2_000
# Of a message's headers, and of each one's name and value.
MAX_HEADERS, MAX_OF_A_HEADER = 20, 200
# What a dead letter says that does not quote its message.
SAID = ("reason", "outcome", "error", "attempts", "redrives", "window")


@dataclass(frozen=True)
class ItemShown:
    """A message, a dead letter or a row. `timestamp`: ms since 1970. `index` tells the rows of one message apart.

    `more_headers`: how many are not shown. `record`: what the value says, where it is a record or compressed. `deleted`: of the
    newest row of a key, whether it says that the key is gone; null of others.
    """

    coordinate: str
    topic: str
    partition: int
    offset: Number
    index: int
    timestamp: int | None
    key: Value | Masked | None
    value: Value | Masked | None
    headers: list[Header]
    more_headers: int
    record: Value | Masked | None
    fields: dict[str, Value | Masked]
    deleted: bool | None


@dataclass(frozen=True)
class Browsed:
    """The results of one question, and which offsets it has looked through: `searched`, as `topic/partition@from-until`.

    `go_on` is the parameter of the next question; null at the end of what is looked through. `ended`: by which bound this
    one ended: `count`, `messages`, `bytes` or `time`. `not_read`: messages whose value could not be read as JSON within
    limits, so that nobody knows whether they fit. `erased`: messages that nobody is shown. `left_out`: how many rows of
    messages with very many are not here, at least.
    """

    lines: list[ItemShown]
    searched: list[str]
    go_on: str | None
    ended: str | None
    looked: int
    read: int
    erased: int
    not_read: int
    left_out: int
    payload: bool
    may_see_payload: bool


def page_of(answer: SearchResult, *, payload: bool, may_see_payload: bool, letters: bool = False) -> Browsed:
    """For people in a browser. Without `payload`, values are masked; of dead letters (`letters`) not what Tidemark says.

    A row may have fields of the same names, which its message has filled.
    """
    said = SAID if letters else ()
    return Browsed(
        lines=[_line(one, answer.topics, said, payload=payload) for one in answer.items],
        searched=[written_range(answer.topics, one) for one in answer.searched],
        go_on=answer.go_on,
        ended=answer.ended,
        looked=answer.looked,
        read=answer.read,
        erased=answer.erased,
        not_read=answer.not_read,
        left_out=answer.left_out,
        payload=payload,
        may_see_payload=may_see_payload,
    )


def _line(item: Item, topics: Topics, said: Collection[str], *, payload: bool) -> ItemShown:
    cut = partial(shown, most=MAX_SHOWN)
    look = cut if payload else masked
    at = item.at
    few = partial(shown, most=MAX_OF_A_HEADER)
    headers = headers_shown(item.headers[:MAX_HEADERS], few if payload else masked, few)

    def looked(value: bytes | None) -> Value | Masked | None:
        return None if value is None else look(value)

    return ItemShown(
        coordinate=written(topics, at),
        topic=at.partition.topic,
        partition=at.partition.partition,
        offset=at.offset,
        index=item.index,
        timestamp=item.timestamp,
        key=looked(item.key),
        value=looked(item.value),
        headers=headers,
        more_headers=len(item.headers) - len(headers),
        record=looked(item.record) if payload else None,
        fields={name: cut(item.fields[name]) if name in said else look(item.fields[name]) for name in item.fields},
        deleted=item.deleted,
    )
