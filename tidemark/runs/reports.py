"""Reports that the ledger keeps under the names of runs: audits, and what replays change."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import inspect, structs

from tidemark.ledger.codec import decode
from tidemark.ledger.incarnations import Topics, rewritten
from tidemark.runs.live.open_stream import OpenStream

Report = TypeVar("Report", bound=msgspec.Struct)


def report_of(opened: OpenStream, name: str, kind: type[Report], what: str) -> Report | None:
    """A report by its name; None if there is none. `what` it is: for an error."""
    stored = opened.ledger.report(name)
    return None if stored is None else as_asked(opened, decode(stored, kind, what))


def as_asked(opened: OpenStream, report: Report) -> Report:
    """The same report, with each `At` in it as people take it into a request."""
    topics = opened.ledger.topics()
    if all(len(incarnations) == 1 for incarnations in topics.values()):
        return report
    asked: Report = _asked(topics, inspect.type_info(type(report)), report)
    return asked


def _asked(topics: Topics, kind: inspect.Type, value: Any) -> Any:
    match kind:
        case inspect.Metadata():
            # No other type has any.
            return rewritten(topics, value)
        case inspect.StructType(fields=fields):
            parts = {one.name: _asked(topics, one.type, getattr(value, one.name)) for one in fields}
            return structs.replace(value, **parts)
        case inspect.VarTupleType(item_type=item):
            return tuple(_asked(topics, item, one) for one in value)
    return value
