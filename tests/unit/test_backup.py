"""A ledger in a file: whatever goes on meanwhile, the backup is one state; and a ledger that has moved is not used."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model.sequences import ON_BACKUPS, keeps_its_promises
from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, LANE, OTHER, RUN, NoWork, World, hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, at
from tidemark.commit import protocol
from tidemark.errors import Fenced, TooLarge, WrongUse
from tidemark.ledger import selections
from tidemark.ledger.codec import digest
from tidemark.ledger.forgetting import origin
from tidemark.ledger.ledger import REGISTER, head_key, record_key, settled_key
from tidemark.ledger.records import LaneKind, positions
from tidemark.ledger.recovery.backup import back_up, restore, retire
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import close_lane, open_lane
from tidemark.ledger.stores.contract import sortable
from tidemark.offsets.ranges import OffsetRange, RangeSet

KINDS = (MemoryStore, TransactionalStore)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seeds"), [(MemoryStore, range(80)), (TransactionalStore, range(1_000, 1_080))])
def test_a_backup_is_one_state_whatever_goes_on_meanwhile(kind: type[MemoryStore], seeds: range) -> None:
    keeps_its_promises(ON_BACKUPS, kind, seeds, least=2)


class Interrupted(MemoryStore):
    """Calls `meanwhile` just before the closed lanes are read."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bytes]]:
        if prefix == ("closed",):
            self.meanwhile()
        return super().scan(prefix)


def opened_and_closed(world: World, lane: str) -> None:
    again = RangeSet([OffsetRange(AT, 0, 10)])
    chosen, start = world.ledger.store_selection(again), positions({AT: 0})
    open_lane(world.ledger, lane, LaneKind.REPLAY, run=lane, start=start, selection=chosen)
    close_lane(world.ledger, lane)


def test_a_lane_that_is_opened_and_closed_meanwhile_is_left_out_whole(tmp_path: Path) -> None:
    """Its entry is on a page that the register does not name yet, and will name later."""
    store = Interrupted()
    world = World(store)
    world.one_window()
    store.meanwhile = lambda: opened_and_closed(world, "replay-1")
    assert back_up(world.ledger, tmp_path / "backup").lanes == {LANE: 1}
    there = moved(world, tmp_path / "backup", MemoryStore())
    opened_and_closed(there, "replay-2")
    assert verify(there.ledger) == []


class Overtaken(MemoryStore):
    """Calls `meanwhile` just before the heads are read for the first time."""

    meanwhile: tuple[Callable[[], object], ...] = ()

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bytes]]:
        if prefix == ("head",) and self.meanwhile:
            (meanwhile,), self.meanwhile = self.meanwhile, ()
            meanwhile()
        return super().scan(prefix)


@pytest.mark.covers("N13")
def test_a_topic_that_is_recreated_beside_a_backup_is_in_all_of_it_or_in_nothing(tmp_path: Path) -> None:
    """The run that accepts the new topic changes the register, and then the head."""
    made = StreamInMemory(
        tmp_path, text=TEXT.replace("source:\n", "source:\n  on_recreated: accept\n"), store=Overtaken()
    )
    made.ends((0, 10))
    made.ingest("run 1")

    def recreated() -> None:
        made.kafka.ids["orders"] = "another"
        made.ends((0, 4))
        made.ingest("run 2")

    made.store.meanwhile = (recreated,)  # type: ignore[attr-defined]
    back_up(made.opened.ledger, tmp_path / "backup")
    made.store.values.clear()
    restore(made.opened.ledger, tmp_path / "backup")
    assert verify(made.opened.ledger) == []
    for run, end in (("run 3", 6), ("run 4", 8)):
        made.ends((0, end))
        assert made.ingest(run) is not None
    assert made.opened.ledger.view().authority.covered() == RangeSet(
        [OffsetRange(at(0), 0, 10), OffsetRange(at(0, 2), 0, 8)]
    )


