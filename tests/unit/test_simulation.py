"""The simulation: kept programs and the first seeds. `./run simulate` plays more of them; see docs/simulation.md."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from services.site import REPOSITORY
from tests.simulation import kept as keeping
from tests.simulation import playing
from tests.simulation.actors import DIES, SLEEPS, Stop
from tests.simulation.bugs import BUGS, KEPT_FOR, PLANTED, first_seed, planting
from tests.simulation.floors import FLOORS, too_rare
from tests.simulation.kept import FOLDER, how_to_keep, keep, kept
from tests.simulation.known import known
from tests.simulation.pairs import Pairs
from tests.simulation.playing import Failure, Play, failure_of, shortened, stage, story_of
from tests.simulation.steps import Program, Step, drawn
from tests.simulation.themes import THEMES
from tests.simulation.world import Setting
from tests.simulation.wrong_refusals import WRONG, WRONG_FOR
from tests.support.quick import some_of
from tidemark.clients.hbase import gateway
from tidemark.ledger.records import INGEST

_AT_ONCE = 60
# These in each run. `./run test full` plays more of them, and `./run simulate` as many as one likes.
_FIRST = [1, *(pytest.param(first, marks=pytest.mark.full) for first in (61, 121))]


@cache
def _clean(seed: int, theme: str) -> Failure | None:
    """How a program fails without any bug. Several bugs are found by one program."""
    return failure_of(drawn(seed, theme=theme))


@pytest.fixture(autouse=True)
def _stage() -> Iterator[None]:
    with stage():
        yield


@pytest.mark.parametrize("name", kept())
def test_a_program_that_has_failed_does_so_no_more(name: str) -> None:
    failure = failure_of(kept()[name])
    assert failure is None or known(failure), f"{failure}"


@pytest.mark.parametrize("first", _FIRST)
def test_whatever_happens_every_promise_is_kept(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + _AT_ONCE):
        program = drawn(seed)
        failure = failure_of(program, met)
        if failure is None:
            continue
        if said := known(failure):
            print(f"seed {seed}, known: {said}")
            continue
        program, failure = shortened(program, failure)
        pytest.fail(f"seed {seed}: {failure.text}\n{program}")
    # What only looks like a simulation would find nothing, too.
    for name in ("replay done", "erase done", "backfill done", "windows of a ingest", "rows", "totals"):
        assert met[name], f"no {name} in seeds {first} to {first + _AT_ONCE - 1}: {met}"


def test_a_seed_is_one_program_and_a_program_one_history() -> None:
    """Nothing but the seed decides: neither threads, nor hashes, nor the clock of this machine."""
    histories = []
    for _ in range(2):
        play = Play(drawn(7))
        play.whole()
        histories.append([(key, at) for at, key, _ in play.world.ledger.network.applied])
    assert histories[0] == histories[1]
    assert Program.of_data(drawn(7).as_data()) == drawn(7)


_PRINTS_WHAT_IS_FOUND = """
from tests.simulation.bugs import BUGS, first_seed
from tests.simulation.playing import stage
with stage():
    bug = BUGS["a reader of folders does not look for a compaction"]
    print(first_seed(bug, [bug.found[0]], bug.found[1]))
