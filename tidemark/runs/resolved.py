"""The plan of a backfill or replay, by a digest: what it reads, and the windows whose results it replaces.

Whoever has seen a plan starts the run with its digest. If the run would read or replace anything else, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from tidemark.errors import StaleLedger
from tidemark.ledger.book import Committed, View
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.open_stream import OpenStream
from tidemark.runs.requests import BackfillRequest, ReplayRequest

Request = BackfillRequest | ReplayRequest


@dataclass(frozen=True)
class Replaced:
    """A committed window, and its offsets whose results a run replaces."""

    window: Committed
    offsets: RangeSet


def replaced(opened: OpenStream, view: View, asked: Request, chosen: RangeSet) -> list[Replaced]:
    """The windows whose results reading some offsets replaces, in any sink that the run writes, the newest first."""
    found: dict[int, list[OffsetRange]] = {}
    for _, at, start, until, generation in _authority(opened, view, asked, chosen):
        found.setdefault(generation, []).append(OffsetRange(at, start, until))
    windows = {one.generation: one for one in view.windows}
    return [Replaced(windows[generation], RangeSet(found[generation])) for generation in sorted(found, reverse=True)]


def digest_of(opened: OpenStream, view: View, asked: Request, ranges: RangeSet, again: RangeSet) -> str:
    """The digest of a plan: stream file, sinks, offsets, and the generation of the results that each has in a view.

    A sink that was written alone may have other results than the others: each one that the run writes is looked at.

    What is not among the offsets does not change it, such as what the ingest reads meanwhile.
    """
    found = sha256(f"{asked.kind.value} {opened.book.stream} {opened.file.digest} {sorted(asked.sinks)}\n".encode())
    for name, part in (("read", ranges), ("again", again)):
        for one in part:
            found.update(f"{name} {one}\n".encode())
        for sink, at, start, until, generation in _authority(opened, view, asked, part):
            found.update(f"replaces {sink} {at} {start} {until} {generation}\n".encode())
    return found.hexdigest()


def check_plan(opened: OpenStream, view: View, asked: Request, ranges: RangeSet, again: RangeSet) -> None:
    """Raises StaleLedger when a request names a plan, and its run would do anything else than that plan says.

    `view`: the ledger as it was read for what the run would do.
    """
    if asked.plan and digest_of(opened, view, asked, ranges, again) != asked.plan:
        raise StaleLedger(
            f"the plan {asked.plan[:12]} of {opened.book.stream} is stale: since it was made, the offsets that a "
            f"{asked.kind.value} would read, its sinks, the windows that it would replace, or the stream file have changed. "
            "Nothing was changed. Plan anew"
        )


def _authority(
    opened: OpenStream, view: View, asked: Request, chosen: RangeSet
) -> Iterator[tuple[str, TopicPartition, int, int, int]]:
    """What counts at some offsets, in each sink that a run writes; with all sinks, also for the dead letters."""
    seen: list[Authority] = []
    for name in asked.sinks or (None, *(one.name for one in opened.stream.sinks)):
        authority = view.of(name).authority
        if any(authority is one for one in seen):
            continue
        seen.append(authority)
        for one in chosen:
            for segment in authority.within(one):
                yield name or "", one.partition, segment.start, segment.until, segment.generation
