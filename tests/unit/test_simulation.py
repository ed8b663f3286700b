"""The simulation: kept programs and the first seeds. `./run simulate` plays more of them; see docs/simulation.md."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.site import REPOSITORY
from tests.simulation import kept as keeping
from tests.simulation.actors import DIES, Stop
from tests.simulation.bugs import BUGS, KEPT_FOR, PLANTED, first_seed, planting
from tests.simulation.kept import FOLDER, how_to_keep, keep, kept
from tests.simulation.known import known
from tests.simulation.pairs import Pairs
from tests.simulation.playing import Play, failure_of, shortened, stage
from tests.simulation.steps import Program, Step, drawn
from tests.simulation.world import Setting
from tidemark.clients.hbase import gateway
from tidemark.ledger.records import INGEST

_SEEDS = 300


@pytest.fixture(autouse=True)
def _stage() -> Iterator[None]:
    with stage():
        yield


@pytest.mark.parametrize("name", kept())
def test_a_program_that_has_failed_does_so_no_more(name: str) -> None:
    failure = failure_of(kept()[name])
    assert failure is None or known(failure), f"{failure}"


@pytest.mark.parametrize("first", range(1, _SEEDS, 100))
def test_whatever_happens_every_promise_is_kept(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + 100):
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
        assert met[name], f"no {name} in seeds {first} to {first + 99}: {met}"


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
    print(first_seed(BUGS["a reader of folders does not look for a compaction"], [27]))
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


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    """By the seed of the table; the whole search is `./run simulate --bugs --seeds 1000`."""
    assert first_seed(BUGS[bug], [BUGS[bug].seed]), f"seed {BUGS[bug].seed} no longer finds it: look for another"


@pytest.mark.parametrize(("program", "bug"), KEPT_FOR.items())
def test_a_kept_program_finds_what_it_was_kept_for(program: str, bug: str) -> None:
    with planting(PLANTED[bug]):
        assert failure_of(kept()[program]) is not None


def test_the_page_has_the_table() -> None:
    page = (REPOSITORY / "docs" / "simulation.md").read_text()
    for name, bug in PLANTED.items():
        row = f"| {bug.number} | {name} | {bug.seed} |" if bug.seed else f"- {name} ({bug.number})"
        assert row in page.splitlines(), row


@pytest.mark.full
def test_what_faults_were_made_of_meets_often() -> None:
    together = Pairs()
    for seed in range(1, 1_001):
        failure_of(drawn(seed), together=together)
    assert not together.too_rare(), f"too rarely, in 1,000 seeds: {together.too_rare()}"


@pytest.mark.full
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_within_a_thousand_seeds(bug: str) -> None:
    assert first_seed(BUGS[bug], range(1, 1_001))


def test_what_a_search_finds_is_kept_outside_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search beside a commit must not slip into it: only people put a program among those that everybody plays."""
    monkeypatch.setattr(keeping, "FOUND", tmp_path)
    before = sorted(FOLDER.iterdir())
    program = drawn(4)
    bug = "a run's name decides, not its request"
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
    head = play.world.opened.book.head(INGEST)
    pending = head.head.pending if head is not None else None
    assert pending is not None
    assert pending.attempt is None
