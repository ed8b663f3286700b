"""Reports that the ledger keeps under the names of runs: audits, and what replays change."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tidemark.ledger.codec import decode
from tidemark.ledger.incarnations import Topics, rewritten
from tidemark.runs.live.open_stream import OpenStream

Report = TypeVar("Report", bound=msgspec.Struct)

# What people and messages have said, which may look like a coordinate.
_SAID = {"run", "reason", "by", "asked_by", "approved_by"}


def report_of(opened: OpenStream, name: str, kind: type[Report], what: str) -> Report | None:
    """A report by its name; None if there is none. `what` it is: for an error."""
    stored = opened.book.report(name)
    return None if stored is None else as_asked(opened, decode(stored, kind, what))


def as_asked(opened: OpenStream, report: Report) -> Report:
    """The same report, with its coordinates and ranges as people take them into a request.

    The ledger keeps them without the first incarnation, which is another one than the newest as soon as a topic was recreated.
    """
    topics = opened.book.topics()
    if all(len(incarnations) == 1 for incarnations in topics.values()):
        return report
    return msgspec.convert(_asked(topics, msgspec.to_builtins(report)), type(report))


def _asked(topics: Topics, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: one if name in _SAID else _asked(topics, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_asked(topics, one) for one in value]
    return rewritten(topics, value) if isinstance(value, str) else value
