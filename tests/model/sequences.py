"""Which sequences of steps are played: drawn by a seed from a menu of steps, and shortened when they fail."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from unittest.mock import patch

import hypothesis

from tests.model.machine import ACTORS, SLOTS, Setting, Step, World
from tests.model.transport import DEATHS, DOUBTS, MEANWHILE, STALE, Mishap
from tests.support.quick import MUTANTS, quick
from tidemark.ledger import selections
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.runs.live import kafka_now
from tidemark.sinks.parquet import parts

# How often each operation is on the menu.
LEDGER = {
    "job": 8, "plan": 3, "take": 4, "write": 2, "commit": 6, "settle": 2, "abandon": 2, "open": 7, "finish": 2, "late": 2,
    "compact": 2, "look": 2,
    "two windows": 1,
    "two abandons": 1, "replay": 2, "overslept": 1, "unlucky": 1, "time passes": 2, "clock moves": 1, "grow": 3,
}  # fmt: skip
SOURCE = {
    "job": 8, "plan": 2, "take": 2, "commit": 3, "settle": 1, "abandon": 1, "open": 3, "late": 1, "look": 1, "time passes": 2,
    "grow": 4, "add partition": 2, "recreate": 2, "cut": 2, "delete": 2, "skip": 1,
}  # fmt: skip

_MENU_SIZE = 4_000
QUICK = 60
_MAX_STEPS = 18

# What tells two failures of one kind apart: hashes in the names of lanes, and numbers.
_NAMES = re.compile(r"[0-9a-f]{12}|\d+")


@dataclass(frozen=True)
class Focus:
    """What a part of the sequences looks at: operations by their weight, stream files, and how much goes wrong."""

    weights: tuple[tuple[str, int], ...]
    settings: tuple[Setting, ...]
    mishaps: float
    # What has to happen besides the operations: see `unexplored`.
    wanted: tuple[str, ...]


@cache
def menu(focus: Focus) -> list[Step]:
    """Steps to draw from, the same in every process."""
    chance = random.Random(17)
    return [_step(chance, focus.weights, focus.mishaps) for _ in range(_MENU_SIZE)]


def _step(chance: random.Random, weights: tuple[tuple[str, int], ...], mishaps: float) -> Step:
    def plain(slot: int | None = None) -> Step:
        (name,) = chance.choices([name for name, _ in weights], [weight for _, weight in weights])
        # Mostly the ingest.
        slot = chance.choice((0, 0, *range(SLOTS))) if slot is None else slot
        return Step(name, chance.randrange(ACTORS), slot, chance.randrange(3))

    step = plain()
    if step.name == "look":
        # While others replay, and sweep what it is about to read.
        other = Step("replay", (step.actor + 1) % ACTORS, step.slot)
        return replace(step, mishap=Mishap(MEANWHILE, chance.randrange(12)), other=other)
    if step.name == "back up":
        # Between any two of its reads, of which the first few decide what is in it.
        other = replace(plain(), actor=(step.actor + 1) % ACTORS)
        return replace(step, mishap=Mishap(MEANWHILE, chance.randrange(6)), other=other)
    if chance.random() >= mishaps:
        return step
    kind = chance.choice((*DEATHS, *DEATHS, *DOUBTS, STALE, MEANWHILE, MEANWHILE))
    most = 12 if step.name in ("job", "two windows", "overslept") else 5
    between = kind in DOUBTS and chance.random() < 0.5
    mishap = Mishap(kind, chance.randrange(2 * most if kind == MEANWHILE else most), between)
    # Mostly in the same lane.
    other = plain(chance.choice((None, step.slot, step.slot))) if between or kind == MEANWHILE else None
    return Step(step.name, step.actor, step.slot, step.variant, mishap, other)


def sequence(focus: Focus, seed: int) -> tuple[Setting, list[Step]]:
    """The sequence of a seed, for ever the same one."""
    chance = random.Random(seed)
    return chance.choice(focus.settings), chance.choices(menu(focus), k=chance.randrange(4, _MAX_STEPS))


def explore(
    focus: Focus, make_store: Callable[[], LedgerStore], seeds: Iterable[int], *, shorter: bool = True
) -> Counter[str]:
    """Play a sequence of each seed; gives what really happened in them.

    A failure is raised with the shortest sequence found that fails so. Hypothesis would take longer to draw a step than it
    takes to play it, so drawing and shortening are here.
    """
    counts: Counter[str] = Counter()
    with (
        patch.object(doubt, "_PAUSE_SECONDS", 0.0),
        patch.object(kafka_now, "_STALE_PAUSE_SECONDS", 0.0),
        # A few offsets in each piece, so that actors die between two of them.
        patch.object(selections, "PIECE_BYTES", 90),
        # The model's folders are in memory: no disk of theirs could be away.
        patch.object(parts, "_check_there", lambda found: None),
    ):
        for seed in seeds:
            setting, steps = sequence(focus, seed)
            counts["sequences"] += 1
            counts["steps"] += len(steps)
            problem = _played(make_store, setting, steps, counts)
            if problem is not None:
                if shorter:
                    steps, problem = _shortest(make_store, setting, steps, problem)
                shown = "".join(f"\n    {step}," for step in steps)
                problem.add_note(f"seed {seed}: World(store, {setting}, Counter()).play([{shown}\n])")
                raise problem
    return counts


def keeps_its_promises(focus: Focus, make_store: Callable[[], LedgerStore], seeds: Sequence[int], least: int) -> None:
    """Play a sequence of each seed. In them, all that they are to explore has to happen `least` times.

    A quick run plays the first of them, and `./run mutate` does so for each change: what they do not find, no later one
    has to.
    """
    profile = hypothesis.settings.get_current_profile_name()
    if quick():
        explore(focus, make_store, seeds[:QUICK], shorter=profile != MUTANTS)
        return
    counts = explore(focus, make_store, seeds)
    print(counts)
    assert not unexplored(focus, counts, least)


def unexplored(focus: Focus, counts: Counter[str], least: int) -> dict[str, int]:
    """What has happened fewer than `least` times, of what the sequences are to explore."""
    wanted = [f"{name}: done" for name, _ in focus.weights]
    wanted += [*DEATHS, *DOUBTS, STALE, MEANWHILE, *focus.wanted]
    return {name: counts[name] for name in wanted if counts[name] < least}


def _played(
    make_store: Callable[[], LedgerStore], setting: Setting, steps: list[Step], counts: Counter[str]
) -> Exception | None:
    try:
        World(make_store(), setting, counts).play(steps)
    except Exception as problem:
        return problem
    return None


def _shortest(
    make_store: Callable[[], LedgerStore], setting: Setting, steps: list[Step], problem: Exception
) -> tuple[list[Step], Exception]:
    """Leave out steps, several at first, as long as it fails in the same way."""
    for size in (8, 4, 2, 1, 1):
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            found = _played(make_store, setting, fewer, Counter())
            if found is not None and _kind(found) == _kind(problem):
                steps, problem = fewer, found
            else:
                at += size
    return steps, problem


def _kind(problem: Exception) -> str:
    return f"{type(problem).__name__} {_NAMES.sub('', str(problem))[:80]}"


ON_THE_LEDGER = Focus(
    tuple(LEDGER.items()),
    tuple(
        Setting(guarantee, ingest_first=first)
        for guarantee in ("at_least_once", "at_least_once", "at_most_once", "none")
        for first in (True, False)
    ),
    mishaps=0.5,
    wanted=(
        "in the middle",
        *(f"{name}: Died" for name in ("job", "plan", "commit", "open", "compact", "two windows")),
        "commit: Fenced",
        "open: ClaimOverlap",
        "rows swept",
        *(f"windows of a {kind}, at_least_once" for kind in ("ingest", "backfill", "replay")),
        "windows of a ingest, at_most_once",
        "windows of a ingest, none",
    ),
)
# Erasures among replays and backfills.
ON_ERASING = Focus(
    tuple({"job": 6, "plan": 2, "take": 3, "write": 2, "commit": 5, "settle": 1, "abandon": 1, "open": 6, "erase": 8,
           "late": 2, "compact": 1, "look": 2, "replay": 3, "grow": 3, "time passes": 2}.items()),
    (Setting(), Setting(ingest_first=False), Setting("at_most_once")),
    mishaps=0.5,
    wanted=(
        "in the middle",
        "erase: Died",
        "erase: ClaimOverlap",
        *(f"windows of a {kind}, at_least_once" for kind in ("ingest", "backfill", "replay", "erase")),
    ),
)  # fmt: skip
# Backups while others work.
ON_BACKUPS = Focus(
    tuple({"job": 6, "take": 3, "commit": 4, "open": 8, "finish": 4, "replay": 6, "back up": 12}.items()),
    (Setting(), Setting("at_most_once"), Setting("none")),
    mishaps=0.7,
    wanted=("in the middle", "job: Died", *(f"windows of a {kind}, at_least_once" for kind in ("backfill", "replay"))),
)
ON_THE_SOURCE = Focus(
    tuple(SOURCE.items()),
    tuple(
        Setting(
            guarantee,
            start="earliest",
            accepts=accepts,
            out_of_range=out_of_range,
            max_behind=max_behind,
            ingest_first=first,
        )
        for guarantee in ("at_least_once", "at_least_once", "at_most_once", "none")
        for accepts in (True, True, False)
        for out_of_range in ("earliest", "latest")
        for max_behind in (None, None, 4)
        for first in (True, False)
    ),
    mishaps=0.2,
    wanted=(
        "job: Died",
        "commit: SourceChanged",
        "job: TopicRecreated",
        "job: LogTruncated",
        "job: OffsetsOutOfRange",
        *(f"windows of a {kind}, at_least_once" for kind in ("ingest", "backfill", "replay")),
        "windows of a ingest, at_most_once",
        "windows of a ingest, none",
    ),
)
