"""What is left in folders and tables: of messages that were erased, and of attempts that never counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from tests.simulation.others import DELTA, ICEBERG, PARQUET, everything, iceberg_files
from tidemark.clients.lake import beside
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import LaneState
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.erasing import Remaining, remaining
from tidemark.sinks.delta import remains, table
from tidemark.sinks.parquet import compactions, files

if TYPE_CHECKING:
    from tests.simulation.work import Place
    from tests.simulation.world import World


def erased_in(world: World, erased: Collection[Place]) -> dict[str, set[Place]]:
    """Which of some messages stand in the folders of Parquet, and in the newest version of the table."""
    found: dict[str, set[Place]] = {}
    for base in _bases(world, PARQUET):
        for path, rows in world.lake.files(base):
            if held := {*everything(rows)} & {*erased}:
                found.setdefault(path.rpartition("/")[0], set()).update(held)
    for base, path in (*_of_newest_versions(world), *_in_no_version(world), *_of_newest_snapshots(world)):
        if held := {*everything(world.lake.contents(path))} & {*erased}:
            found.setdefault(base, set()).update(held)
    return found


def _of_newest_snapshots(world: World) -> Iterator[tuple[str, str]]:
    for sink in world.opened.stream.sinks:
        if sink.type == ICEBERG:
            base = sink.base(world.opened.connections)  # type: ignore[attr-defined]
            yield from ((base, path) for path in iceberg_files(world.opened, sink))


def _of_newest_versions(world: World) -> Iterator[tuple[str, str]]:
    for base in _bases(world, DELTA):
        for paths in table.files_of(base).values():
            yield from ((base, path) for path in paths)


def _in_no_version(world: World) -> Iterator[tuple[str, str]]:
    """What attempts have left beside a table, and what publications have left in its folder."""
    for base in _bases(world, DELTA):
        found = [path for paths in files.by_attempt(beside(base)).values() for path in paths]
        if table.exists(base):
            found += [f"{base}/{name}" for _, name in remains.unnamed(base)]
        for path in found:
            # Such files are written again.
            world.lake.known.pop(path, None)
            yield base, path


def dead_folders(world: World, ledger: Ledger, before: int) -> set[str]:
    """The folders of attempts from before a generation that can commit no more: an erasure of then removes what they hold."""
    standing = ledger.standing()
    found = (folder for base in _bases(world, PARQUET) for folder in files.on_disk(base) if not folder.compacted)
    return {one.folder for one in found if standing.is_dead(one.generation, before)}


def is_named(place: str, remains: Iterable[Remaining]) -> bool:
    """Whether people are told of it: a folder by its name or its windows. Of a table, what was written late."""
    if "generation=" not in place:
        return any(f"{place}" == one.place.get("base") and "came late" in one.remains for one in remains)
    said = [one.remains for one in remains if one.type == PARQUET]
    return any(f"{place}" in one or "hold it until" in one for one in said)


def check_compacted(world: World, erased: Collection[Place]) -> None:
    """After a compaction, there are the folders that the ledger names, and nothing in them was erased."""
    from tests.simulation.oracle import check, said

    ledger = world.opened.ledger
    known = compactions.find(ledger, PARQUET)
    located = known.value.located() if known else {}
    named = {one.folder for one in located.values()}
    windows = ledger.committed()
    # Committed before it was read, and without a receipt: no folder is named, and some may be there.
    without = {one.generation for one in windows if one.record.receipt is None}
    for one in windows:
        if (one.record.lane, one.record.seq) not in located:
            named |= {place.place["folder"] for place in one.record.places if place.type == PARQUET}
    heads = ledger.heads()
    for base in _bases(world, PARQUET):
        for at in files.on_disk(base):
            if at.folder in named or at.generation in without:
                continue
            head = heads[at.lane].head if at.lane in heads else None
            # A lane that cannot go on, and was not given up, may have its attempt's folder.
            waits = head is not None and head.state != LaneState.CLOSED and at.seq > head.seq
            check(waits, f"{at.folder} counts for nobody, and a compaction has left it")
    _check_compacted_tables(world, erased)
    for place, places in erased_in(world, erased).items():
        unnamed = "/lane=" in place and any(f"generation={generation}" in place for generation in without)
        check(unnamed, f"after a compaction {place} still holds erased messages: {said(places)}")


def _check_compacted_tables(world: World, erased: Collection[Place]) -> None:
    """Nothing that was erased is in any file of Iceberg's, but in one that died on its way into the table, which is said."""
    from tests.simulation.oracle import check, said

    named = {path for _, path in _of_newest_snapshots(world)}
    gone = RangeSet(OffsetRange(at, offset, offset + 1) for at, offset in erased)
    for base in _bases(world, ICEBERG):
        for path, rows in world.lake.files(base):
            if held := {*everything(rows)} & {*erased}:
                remains = [one.remains for one in remaining(world.opened, gone) if one.type == ICEBERG]
                told = path not in named and any("way into the table" in one for one in remains)
                check(told, f"after a compaction {path} still holds erased messages: {said(held)}; {remains}")


def check_seen_by_others(world: World, sink: str, expected: Collection[Place]) -> None:
    """Programs that know nothing of the ledger find in the newest version what counts, once, and nothing else."""
    from tests.simulation.oracle import check, said

    found = [place for _, path in _VERSIONS[sink](world) for place in everything(world.lake.contents(path))]
    check(len({*found}) == len(found), f"the newest version of the table of {sink} has rows twice: {said(found)}")
    other = {*found} ^ {*expected}
    check(not other, f"the newest version of the table of {sink} has other rows than those that count: {said(other)}")


def check_no_tries_left(world: World) -> None:
    """Whoever has ended by itself has removed the copies that it made for a version which others were faster to make.

    Files of an attempt may stay, under the name that each try gives them, until a vacuum.
    """
    from tests.simulation.oracle import check

    if world.ever_away or not all(one.has_ended for one in world.actors):
        return
    for base in _bases(world, DELTA):
        unnamed = remains.unnamed(base) if table.exists(base) else ()
        left = sorted(name for _, name in unnamed if "/part-" not in name)
        check(not left, f"everybody has ended by itself, and no version of {base} has {left}")


def check_seen_meanwhile(world: World, sink: str, committed: Collection[int]) -> None:
    """Between a commit and its publication too: no row twice, and none of an attempt that has not committed."""
    from tests.simulation.oracle import check, said

    found = [place for _, path in _VERSIONS[sink](world) for place in everything(world.lake.contents(path))]
    check(len({*found}) == len(found), f"the newest version of the table of {sink} has rows twice: {said(found)}")
    generations = {one for base in _bases(world, DELTA) for one in table.files_of(base)} if sink == DELTA else set()
    check(generations <= {*committed}, f"a table has rows of attempts that have not committed: {generations}")


def _bases(world: World, kind: str) -> list[str]:
    return [
        one.base(world.opened.connections)  # type: ignore[attr-defined]
        for one in world.opened.stream.sinks
        if one.type == kind
    ]


_VERSIONS = {ICEBERG: _of_newest_snapshots, DELTA: _of_newest_versions}
