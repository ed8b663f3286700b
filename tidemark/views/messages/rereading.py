"""Reading one message again: which request does it, or why none can. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemark.clients.kafka.slots import OffsetContents, Slot
from tidemark.views.messages.fates import Fate
from tidemark.views.messages.trace import LocatedRecord

# What a backfill reads: what no window has read, below the ingest's position.
_UNREAD = (Fate.HOLE, Fate.BEFORE, Fate.LOST, Fate.PASSED_OVER)


@dataclass(frozen=True)
class RereadRequest:
    """The request that reads a message again, with the fields of its form; or why there is none.

    The run checks the request itself, so a stale answer starts nothing wrong.
    """

    kind: Literal["replay", "backfill"] | None
    fields: dict[str, str]
    why_not: str | None


def again(located: LocatedRecord) -> RereadRequest:
    if (why_not := _why_not(located)) is not None:
        return RereadRequest(None, {}, why_not)
    if located.counting is not None:
        return RereadRequest("replay", {"records": located.written}, None)
    return RereadRequest("backfill", {"ranges": f"{located.written}-{located.at.offset + 1}"}, None)


def _why_not(located: LocatedRecord) -> str | None:
    if located.fate == Fate.ERASED:
        return "it was erased, and nothing reads it again"
    if located.counting is None and located.fate not in _UNREAD:
        return "nothing has been read yet that could be read again"
    if not isinstance(located.kafka, OffsetContents):
        return "Kafka has it no longer, or did not answer"
    if located.kafka.slot in (Slot.EXPIRED, Slot.COMPACTED):
        return "Kafka no longer holds it"
    if located.kafka.slot == Slot.MARKER or located.fate == Fate.NO_MESSAGE:
        return "there is no message"
    return None
