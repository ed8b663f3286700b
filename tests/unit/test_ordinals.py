"""The ordinals of attempts: whoever may write where another has written has the higher one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.memory import MemoryStore
from tests.support.protocol_world import AT, LANE, RUN, NoWork, Sweeps, hold, plan
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener, Taken, Work, ordinal_of
from tidemark.errors import Fenced, ProcessingFailed
from tidemark.ledger.book import Book
from tidemark.ledger.records import (
    Attempt,
    Erasure,
    Guarantee,
    Head,
    LaneKind,
    Receipt,
    Record,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.register import close_lane, open_lane
from tidemark.ledger.stores import doubt
from tidemark.offsets.ranges import OffsetRange, RangeSet


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


class Lanes:
    """A stream that is read in windows of ten offsets, and replayed in windows of five."""

    def __init__(self) -> None:
        self.book = Book(MemoryStore(), "s", clock=lambda: 1_000_000)
        self.attempts: list[tuple[int, int, RangeSet]] = []
        self.replays = 0
        open_lane(self.book, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 0}))

    @property
    def ordinal(self) -> int:
        """The highest that was drawn."""
        entry = self.book.register()
        assert entry is not None
        return entry[1].ordinal

    def take(self, lane: str = LANE) -> Taken:
        pending = protocol.pin(self.book, Sweeps(), lane, plan if lane == LANE else self.plan_replay)
        assert pending is not None
        taken = protocol.take(self.book, lane, pending.window.seq, RUN)
        self.attempts.append((taken.attempt.generation, taken.attempt.ordinal, self.book.covers(pending.window)))
        return taken

    def commit(self, lane: str = LANE) -> None:
        protocol.commit(self.book, self.take(lane), NoWork().verify())
        protocol.settle(self.book, Sweeps(), lane)

    def abandon(self, lane: str = LANE) -> None:
        self.take(lane)
        protocol.abandon(self.book, lane, "a test", take_over=True)

    def replay(self, how: str) -> None:
        """Replay the first twenty offsets in four windows, the second of them taken twice or given up."""
        self.replays += 1
        lane = f"replay-{self.replays}"
        selection = self.book.store_selection(RangeSet([OffsetRange(AT, 0, 20)]))
        open_lane(self.book, lane, LaneKind.REPLAY, run="run", start=positions({AT: 0}), selection=selection)
        for number in range(4):
            if number == 1 and how == "take":
                self.take(lane)
            if number == 1 and how == "abandon":
                self.abandon(lane)
            self.commit(lane)
        close_lane(self.book, lane)

    def plan_replay(self, head: Head) -> Window:
        at = head.offsets()[AT]
        one = WindowRange(topic="logs", incarnation=1, partition=0, start=at, until=at + 5, log_start=0, log_end=99)
        entry = self.book.register()
        assert entry is not None
        return Window(
            seq=head.seq + 1,
            ranges=(one,),
            topic_ids={"logs": "i"},
            isolation="read_committed",
            pinned_at=1,
            run="run 1",
            selection=entry[1].lanes[head.lane].selection,
        )


STEPS = ["take", "commit", "abandon", "replay", "replay with take", "replay with abandon"]


@pytest.mark.slow
@given(st.lists(st.sampled_from(STEPS), max_size=8))
@settings(max_examples=60, deadline=None)
def test_two_attempts_at_an_offset_never_share_an_ordinal(steps: list[str]) -> None:
    lanes = Lanes()
    lanes.commit()
    lanes.commit()
    for step in steps:
        if step.startswith("replay"):
            lanes.replay(step.rpartition(" ")[2])
        else:
            getattr(lanes, step)()
    for (generation, ordinal, covers), (later, higher, also) in combinations(lanes.attempts, 2):
        assert generation < later
        if covers & also:
            assert ordinal < higher


def test_windows_that_nobody_has_written_before_raise_nothing() -> None:
    lanes = Lanes()
    for _ in range(5):
        lanes.commit()
    assert {ordinal for _, ordinal, _ in lanes.attempts} == {0}
    # A replay raises it once, however many windows it has.
    lanes.replay("")
    assert {ordinal for _, ordinal, _ in lanes.attempts} == {0, 1}


class Killed(BaseException):
    """The process was killed here."""


class Fails(NoWork):
    """Work that fails, or is killed, before or after it has written rows with its ordinal."""

    def __init__(self, *, wrote: bool, problem: BaseException | None = None) -> None:
        self.before_writing: Callable[[], int] = lambda: 0
        self.ordinals: tuple[int, ...] = ()
        self._wrote = wrote
        self._problem = problem or ProcessingFailed("a server is away")

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        if self._wrote:
            # And a second table of newest values.
            self.ordinals = (self.before_writing(), self.before_writing())

    def verify(self) -> Receipt:
        raise self._problem


class Fine(Fails):
    def verify(self) -> Receipt:
        return NoWork().verify()


def processed(lanes: Lanes, work: Work, lane: str = LANE) -> Record:
    pending = protocol.pin(lanes.book, Sweeps(), lane, plan if lane == LANE else lanes.plan_replay)
    assert pending is not None
    return protocol.process(lanes.book, Sweeps(), work, hold, lane, pending.window.seq, RUN)


def test_windows_that_take_two_attempts_each_use_up_no_ordinals() -> None:
    """Ordinals need to differ at the same offsets, and each window reads its own."""
    lanes = Lanes()
    for _ in range(5):
        lanes.take()
        lanes.commit()
    assert [ordinal for _, ordinal, _ in lanes.attempts] == [0, 1] * 5
    assert lanes.book.register()[1].ordinal == 1  # type: ignore[index]


def test_an_attempt_that_has_not_written_uses_up_no_ordinal() -> None:
    """A server that is away for days, with three tries a minute, would use up all of them."""
    lanes = Lanes()
    lanes.commit()
    for wrote, expected in ((False, 0), (True, 1), (False, 1), (True, 2)):
        for _ in range(3 if not wrote else 1):
            with pytest.raises(ProcessingFailed):
                processed(lanes, Fails(wrote=wrote))
        assert processed_next(lanes) == expected
    # Nor does one of a replay, whose lane has one ordinal of its own.
    selection = lanes.book.store_selection(RangeSet([OffsetRange(AT, 0, 10)]))
    open_lane(lanes.book, "replay-1", LaneKind.REPLAY, run="run", start=positions({AT: 0}), selection=selection)
    for _ in range(3):
        with pytest.raises(ProcessingFailed):
            processed(lanes, Fails(wrote=False), "replay-1")
    assert processed(lanes, NoWork(), "replay-1").attempt.ordinal == 2
    assert processed(lanes, NoWork(), "replay-1").attempt.ordinal == 2


def test_an_attempt_that_was_killed_before_it_wrote_uses_up_no_ordinal() -> None:
    """A crash before the first row, by lack of memory for example, at each of three tries a minute."""
    lanes = Lanes()
    lanes.commit()
    for wrote, expected in ((False, 0), (True, 1), (False, 1), (True, 2)):
        for _ in range(3 if not wrote else 1):
            with pytest.raises(Killed):
                processed(lanes, Fails(wrote=wrote, problem=Killed()))
        assert processed_next(lanes) == expected
    assert processed(lanes, Fine(wrote=True)).attempt.ordinal == 2


def test_an_attempt_that_was_believed_dead_writes_nothing_with_an_ordinal_that_another_has() -> None:
    lanes = Lanes()
    pending = protocol.pin(lanes.book, Sweeps(), LANE, plan)
    assert pending is not None
    asleep, awake = (protocol.take(lanes.book, LANE, 1, RUN, writes=False) for _ in range(2))
    assert asleep.attempt.ordinal == awake.attempt.ordinal
    awake = protocol.note_writing(lanes.book, awake)
    assert protocol.note_writing(lanes.book, awake) is awake
    with pytest.raises(Fenced, match="results do not count"):
        protocol.note_writing(lanes.book, asleep)
    assert protocol.commit(lanes.book, awake, NoWork().verify()).attempt == awake.attempt


def test_lanes_and_attempts_that_write_nothing_use_up_no_ordinal() -> None:
    """There are 16,384 of them. Replays into other sinks, and tries while a server is away, come more often."""
    lanes = Lanes()
    lanes.commit()
    for number in range(40):
        _open_replay(lanes, f"idle-{number}")
        for _ in range(5):
            with pytest.raises(Killed):
                processed(lanes, Fails(wrote=False, problem=Killed()), f"idle-{number}")
        assert processed(lanes, Fine(wrote=False), f"idle-{number}").attempt.ordinal == 0
        processed(lanes, Fine(wrote=False), f"idle-{number}")
        close_lane(lanes.book, f"idle-{number}")
    pinned = protocol.pin(
        lanes.book, Sweeps(), LANE, lambda head: structs.replace(plan(head), guarantee=Guarantee.NONE)
    )
    assert pinned is not None
    for _ in range(1000):
        protocol.take(lanes.book, LANE, 2, RUN, writes=False)
    assert lanes.ordinal == 0
    # The first that writes draws one, and a lane has it for all of its windows.
    _open_replay(lanes, "writes")
    for expected in ((1, 1), (1, 1)):
        work = Fine(wrote=True)
        assert processed(lanes, work, "writes").attempt.ordinal == expected[0]
        assert work.ordinals == expected
    assert lanes.ordinal == 1


def test_an_attempt_that_commits_first_has_an_ordinal_of_its_own() -> None:
    """It writes when no head can note it any more (`at_most_once`)."""
    lanes = Lanes()
    lanes.commit()
    for number in (1, 2):
        _open_replay(lanes, f"replay-{number}")
        work = Fine(wrote=True)
        pending = protocol.pin(
            lanes.book,
            Sweeps(),
            f"replay-{number}",
            lambda head: structs.replace(lanes.plan_replay(head), guarantee=Guarantee.AT_MOST_ONCE),
        )
        assert pending is not None
        record = protocol.process(lanes.book, Sweeps(), work, hold, f"replay-{number}", 1, RUN)
        assert (record.attempt.ordinal, work.ordinals) == (number, (number, number))
        processed(lanes, Fine(wrote=False), f"replay-{number}")
        close_lane(lanes.book, f"replay-{number}")


def _open_replay(lanes: Lanes, lane: str) -> None:
    selection = lanes.book.store_selection(RangeSet([OffsetRange(AT, 0, 10)]))
    open_lane(lanes.book, lane, LaneKind.REPLAY, run="run", start=positions({AT: 0}), selection=selection)


def test_erasures_that_read_nothing_use_up_no_ordinals() -> None:
    """They write no row. A stream may have some thousands of lanes that write, and any number of erasures."""
    lanes = Lanes()
    lanes.commit()
    ref = lanes.book.store_selection(RangeSet([OffsetRange(AT, 0, 5)]))
    open_lane(lanes.book, "erase-1", LaneKind.ERASE, run="run", start=positions({AT: 0}), selection=ref)

    def erasing(head: Head) -> Window:
        return structs.replace(lanes.plan_replay(head), erases=Erasure(selection=ref))

    pending = protocol.pin(lanes.book, Sweeps(), "erase-1", erasing)
    assert pending is not None
    protocol.process(lanes.book, Sweeps(), NoWork(), hold, "erase-1", pending.window.seq, RUN)
    assert lanes.book.register()[1].ordinal == 0  # type: ignore[index]


def processed_next(lanes: Lanes) -> int:
    """The ordinal that the next attempt at the pending window has. It is given back."""
    found = lanes.book.head(LANE)
    assert found is not None
    return ordinal_of(found.head, lanes.book.register()[1])  # type: ignore[index]


def test_the_first_window_with_positions_has_a_higher_ordinal_than_those_without() -> None:
    """They have read the same offsets."""
    lanes = Lanes()
    book = lanes.book

    def without(head: Head) -> Window:
        return structs.replace(plan(head), guarantee=Guarantee.NONE)

    ordinals = []
    for planned in (without, without, plan, plan):
        pending = protocol.pin(book, Sweeps(), LANE, planned)
        assert pending is not None
        ordinals.append(protocol.process(book, Sweeps(), NoWork(), hold, LANE, pending.window.seq, RUN).attempt.ordinal)
    first, second, third, fourth = ordinals
    assert first < second < third <= fourth
