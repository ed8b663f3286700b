"""Replays into some sinks alone: which sinks a request or a lane names, and whether the stream file has them."""

from __future__ import annotations

from collections.abc import Collection

from tidemark.errors import WrongUse
from tidemark.runs.live.open_stream import OpenStream

# The names of the sinks that are written alone, in the order of the stream file. None for all sinks, and the dead letters.
Sinks = tuple[str, ...] | None


def named(opened: OpenStream, sinks: Collection[str]) -> Sinks:
    """The sinks that a request names; None when it names none. Raises WrongUse for one that the stream does not have."""
    if not sinks:
        return None
    _check(opened, sinks, "sinks: ")
    return tuple(sink.name for sink in opened.stream.sinks if sink.name in sinks)


def check_still_there(opened: OpenStream, where: str, sinks: Sinks) -> None:
    """Raises WrongUse when the stream file lacks a sink that a lane or window (`where`) was asked to write alone."""
    if sinks is not None:
        _check(opened, sinks, f"{where} writes {', '.join(sinks)} alone, and ")


def _check(opened: OpenStream, sinks: Collection[str], said: str) -> None:
    known = [sink.name for sink in opened.stream.sinks]
    if unknown := [sink for sink in dict.fromkeys(sinks) if sink not in known]:
        raise WrongUse(
            f"{said}the stream file of {opened.stream.name} has no sink {', '.join(unknown)}; it has: {', '.join(known)}. "
            "Name one of these, or put the missing one into the file"
        )
