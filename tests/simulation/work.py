"""Steps 3 to 5 without Spark: where a row goes and what is verified is the product's, the loop over messages is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.actors import HALF_WRITTEN, current, reached, written
from tests.simulation.kafka import Message, Place
from tests.simulation.others import FILES, WRITTEN, Writer, prepare
from tidemark.commit.fence import HeadFence, beat, fence_of
from tidemark.commit.protocol import Fence, HeldWindow, Listener, Step
from tidemark.errors import TidemarkError
from tidemark.ledger.records import Attempt, Guarantee, Receipt, SinkReceipt, Window, reads_again, replays
from tidemark.ledger.register import note_places
from tidemark.offsets.hashing import coordinate_hash
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Acknowledged, Acknowledgements, Count, PartitionTally, check_read, verify
from tidemark.planning.splitting import parts
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows.changes_since_pin import check_since_pin
from tidemark.sinks.dead_letters import FIELDS, redrives
from tidemark.sinks.hbase.rows import DATA_PREFIX, MARK, PartitionKeys
from tidemark.sinks.mounts import FolderMarks
from tidemark.sinks.reading import pieces, rows_of_pieces
from tidemark.sinks.stored_rows import Mark

if TYPE_CHECKING:
    from tests.simulation.world import World

# Row, column, value, and the messages that it is made of.
_Cell = tuple[bytes, bytes, bytes, Iterable[tuple[TopicPartition, int]]]
# Cells of one write, at least: few, so that attempts die between two of them. HBase writes a row whole.
_AT_ONCE = 4
HBASE = "hbase_default"
ROWS, SUMS, LETTERS = "orders", "sums", "orders_dead"


class ReasonShown:
    step = "starting"

    def __call__(self) -> tuple[str, dict[str, int]]:
        return self.step, {}


class Ready:
    """Makes the work on a lane's windows, as the job's own does with Spark."""

    def __init__(self, world: World, opened: OpenStream, lane: str) -> None:
        self.world, self.opened, self.lane = world, opened, lane
        self._mounts: FolderMarks | None = None

    def work(self, seq: int, window: Window | None, *, longer: bool) -> Work:
        if self._mounts is None:
            writes = [one for one in self.opened.stream.sinks if window is None or window.counts_for(one.name)]
            mounts = FolderMarks(self.opened.ledger, self.opened.connections, writes)
            with mounts.preparing():
                for one in writes:
                    if one.name in WRITTEN:
                        prepare(self.opened, one)
            self._mounts = mounts
        return Work(self.world, self.opened, self.lane, self._mounts)

    def hold(self, work: Work, taken: HeldWindow) -> AbstractContextManager[Fence]:
        return _held(self.world, self.opened, work, taken)

    def translate(self, problem: Exception) -> TidemarkError | None:
        return problem if isinstance(problem, TidemarkError) else None


@contextmanager
def _held(world: World, opened: OpenStream, work: Work, taken: HeldWindow) -> Iterator[HeadFence]:
    """As `fence.holding`, without its thread: a heartbeat at the beginning, and one after each sink."""
    beat(opened.ledger, work.progress, taken)
    work.beat = lambda: beat(opened.ledger, work.progress, taken)
    yield fence_of(opened.ledger, taken)


class Work:
    """The work on one window."""

    def __init__(self, world: World, opened: OpenStream, lane: str, mounts: FolderMarks) -> None:
        self.world, self.opened, self.lane, self._mounts = world, opened, lane, mounts
        self.progress = ReasonShown()
        self.beat = lambda: None
        self._others: dict[str, Writer] = {}
        self._acknowledged: dict[str, Acknowledgements] = {}

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self.window, self._covers, self.attempt = window, covers, attempt
        self.fence = fence
        others = (one for one in self.opened.stream.sinks if one.name in WRITTEN and window.counts_for(one.name))
        self._others = {one.name: Writer(self, one) for one in others}
        # As SparkWork does, before its first write.
        copies = self.opened.stream.dead_letters.copies()
        letters = [self._receipt(LETTERS), *([copies] if copies else [])] if window.counts_for(None) else []
        note_places(self.opened.ledger, [*map(self._receipt, self._sinks()), *letters])
        found = self.world.kafka.read(covers, window.isolation)
        _read_once(covers, found)
        self._messages = as_parsed(found)
        self.world.was_read(attempt.generation, self._messages)
        self.good = {place: one for place, one in self._messages.items() if not one.bad}
        self._bad = {place: one for place, one in self._messages.items() if one.bad}
        self._tallies = tuple(tally(self._messages, one) for one in covers.partitions)
        first = next((one for one in self._others.values() if one.settings.type in FILES), None)
        first = first if self.world.setting.one_pass and window.guarantee != Guarantee.AT_MAX_ONCE else None
        try:
            if first is not None:
                self._acknowledged[first.name] = first.store()
            check_read(self._tallies, covers)
        except TidemarkError:
            if first is not None:
                first.discard()
            raise

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        if self._bad and self.window.counts_for(None):
            self._store_dead_letters()
        on_step(Step.DEAD_LETTERS_STORED)
        for sink in self._sinks():
            fence.check()
            if sink == ROWS:
                self._store_rows()
            elif sink not in self._acknowledged:
                self._acknowledged[sink] = self._others[sink].store()
            self.beat()
            on_step(Step.SINK_STORED)

    def _sinks(self) -> list[str]:
        named = {"hbase": ROWS}
        found = [one.name for one in self.opened.stream.sinks if self.window.counts_for(one.name)]
        return [named.get(one, one) for one in found]

    def _mark(self) -> bytes:
        return Mark(self.attempt.generation, 0, self.lane, self.window.seq).encode()

    def _write(self, table: str, cells: Iterable[tuple[bytes, bytes, bytes, Iterable[Place]]]) -> None:
        """Write cells, each with the messages that it is made of."""
        generation = self.attempt.generation
        for piece in _pieces(cells):

            def apply(piece: list[_Cell] = piece) -> None:
                self.world.hbase.put(table, [one[:3] for one in piece], generation)
                for row, column, _, places in piece:
                    self.world.made(frozenset(places), table, row, column, generation)
                    if (
                        table == ROWS
                        and column == MARK
                        and self.world.hbase.versions(table, row, column).get(generation)
                    ):
                        self.world.row_stored(next(iter(places)), generation)

            self._repeated(apply)
            reached(HALF_WRITTEN)

    def _repeated(self, apply: Callable[[], object]) -> None:
        self.world.gateway.repeated("write", lambda client: written(apply))

    def _store_rows(self) -> None:
        self.world.writes_rows(self.good)
        mark = self._mark()
        cells = []
        for place, one in self.good.items():
            row = PartitionKeys(place[0]).key(place[1], 0)
            values = (
                (MARK, mark),
                (DATA_PREFIX + b"id", b"%d" % one.key),
                (DATA_PREFIX + b"number", b"%d" % one.number),
            )
            cells += [(row, column, value, [place]) for column, value in values]
        self._write(ROWS, cells)

    def _redriven(self) -> dict[Place, int]:
        """As `dead_letters_so_far`: how often each dead letter that counts now was redriven, with this time."""
        if not reads_again(self.lane):
            return {}
        more = 1 if replays(self.lane) else 0
        table = self.opened.dead_letter_table().only(("redrives",))
        found = rows_of_pieces(self.opened.ledger, table, self.opened.ledger.view(), pieces(self._covers))
        return {(row.place.partition, row.place.offset): redrives(row) + more for row in found}

    def _store_dead_letters(self) -> None:
        mark, redriven = self._mark(), self._redriven()
        cells = []
        for place, one in self._bad.items():
            row = PartitionKeys(place[0]).key(place[1], 0)
            values = dict.fromkeys(FIELDS, b"")
            values |= {"reason": b"bad", "key": b"%d" % one.key, "value": b"%d" % one.number}
            values |= {"redrives": b"%d" % redriven.get(place, 0)}
            values["headers"] = b"[]"
            said = [(MARK, mark), *((DATA_PREFIX + name.encode(), value) for name, value in values.items())]
            cells += [(row, column, value, [place]) for column, value in said]
        self._write(LETTERS, cells)

    def verify(self) -> Receipt:
        good = self.counted
        bad = {at: _acknowledged(self._bad, at) for at in {place[0] for place in self._bad}}
        keeps = self.window.counts_for(None)
        verify(self._tallies, {**dict.fromkeys(self._sinks(), good), **self._acknowledged}, bad if keeps else None)
        check_since_pin(self.opened, self.lane, self.window)
        places = tuple(self._receipt(one) for one in self._sinks())
        self._mounts.check(places, [one.name for one in places] if self.good else [])
        return Receipt(
            tallies=self._tallies,
            sinks=places,
            dead_letters=self._receipt(LETTERS) if keeps else None,
            started_at=1,
            finished_at=2,
        )

    @property
    def counted(self) -> Acknowledgements:
        """What each sink has to acknowledge."""
        return {at: _acknowledged(self.good, at) for at in {place[0] for place in self.good}}

    def _receipt(self, sink: str) -> SinkReceipt:
        if sink in self._others:
            return self._others[sink].receipt()
        if sink == LETTERS:
            return SinkReceipt(name="dead_letters", type="hbase", place=_table(LETTERS))
        return SinkReceipt(name="hbase", type="hbase", place=_table(ROWS))

    def close(self) -> None: ...

    # Set by `read`, which the protocol calls first.
    window: Window
    _covers: RangeSet
    attempt: Attempt
    fence: Fence


def as_parsed(messages: Mapping[Place, Message]) -> dict[Place, Message]:
    """What the scheme of the current actor's stream file makes of some messages."""
    actor = current()
    mended = actor is not None and actor.mended
    return {place: replace(one, bad=False) if mended else one for place, one in messages.items()}


