"""What people see: pages, the status, completeness, audits of the ledger. Each is asked while others commit.

An answer holds if it was true at some moment while it was made. What cannot be said of a moment is compared when nobody
else was at work meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.actors import current
from tests.simulation.invariants import holes_of
from tests.simulation.kafka import Kafka
from tests.simulation.work import Place
from tidemark.audit.levels import Level
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.ledger.covered import history_of, keep_covered, unread_now
from tidemark.ledger.holes import UnreadOffsets
from tidemark.ledger.ledger import LedgerSnapshot, head_key
from tidemark.ledger.records import INGEST, Guarantee
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.planner import unread_part
from tidemark.runs import auditing
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.coverage.bars import BarQuery, coverage_bars
from tidemark.views.coverage.window_index import KnownHoles, WindowIndex
from tidemark.views.event_time.completeness import TimeSpan
from tidemark.views.event_time.progress import progress
from tidemark.views.lane_progress import progress_of
from tidemark.views.overview import overview
from tidemark.views.status import PartitionState

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle

_WIDTH = 40


class Pages:
    """The pages of one stream. What they keep of the history is kept from question to question, as in Airflow's API."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._index, self._holes = WindowIndex(), KnownHoles()

    def ask(self, which: int, a: int) -> Callable[[], object] | None:
        """One of the questions, as an act of the current actor; None where there is nothing to ask."""
        if self._oracle.ledger.head(INGEST) is None:
            return None
        lanes = self._oracle.open_lanes() or ["ingest"]
        questions: list[Callable[[], object]] = [
            self._overview,
            self._coverage,
            lambda: self._complete(a),
            lambda: self._lane(lanes[a % len(lanes)]),
            lambda: self._audit(a, Level.SOURCE if a % 2 else Level.LEDGER),
        ]
        return questions[which % len(questions)]

    def _overview(self) -> None:
        """Positions are those that the ingest has had since, and the lag is of these very numbers."""
        from tests.simulation.oracle import check

        known = len(self._heads()) - 1
        found = overview(opened_now())
        moments = [self._positions(value) for value in self._heads()[max(0, known) :]]
        for one in found.partitions:
            where = f"the overview says that {one.topic}/{one.partition}"
            if one.position is None or one.end is None:
                check(one.lag is None, f"{where} lags {one.lag}, from {one.position} to {one.end}")
                continue
            # Of a topic that was recreated, and is not accepted yet, all is unread.
            begins = {one.position, one.log_start} if one.status == PartitionState.REWOUND else {one.position}
            lags = {max(0, one.end - begin) for begin in begins if begin is not None}
            check(one.lag in lags, f"{where} lags {one.lag}, from {one.position} to {one.end}")
            then = [moment.get((one.topic, one.partition)) for moment in moments]
            check(one.position in then, f"{where} is at {one.position}, and the ingest was at {then}")
        there = {(one.record.lane, one.record.seq) for one in self._oracle.ledger.committed()}
        for row in found.windows:
            if row.state == "committed":
                check(
                    (row.lane, row.seq) in there, f"the overview shows {row.lane}/{row.seq}, which nobody has committed"
                )

    def _heads(self) -> list[bytes]:
        return [value for _, value in self._oracle.world.ledger.network.values.get(head_key(INGEST), ())]

    def _positions(self, value: bytes) -> dict[tuple[str, int], int]:
        """Those of the newest incarnation of each partition."""
        found: dict[tuple[str, int], int] = {}
        for at, offset in sorted(self._oracle.ledger.head_in(INGEST, value).head.offsets().items()):
            found[at.topic, at.partition] = offset
        return found

    def _coverage(self) -> None:
        """Each offset is in a window that has read it; the holes are those of the ledger."""
        from tests.simulation.oracle import check, each, said

        opened = opened_now()
        for kept in (self._index, self._holes):
            kept.refresh(opened.ledger)
        steady = is_undisturbed()
        bars = coverage_bars(opened, self._index, BarQuery(_WIDTH))
        for bar in bars.bars:
            ends = [bar.start, *(block.until for block in bar.blocks)]
            check(sorted(ends) == ends, f"the blocks of {bar.partition} are not in their order: {ends}")
        view = self._oracle.ledger.view()
        if not steady or not is_undisturbed():
            return
        for at in view.authority.covered().partitions:
            shown = {(at, offset): one.generation for one in self._index.segments(at) for offset in range(*one[:2])}
            want = {
                (at, offset): view.authority.of(at, offset)
                for start, until in view.authority.covered().of(at)
                for offset in range(start, until)
            }
            other: set[Place] = {place for place in shown.keys() | want.keys() if shown.get(place) != want.get(place)}
            check(not other, f"the page says that other windows count at {said(other)} than the ledger does")
        known = UnreadOffsets.seen(view)
        starts = {one.at for one in view.register.lanes[INGEST].start} if view.register is not None else set()
        passed = {place for place in each(known.holes) if place[0] in starts}
        check(
            passed == holes_of(self._oracle),
            f"the holes are {known.holes}, and the ingest passed by {said(holes_of(self._oracle))}",
        )
        for kept in (self._index, self._holes):
            said_of = f"{type(kept).__name__} says that {kept.unread()} is not read, and the ledger {known}"
            check(kept.unread() == known, said_of)
        self._covered(view, known)

    def _covered(self, view: LedgerSnapshot, known: UnreadOffsets) -> None:
        """What is kept of the windows of the ingest, and those after it, are all of its windows."""
        from tests.simulation.oracle import check

        ledger = self._oracle.ledger
        history, found = history_of(ledger), unread_now(ledger)
        lanes = history.lanes if history is not None else {}
        check(found == known, f"by what is kept, {found} is not read, and in the ledger {known}")
        for lane, covers in lanes.items():
            mine = RangeSet.union(window.covers for window in view.windows if window.record.lane == lane)
            check(covers == mine, f"by what is kept, {lane} covers {covers}, and in the ledger {mine}")
        for record in (window.record for window in view.windows if window.record.lane == INGEST):
            if ledger.record(INGEST, record.seq) is not None and record.seq % 2 == 0:
                # As after each window of many.
                keep_covered(ledger, record)

    def _complete(self, a: int) -> None:
        """What is said to be complete is: no window will ever read a message of that time, unless it comes late."""
        from tests.simulation.oracle import check, said

        world = self._oracle.world
        now = world.clocks.now
        span = TimeSpan(max(0, now - 30_000 - 7_000 * a), max(1, now - 1_000 * a))
        # Those that anybody could have read before.
        ids, committed = _ids(world.kafka), world.isolation == READ_COMMITTED
        before = {
            (topic, number, offset): one
            for topic, number, log in world.kafka.parts()
            for offset, one in log.slots.items()
            if one is not None and span.start <= one.time < span.until and one.transaction not in log.aborted
            if not committed or offset < log.stable
        }
        found = [one for one in progress(opened_now()).answers(span) if one.complete]
        if _ids(world.kafka) != ids or not self._counts_all():
            return
        covered = self._oracle.ledger.authority().covered()
        register = self._oracle.ledger.register()
        assert register is not None
        for one in found:
            if one.at.incarnation != max(known.incarnation for known in register[1].topics[one.at.topic]):
                continue
            begins = self._begins(one.at)
            unread = {
                (one.at, offset)
                for topic, number, offset in before
                if (topic, number) == (one.at.topic, one.at.partition)
                and offset >= begins
                and (one.at, offset) not in covered
            }
            check(not unread, f"{span} is said to be complete in {one.at}, and no window has read {said(unread)}")

    def _begins(self, at: object) -> int:
        head = self._oracle.ledger.register()
        assert head is not None
        starts = {one.at: one.offset for one in head[1].lanes[INGEST].start}
        return starts.get(at, 0)  # type: ignore[call-overload]

    def _counts_all(self) -> bool:
        """Whether every message that was passed over is one that the stream has had to read, and has read."""
        setting = self._oracle.world.setting
        return setting.guarantee == Guarantee.AT_LEAST_ONCE and setting.out_of_range == "fail"

    def _lane(self, lane: str) -> None:
        """A run's page counts what is left as the ledger does."""
        from tests.simulation.oracle import check

        if lane == INGEST:
            return
        found = progress_of(opened_now(), lane)
        head, register = self._oracle.ledger.head(lane), self._oracle.ledger.register()
        if not is_undisturbed() or head is None or register is None or lane not in register[1].lanes:
            return
        shown = next(one for one in found.lanes if one.lane == lane)
        ref = register[1].lanes[lane].selection
        left = unread_part(head.head, self._oracle.ledger.selection(ref)) if ref is not None else RangeSet()
        check(
            shown.left == left.count(),
            f"the page of {lane} says that {shown.left} offsets are left, not {left.count()}",
        )

    def _audit(self, a: int, level: Level) -> None:
        """An audit of the ledger alarms for damage alone."""
        from tests.simulation.oracle import check

        report = auditing.audit_without_spark(opened_now(), f"audit {a}", level)
        if self._oracle.is_damaged():
            return
        check(not report.ledger_problems, f"an audit says that the ledger is damaged: {report.ledger_problems}")
        wrong = [one for one in report.coverage if one.overlaps]
        check(not wrong, f"an audit says that windows overlap: {wrong}")


def _ids(kafka: Kafka) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in kafka.held.items()}


def opened_now() -> OpenStream:
    """The stream of the actor who looks."""
    actor = current()
    assert actor is not None
    return actor.opened  # type: ignore[no-any-return]


def is_undisturbed() -> bool:
    """Whether the actor has not slept yet: then nobody else was at work since it began."""
    actor = current()
    return actor is not None and not actor.stopped
