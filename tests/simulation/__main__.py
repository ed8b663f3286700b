"""`./run simulate`: plays the program of each seed; what fails is shortened, printed and kept."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from tests.simulation.bugs import PLANTED, first_seed
from tests.simulation.kept import FOUND, how_to_keep, keep, kept
from tests.simulation.known import known
from tests.simulation.pairs import Pairs
from tests.simulation.playing import Failure, failure_of, shortened, stage
from tests.simulation.steps import Program, drawn

# A long search says now and then how far it is.
_SEEDS_A_LINE = 1_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds; 300 without it")
    parser.add_argument(
        "--steps", type=int, help="play seeds until so many steps were done, instead of a number of seeds"
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed; one alone is played with --seeds 1")
    parser.add_argument(
        "--bugs", action="store_true", help="plant each known bug, and look for the first seed that finds it"
    )
    options = parser.parse_args()
    with stage():
        if options.bugs:
            return _find_bugs(options.seeds)
        return _play(options.first, None if options.steps else options.seeds, options.steps)


def _play(first: int, seeds: int | None, most: int | None) -> int:
    met: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    together = Pairs()
    steps, new, began = 0, 0, time.process_time()
    for name, program in (kept() | kept(FOUND)).items():
        if failure := failure_of(program, met):
            new += _told(f"the kept program {name}", program, failure, kinds)
    for seed in itertools.count(first):
        if seed == (first + seeds if seeds is not None else -1) or (most is not None and steps >= most):
            break
        program = drawn(seed)
        steps += len(program.steps)
        if seed % _SEEDS_A_LINE == 0 and most is not None:
            print(f"{steps} steps, until seed {seed}", flush=True)
        if failure := failure_of(program, met, together):
            new += _told(f"seed {seed}", program, failure, kinds)
    took = time.process_time() - began
    print(f"{steps} steps, {took:.1f} s of processor time. What has happened: {dict(sorted(met.items()))}")
    print(together.said())
    for kind, number in kinds.items():
        print(f"failed {number} times: {kind}")
    return 1 if new else 0


def _told(whose: str, program: Program, failure: Failure, kinds: Counter[str]) -> int:
    """Print a failure, the first of its kind with its shortened program, which is kept; 1 for one that is not known."""
    is_known = known(failure)
    kind = is_known or failure.kind
    kinds[kind] += 1
    if kinds[kind] == 1:
        program, failure = shortened(program, failure)
        print(f"{whose}: {failure.text}{f' (known: {is_known})' if is_known else ''}\n{program}", flush=True)
        if not is_known:
            print(how_to_keep(keep(program, failure)), flush=True)
    return 0 if is_known else 1


def _find_bugs(seeds: int) -> int:
    lost = 0
    for name, bug in PLANTED.items():
        found = first_seed(bug, range(1, seeds + 1))
        lost += found is None
        print(f"{name}: {'not found' if found is None else f'seed {found[0]}: {found[1]}'}", flush=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