def tally(messages: Mapping[Place, Message], at: TopicPartition) -> PartitionTally:
    """What was read of one partition."""
    offsets = [offset for one, offset in messages if one == at]
    good = _count((place for place, one in messages.items() if not one.bad), at)
    return PartitionTally(
        topic=at.topic,
        incarnation=at.incarnation,
        partition=at.partition,
        read=_count(messages, at),
        stored=good,
        invalid=_count((place for place, one in messages.items() if one.bad), at),
        rows=good,
        first=min(offsets, default=None),
        last=max(offsets, default=None),
    )


def _pieces(cells: Iterable[_Cell]) -> Iterator[list[_Cell]]:
    piece: list[_Cell] = []
    for one in cells:
        if len(piece) >= _AT_ONCE and piece[-1][0] != one[0]:
            yield piece
            piece = []
        piece.append(one)
    if piece:
        yield piece


def _read_once(wanted: RangeSet, found: Iterable[Place]) -> None:
    """As `rows/reading.py` reads: the same reads, each of which gives what is wanted of its ranges."""
    from tests.simulation.oracle import check

    given = [part & one.offsets for one, part in parts(wanted)]
    for at, offset in found:
        times = sum((at, offset) in part for part in given)
        check(times == 1, f"{at}@{offset} is read {times} times by one window")


def heard(step: Step) -> None:
    """The listener of every job: an actor may die or sleep after a step."""
    reached(step.value)


def _table(name: str) -> dict[str, str]:
    return {"connection": HBASE, "table": name}


def _count(messages: Iterable[Place], at: TopicPartition) -> Count:
    ack, number = 0, 0
    for one, offset in messages:
        if one == at:
            ack, number = ack ^ coordinate_hash(at, offset), number + 1
    return Count.of(number, ack)


def _acknowledged(messages: Iterable[Place], at: TopicPartition) -> Acknowledged:
    count = _count(messages, at)
    return Acknowledged(count, count, "0" * 16)
