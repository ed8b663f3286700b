"""Clocks that are wrong: no draw of one machine stops the others, and generations never fall."""

from __future__ import annotations

import time

import pytest
from msgspec import structs

from tests.support.protocol_world import LANE, OTHER, RUN, World
from tidemark.commit import protocol
from tidemark.errors import ClockAhead, ClockBehind, HeldByAnother, WrongUse
from tidemark.ledger.ledger import now_ms
from tidemark.ledger.records import Heartbeat
from tidemark.ledger.register import MAX_CLOCK_DIFFERENCE_MS, accept_generation, change, draw_generation
from tidemark.ledger.stores import doubt
from tidemark.views.events import events

DAY = 86_400_000


class Clocks(World):
    """A stream with one pending window, whose ledger is on a server with a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.server = self.now
        self.store.server_time = lambda: self.server
        self.open()
        self.seq = self.pin()

    def passes(self, ms: int) -> None:
        self.now += ms
        self.server += ms

    def generation(self) -> int:
        found = self.ledger.register()
        assert found is not None
        return found[1].generation


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)
    return Clocks()


@pytest.mark.parametrize("drawn_before", [False, True])
def test_a_clock_that_is_far_ahead_draws_nothing(world: Clocks, drawn_before: bool) -> None:
    if drawn_before:
        draw_generation(world.ledger)
    before = world.generation()
    world.now += DAY
    with pytest.raises(ClockAhead, match="86400 s ahead of that of the ledger's server"):
        protocol.take(world.ledger, LANE, world.seq, RUN)
    assert world.generation() == before
    world.now -= DAY
    world.process(world.seq, OTHER)


def test_clocks_differ_a_little(world: Clocks) -> None:
    world.now += MAX_CLOCK_DIFFERENCE_MS
    first, _ = draw_generation(world.ledger)
    world.now -= MAX_CLOCK_DIFFERENCE_MS
    second, _ = draw_generation(world.ledger)
    assert (first, second) == (world.now + MAX_CLOCK_DIFFERENCE_MS, first + 1)


def test_nobody_has_drawn_for_months(world: Clocks) -> None:
    draw_generation(world.ledger)
    world.passes(100 * DAY)
    assert draw_generation(world.ledger)[0] == world.now


def test_a_generation_far_ahead_of_all_clocks_is_accepted_by_somebody(world: Clocks) -> None:
    """The server's clock was wrong too."""
    world.passes(DAY)
    far = draw_generation(world.ledger)[0]
    world.passes(-DAY)
    with pytest.raises(ClockBehind, match="tidemark ledger clock s --accept --reason"):
        protocol.take(world.ledger, LANE, world.seq, RUN)
    assert accept_generation(world.ledger, "the server's clock was wrong") == far
    drawn = [draw_generation(world.ledger)[0] for _ in range(3)]
    assert drawn == [far + 1, far + 2, far + 3]
    world.process(world.seq)
    (event,) = events(world.ledger)
    assert (event.what, event.why) == ("clock accepted", "the server's clock was wrong")
    # Once more such a draw, and it is asked for again.
    world.passes(5 * DAY)
    draw_generation(world.ledger)
    world.passes(-5 * DAY)
    with pytest.raises(ClockBehind):
        draw_generation(world.ledger)


def test_only_what_is_far_ahead_of_the_server_too_is_accepted(world: Clocks) -> None:
    with pytest.raises(WrongUse, match="nothing to do"):
        accept_generation(world.ledger, "a guess")
    world.passes(DAY)
    draw_generation(world.ledger)
    world.now -= DAY
    with pytest.raises(ClockBehind, match="set the clock that is wrong"):
        accept_generation(world.ledger, "this machine's clock is the wrong one")
    with pytest.raises(ClockBehind, match="set the clock that is wrong"):
        draw_generation(world.ledger)