def test_a_window_that_is_taken_beside_a_backup_can_be_taken_again(tmp_path: Path) -> None:
    """By a clock that runs ahead of the one that restores: the head knows a newer generation than the register."""
    world = World(Overtaken())
    world.open()
    seq = world.pin()

    def taken() -> None:
        world.now += 60_000
        protocol.take(world.ledger, LANE, seq, RUN)
        world.now -= 60_000

    world.store.meanwhile = (taken,)  # type: ignore[attr-defined]
    back_up(world.ledger, tmp_path / "backup")
    there = moved(world, tmp_path / "backup", MemoryStore())
    assert there.process(seq, OTHER).attempt.generation > world.head.pending.attempt.generation  # type: ignore[union-attr]


class OffsetsForTimes(MemoryStore):
    """Scans as a server does: what is written meanwhile is found if the scan has not passed its place."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bytes]]:
        for key, value in super().scan(prefix):
            yield key, value
            if prefix == ("selection",):
                self.meanwhile()
                yield from ((later, found) for later, found in super().scan(prefix) if later > key)
                return


@pytest.mark.parametrize("number", range(8))
def test_a_selection_in_pieces_that_is_stored_meanwhile_is_whole(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selections, "PIECE_BYTES", 120)
    store = OffsetsForTimes()
    world = World(store)
    world.one_window()
    for first in range(3):
        world.ledger.store_selection(RangeSet([OffsetRange(AT, first, first + 1)]))
    large = RangeSet(OffsetRange(AT, number + 10 * place, number + 10 * place + 1) for place in range(9))

    def stored() -> None:
        world.ledger.store_selection(large)

    store.meanwhile = stored
    back_up(world.ledger, tmp_path / "backup")
    there = moved(world, tmp_path / "backup", MemoryStore())
    assert there.ledger.find_selection(there.ledger.store_selection(large).digest) == large


class Killed(BaseException):
    pass


def worked(store: MemoryStore) -> World:
    """Three windows, and a fourth one that an attempt holds."""
    world = World(store)
    world.open()
    for _ in range(3):
        world.process(world.pin())
    protocol.take(world.ledger, LANE, world.pin(), RUN)
    return world


def moved(world: World, path: Path, store: MemoryStore) -> World:
    """The same stream in another store, with the same clock."""
    there = World(store)
    there.now = world.now
    restore(there.ledger, path)
    return there


@pytest.mark.covers("N13")
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_moves_with_all_that_it_knows(kind: type[MemoryStore], to: type[MemoryStore], tmp_path: Path) -> None:
    world = worked(kind())
    retire(world.ledger, "moved to the other cluster")
    with pytest.raises(WrongUse, match="was retired"):
        world.pin()
    assert back_up(world.ledger, tmp_path / "backup").lanes == {LANE: 3}
    there = moved(world, tmp_path / "backup", to())
    assert verify(there.ledger) == []
    assert there.ledger.committed() == world.ledger.committed()
    assert there.head.offsets() == world.head.offsets()
    # The window that was pinned is the next one, and the windows go on.
    assert there.process(there.head.seq + 1, OTHER).seq == 4
    assert there.process(there.pin()).seq == 5
    assert verify(there.ledger) == []
    generations = [one.generation for one in there.ledger.committed()]
    assert sorted(set(generations)) == generations


def older(world: World) -> None:
    """The last record of the ingest as a version has written it that did not know some of its fields yet."""
    key, head_at = record_key(LANE, world.head.seq), head_key(LANE)
    head = json.loads(world.store.values[head_at])
    for name in ("sinks", "erases"):
        del head["last"]["window"][name]
    world.store.values[key] = json.dumps(head["last"], separators=(",", ":")).encode()
    if head["pending"] is not None:
        head["pending"]["previous"] = digest(world.store.values[key])
    world.store.values[head_at] = json.dumps(head, separators=(",", ":")).encode()


@pytest.mark.covers("N13")
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pinned", [True, False])
def test_a_record_that_an_older_version_has_written_is_restored_byte_by_byte(
    kind: type[MemoryStore], to: type[MemoryStore], pinned: bool, tmp_path: Path
) -> None:
    """The window after it names its digest."""
    world = worked(kind())
    if not pinned:
        protocol.abandon(world.ledger, LANE, "a test", take_over=True)
    older(world)
    assert verify(world.ledger) == []
    back_up(world.ledger, tmp_path / "backup")
    there = moved(world, tmp_path / "backup", to())
    if pinned:
        assert there.store.values[record_key(LANE, 3)] == world.store.values[record_key(LANE, 3)]
    for _ in range(2):
        there.process(there.pin())
        assert verify(there.ledger) == []


@pytest.mark.parametrize("to", KINDS)
def test_a_restoration_that_is_cut_off_anywhere_is_finished_by_repeating_it(
    to: type[MemoryStore], tmp_path: Path
) -> None:
    world = worked(MemoryStore())
    back_up(world.ledger, tmp_path / "backup")
    reached = 0
    while True:
        store = to()
        left = [reached]

        def kill(key: tuple[str, ...], left: list[int] = left) -> None:
            if left[0] == 0:
                raise Killed
            left[0] -= 1

        store.before_swap = kill
        there = World(store)
        try:
            restore(there.ledger, tmp_path / "backup")
        except Killed:
            assert REGISTER not in store.values
            if store.values:
                # Nothing works on half a ledger.
                with pytest.raises(Exception, match=r"Restore the ledger from a backup"):
                    there.open()
        store.before_swap = lambda key: None
        if REGISTER not in store.values:
            restore(there.ledger, tmp_path / "backup")
        assert verify(there.ledger) == []
        assert there.ledger.committed() == world.ledger.committed()
        reached += 1
        if left[0] > 0:
            break
    # Three records or two, the head, and the register.
    assert reached >= 5


def test_who_held_a_window_cannot_commit_it_in_a_retired_ledger(tmp_path: Path) -> None:
    world = World()
    world.open()
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    with hold(taken) as fence:
        work = NoWork()
        work.read(taken.pending.window, world.ledger.covers(taken.pending.window), taken.attempt, fence)
        retire(world.ledger, "moved")
        back_up(world.ledger, tmp_path / "backup")
        with pytest.raises(Fenced):
            protocol.commit(world.ledger, taken, work.verify())
    assert world.head.seq == 0
    there = moved(world, tmp_path / "backup", MemoryStore())
    # Nor in the new one, should the old place be used again.
    with pytest.raises(Fenced):
        protocol.commit(there.ledger, taken, work.verify())
    assert there.process(there.pin()).seq == 1


def test_who_has_drawn_a_generation_before_cannot_take_a_window_afterwards() -> None:
    world = World()
    world.open()
    seq = world.pin()

    def between(key: tuple[str, ...]) -> None:
        if key == head_key(LANE):
            world.store.before_swap = lambda key: None
            retire(world.ledger, "moved to the other cluster")

    world.store.before_swap = between
    with pytest.raises(
        WrongUse, match=r"was retired, and is used no more: moved to the other cluster\. Name the ledger"
    ):
        protocol.take(world.ledger, LANE, seq, RUN)
    assert world.head.pending is not None
    assert world.head.pending.attempt is None


def test_a_restored_ledger_counts_on_from_what_may_have_been_lost(tmp_path: Path) -> None:
    world = worked(MemoryStore())
    back_up(world.ledger, tmp_path / "backup")
    before = world.ledger.register()
    world.now += 60_000
    lost = world.process(world.head.seq + 1)
    there = moved(world, tmp_path / "backup", MemoryStore())
    after = there.ledger.register()
    assert before is not None
    assert after is not None
    assert after[1].generation > lost.attempt.generation
    assert there.process(there.head.seq + 1).attempt.generation > lost.attempt.generation
    # A final backup may be restored once more, when the ledger that was made of it is lost.
    retire(there.ledger, "moved")
    back_up(there.ledger, tmp_path / "final")
    final = moved(there, tmp_path / "final", MemoryStore()).ledger.register()
    assert final is not None
    assert final[1].generation > after[1].generation
    assert final[1].retired is None
    assert [origin(found[1].ledger) for found in (after, final)] == [before[1].ledger] * 2


def test_a_mark_that_another_ledger_has_left_settles_nothing(tmp_path: Path) -> None:
    """Of windows that the restored ledger has not committed yet."""
    world = worked(TransactionalStore())
    back_up(world.ledger, tmp_path / "backup")
    place = TransactionalStore()
    place.values[settled_key(LANE)] = sortable(99).encode()
    there = moved(world, tmp_path / "backup", place)
    protocol.commit(there.ledger, protocol.take(there.ledger, LANE, there.pin(), RUN), NoWork().verify())
    last = there.head.last
    assert last is not None
    assert not there.ledger.is_settled(last)


def changed(edit: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        path.write_bytes(gzip.compress(b"".join(edit(lines))))

    return write


def no_file(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


BROKEN = {
    "no file": (no_file, "line 1: this is no whole backup of a ledger"),
    "not packed": (lambda path: path.write_text("{}"), "line 1: this is no whole backup"),
    "cut": (cut, "this is no whole backup"),
    "without its last line": (changed(lambda lines: lines[:-1]), "it ends early, or was changed"),
    "without a value": (changed(lambda lines: [*lines[:3], *lines[4:]]), "it ends early, or was changed"),
    "with a line after its end": (changed(lambda lines: [*lines, b"[]\n"]), "line 8: expected nothing after"),
    "no JSON": (changed(lambda lines: [lines[0], b"[what\n", *lines[1:]]), "line 2: this is no whole backup"),
    "of another stream": (
        changed(lambda lines: [lines[0].replace(b'"s"', b'"other"'), *lines[1:]]),
        "is a backup of the stream other, and not of s",
    ),
    "newer": (
        changed(lambda lines: [lines[0].replace(b'"format":1', b'"format":2'), *lines[1:]]),
        "has format 2, and this version knows formats up to 1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_whole_backup_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    spoil, said = BROKEN[name]
    path = tmp_path / "backup"
    back_up(worked(MemoryStore()).ledger, path)
    spoil(path)
    there = World()
    with pytest.raises(WrongUse, match=said):
        restore(there.ledger, path)
    assert there.store.values == {}


def test_nothing_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    world = worked(MemoryStore())
    with pytest.raises(WrongUse, match="s has no ledger yet"):
        back_up(World().ledger, path)
    assert list(tmp_path.iterdir()) == []
    back_up(world.ledger, path)
    before = path.read_bytes()
    with pytest.raises(WrongUse, match="backup exists already; name a new file"):
        back_up(world.ledger, path)
    assert path.read_bytes() == before
    values = dict(world.store.values)
    with pytest.raises(WrongUse, match="s has a ledger here already, and a restoration replaces nothing"):
        restore(world.ledger, path)
    assert world.store.values == values
    there = World()
    there.store.values[head_key(LANE)] = values[head_key(LANE)].replace(b'"seq":3', b'"seq":2')
    with pytest.raises(Exception, match="head/ingest"):
        restore(there.ledger, path)
    assert REGISTER not in there.store.values


def test_a_value_that_is_too_large_for_the_new_place_is_named_before_anything_is_written(tmp_path: Path) -> None:
    back_up(worked(MemoryStore()).ledger, tmp_path / "backup")
    there = World(MemoryStore(max_value_bytes=300))
    with pytest.raises(TooLarge, match=r"of .*backup takes \d+ bytes; this ledger holds up to 300"):
        restore(there.ledger, tmp_path / "backup")
    assert there.store.values == {}


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="cannot be written: No such file or directory"):
        back_up(worked(MemoryStore()).ledger, tmp_path / "nowhere" / "backup")