"""


def test_the_timer_of_a_real_client_goes_by_the_real_clock() -> None:
    """A test on servers leaves it, and it may be due while a program is played."""
    read = list[float]()
    timer = threading.Timer(0, lambda: read.append(vars(gateway)["time"].monotonic()))
    timer.start()
    timer.join()
    assert 0 <= time.monotonic() - read[0] < 60


@pytest.mark.full
def test_no_order_of_a_set_decides() -> None:
    """Hashes differ in each process: once the folders of lanes were removed in the order of a set."""
    found = [
        subprocess.run(
            [sys.executable, "-c", _PRINTS_WHAT_IS_FOUND],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert found[0] == found[1] != "None\n"


@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_can_be_planted(bug: str) -> None:
    """Its quote is in today's code. Whether it is found takes longer, so the usual run tries some of them."""
    with planting(PLANTED[bug]):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("bug", some_of(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    """By its seed and theme, which fail with it alone; others are looked for with `./run simulate --bugs --theme NAME`."""
    seed, theme = BUGS[bug].found or (0, "")
    assert _clean(seed, theme) is None
    assert first_seed(BUGS[bug], [seed], theme), f"seed {seed} --theme {theme!r} no longer finds it: look for another"


@pytest.mark.parametrize("bug", WRONG)
def test_a_wrong_refusal_or_answer_is_found(bug: str) -> None:
    wrong = WRONG[bug]
    assert _clean(wrong.seed, wrong.theme) is None
    with wrong.planted():
        assert failure_of(drawn(wrong.seed, theme=wrong.theme)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize("theme", some_of(THEMES))
def test_each_theme_has_seeds_of_its_own(theme: str, seed: int) -> None:
    failure = _clean(seed, theme)
    assert failure is None or known(failure), f"seed {seed} --theme {theme!r}: {failure}"


def test_a_search_in_which_nothing_ends_well_has_failed() -> None:
    assert "replay done" in too_rare({}, 1_000)
    assert not too_rare(FLOORS, 1_000)
    assert not too_rare({}, 10), "among ten seeds, chance decides"


def test_a_program_is_shortened_to_what_it_needs() -> None:
    """Settings, numbers and stops too: what is simpler still is made of what was simpler."""
    program = Program(Setting(partitions=3), (Step("produce", a=8), Step("cut", 16, 31, 4, Stop(SLEEPS, "swept"))))
    cut = Failure("a cut", "a cut")

    def fails(other: Program, *_: object) -> Failure | None:
        return cut if any(one.name == "cut" for one in other.steps) else None

    with patch.object(playing, "failure_of", fails):
        short, _ = shortened(program, cut)
    assert short == Program(Setting(), (Step("cut"),))


def test_a_failure_is_told_in_words() -> None:
    """What a step's numbers mean, where its stop was, and what came of it."""
    program = Program(
        Setting(), (Step("produce", a=8), Step("ingest", stop=Stop(DIES, 9)), Step("replay", 3, a=1), Step("ingest", 4))
    )
    told = story_of(program)
    assert told[:2] == ["produce 0", told[1]]
    assert told[1].startswith("ingest 0: dies before ")
    assert "tidemark." in told[1]
    assert told[len(program.steps) :][0] == "last ingest"


@pytest.mark.parametrize(("program", "bug"), KEPT_FOR.items())
def test_a_kept_program_finds_what_it_was_kept_for(program: str, bug: str) -> None:
    with planting(PLANTED[bug]):
        assert failure_of(kept()[program]) is not None


@pytest.mark.parametrize("program", WRONG_FOR)
def test_a_kept_program_finds_a_wrong_answer(program: str) -> None:
    with WRONG_FOR[program].planted():
        assert failure_of(kept()[program]) is not None


@pytest.mark.full
def test_what_faults_were_made_of_meets_often() -> None:
    together = Pairs()
    for seed in range(1, 1_001):
        failure_of(drawn(seed), together=together)
    assert not together.too_rare(), f"too rarely, in 1,000 seeds: {together.too_rare()}"


def test_what_a_search_finds_is_kept_outside_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search beside a commit must not slip into it: only people put a program among those that everybody plays."""
    monkeypatch.setattr(keeping, "FOUND", tmp_path)
    before = sorted(FOLDER.iterdir())
    bug = "a run's name decides, not its request"
    seed, theme = PLANTED[bug].found or (0, "")
    program = drawn(seed, theme=theme)
    with planting(PLANTED[bug]):
        failure = failure_of(program)
        assert failure is not None
        path = keep(program, failure)
        assert kept(tmp_path) == {path.stem: program}
    assert "tests/simulation/kept/what_it_shows.json" in how_to_keep(path)
    assert sorted(FOLDER.iterdir()) == before


def test_an_actor_may_stop_right_after_it_has_pinned() -> None:
    play = Play(Program(Setting(), (Step("produce", a=8), Step("ingest", stop=Stop(DIES, "pinned")))))
    for number, step in enumerate(play.program.steps):
        play.do(number, step)
    head = play.world.opened.ledger.head(INGEST)
    pending = head.head.pending if head is not None else None
    assert pending is not None
    assert pending.attempt is None