def test_who_draws_soon_after_the_last_draw_asks_no_server(world: Clocks) -> None:
    draw_generation(world.ledger)
    world.passes(MAX_CLOCK_DIFFERENCE_MS // 2)
    world.store.server_time = lambda: pytest.fail("the server was asked")
    draw_generation(world.ledger)


def test_exactly_ten_minutes_are_not_far(world: Clocks) -> None:
    world.passes(MAX_CLOCK_DIFFERENCE_MS)
    last = draw_generation(world.ledger)[0]
    world.passes(-MAX_CLOCK_DIFFERENCE_MS)
    assert last - world.now == MAX_CLOCK_DIFFERENCE_MS
    with pytest.raises(WrongUse, match="nothing to do"):
        accept_generation(world.ledger, "a guess")
    # Nor is a server that is ahead by so much another clock.
    world.passes(-1)
    world.server = world.now + MAX_CLOCK_DIFFERENCE_MS
    assert accept_generation(world.ledger, "the server's clock was wrong") == last


def test_counting_on_from_an_accepted_generation_ends_after_ten_minutes(world: Clocks) -> None:
    world.passes(DAY)
    far = draw_generation(world.ledger)[0]
    world.passes(-DAY)
    accept_generation(world.ledger, "the server's clock was wrong")

    def drawn_up_to(generation: int) -> None:
        change(world.ledger, lambda register: structs.replace(register, generation=generation))

    drawn_up_to(far + MAX_CLOCK_DIFFERENCE_MS - 1)
    assert draw_generation(world.ledger)[0] == far + MAX_CLOCK_DIFFERENCE_MS
    with pytest.raises(ClockBehind, match="tidemark ledger clock s --accept"):
        draw_generation(world.ledger)


@pytest.mark.parametrize(
    ("of_generation", "of_server", "said"),
    [
        # The generation is exactly ten minutes ahead of the server: no clock but this one is known to be wrong.
        (0, 1, "set the clock that is wrong"),
        (1, 0, "--accept"),
        (1, MAX_CLOCK_DIFFERENCE_MS, "--accept"),
        (MAX_CLOCK_DIFFERENCE_MS, MAX_CLOCK_DIFFERENCE_MS + 1, "set the clock that is wrong"),
    ],
)
def test_the_advice_follows_from_all_three_clocks(world: Clocks, of_generation: int, of_server: int, said: str) -> None:
    """How far the generation is beyond ten minutes ahead of the server, and the server ahead of this machine."""
    world.server = world.now + of_server
    generation = world.server + MAX_CLOCK_DIFFERENCE_MS + of_generation
    change(world.ledger, lambda register: structs.replace(register, generation=generation))
    with pytest.raises(ClockBehind, match=said):
        draw_generation(world.ledger)


def test_the_clock_counts_milliseconds() -> None:
    assert abs(now_ms() - time.time() * 1000) < 60_000


@pytest.mark.parametrize("minutes", [1, 30, 59])
def test_a_dead_holder_whose_clock_was_ahead_stops_nobody(world: Clocks, minutes: int) -> None:
    """Its clock was set right meanwhile, and its last generation was accepted. Its sign of life lies in the future."""
    world.now += 3_600_000
    world.server += 3_600_000
    taken = protocol.take(world.ledger, LANE, world.seq, RUN)
    sign = Heartbeat(generation=taken.attempt.generation, run=RUN.name, at=world.now, step="reading")
    world.ledger.beat(LANE, sign)
    world.now -= 3_600_000
    world.server -= 3_600_000
    accept_generation(world.ledger, "the clock was an hour ahead")
    world.passes(minutes * 60_000 - 31_000)
    assert protocol.take(world.ledger, LANE, world.seq, OTHER).attempt.run == OTHER.name


def test_a_sign_of_life_from_a_clock_that_is_a_little_ahead_is_one(world: Clocks) -> None:
    taken = protocol.take(world.ledger, LANE, world.seq, RUN)
    at = world.now + protocol.LEASE_MS
    world.ledger.beat(LANE, Heartbeat(generation=taken.attempt.generation, run=RUN.name, at=at, step="reading"))
    with pytest.raises(HeldByAnother):
        protocol.take(world.ledger, LANE, world.seq, OTHER)
    world.passes(2 * protocol.LEASE_MS)
    assert protocol.take(world.ledger, LANE, world.seq, OTHER).attempt.run == OTHER.name
