"""`./run simulate`: plays the program of each seed; what fails is shortened, printed and kept."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date

from tests.simulation.bugs import PLANTED, first_seed
from tests.simulation.floors import too_rare
from tests.simulation.kept import FOUND, how_to_keep, keep, kept
from tests.simulation.known import known
from tests.simulation.pairs import Pairs
from tests.simulation.playing import Failure, failure_of, shortened, stage, story_of
from tests.simulation.steps import Program, drawn
from tests.simulation.themes import THEMES

# A long search says now and then how far it is.
_SEEDS_A_LINE = 1_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds; 300 without it")
    parser.add_argument(
        "--steps", type=int, help="play seeds until so many steps were done, instead of a number of seeds"
    )
    parser.add_argument(
        "--first",
        type=int,
        help="the first seed, 1 without it; one alone is played with --seeds 1. With --seconds, it comes from the date",
    )
    parser.add_argument("--theme", choices=THEMES, help="give every seed this theme")
    parser.add_argument(
        "--seconds",
        type=float,
        help="play for so many seconds of processor time, of which each theme gets the same share",
    )
    parser.add_argument(
        "--bugs", action="store_true", help="plant each known bug, and look for the first seed that finds it"
    )
    options = parser.parse_args()
    with stage():
        if options.bugs:
            return _find_bugs(options.seeds, options.theme)
        if options.seconds:
            # A night's seeds are those of its date, so that each night plays others.
            first = options.first or date.today().toordinal() * 100_000
            return _play(_shared(first, options.seconds))
        first = options.first or 1
        last = None if options.steps else first + options.seeds
        return _play(_one_by_one(first, last, options.theme), options.steps, plays_all=options.theme is None)


def _one_by_one(first: int, last: int | None, theme: str | None) -> Iterator[tuple[int, str | None]]:
    return ((seed, theme) for seed in itertools.takewhile(lambda one: one != last, itertools.count(first)))


def _shared(first: int, seconds: float) -> Iterator[tuple[int, str | None]]:
    """Seeds from `first` on, each with the theme that has had the least processor time so far."""
    spent: dict[str | None, float] = dict.fromkeys((None, *THEMES), 0.0)
    for seed in itertools.count(first):
        if sum(spent.values()) > seconds:
            break
        theme = min(spent, key=lambda one: spent[one])
        began = time.process_time()
        yield seed, theme
        spent[theme] += time.process_time() - began


def _play(seeds: Iterator[tuple[int, str | None]], most: int | None = None, *, plays_all: bool = True) -> int:
    met: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    together = Pairs()
    steps, played, new, began = 0, 0, 0, time.process_time()
    for name, program in (kept() | kept(FOUND)).items():
        if failure := failure_of(program, met):
            new += _told(f"the kept program {name}", program, failure, kinds)
    for seed, theme in seeds:
        if most is not None and steps >= most:
            break
        program = drawn(seed, theme=theme)
        steps, played = steps + len(program.steps), played + 1
        if played % _SEEDS_A_LINE == 0:
            print(f"{steps} steps, until seed {seed}", flush=True)
        if failure := failure_of(program, met, together):
            whose = f"seed {seed}" + (f" --theme {theme!r}" if theme is not None else "")
            new += _told(whose, program, failure, kinds)
    took = time.process_time() - began
    print(
        f"{played} seeds, {steps} steps, {took:.1f} s of processor time. What has happened: {dict(sorted(met.items()))}"
    )
    print(together.said())
    for kind, number in kinds.items():
        print(f"failed {number} times: {kind}")
    rare = too_rare(met, played) if plays_all else {}
    for name, (number, least) in rare.items():
        print(f"too rare: {name} has happened {number} times, and {least} is the least in {played} seeds")
    return 1 if new or rare else 0


def _told(whose: str, program: Program, failure: Failure, kinds: Counter[str]) -> int:
    """Print a failure, the first of its kind with its shortened program, which is kept; 1 for one that is not known."""
    is_known = known(failure)
    kind = is_known or failure.kind
    kinds[kind] += 1
    if kinds[kind] == 1:
        program, failure = shortened(program, failure)
        print(f"{whose}: {failure.text}{f' (known: {is_known})' if is_known else ''}\n{program}", flush=True)
        print("What happened, step by step:", *story_of(program), sep="\n    ", flush=True)
        if not is_known:
            print(how_to_keep(keep(program, failure)), flush=True)
    return 0 if is_known else 1


def _find_bugs(seeds: int, theme: str | None) -> int:
    lost = 0
    for name, bug in PLANTED.items():
        found = first_seed(bug, range(1, seeds + 1), theme)
        lost += found is None
        print(f"{name}: {'not found' if found is None else f'seed {found[0]}: {found[1]}'}", flush=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
