"""The ingest: its first window, the next ones up to the end that the run saw, and where it begins.

The DAGs and the command line both call these functions. No function here touches the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.limits import check_pending
from tidemark.ledger.records import INGEST, Guarantee, Head, LaneKind, LaneState, Pending, Position, Window, positions
from tidemark.ledger.register import new_token, open_lane
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.times import milliseconds
from tidemark.planning import planner, starting
from tidemark.planning.inputs import KafkaState, Request
from tidemark.runs.live.conditions import request, sized
from tidemark.runs.live.kafka_now import known_now, known_to_ingest, topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import first_at
from tidemark.runs.windows import pinning
from tidemark.runs.windows.lanes import committed_before, plan_lane
from tidemark.sinks.kinds import kind_of
from tidemark.streams.source import StartOffsets


def plan_ingest(opened: OpenStream, run: str, *, again: bool = False) -> Pending | None:
    """Step 1 for the ingest lane: its pending window, or a new one up to the present ends. None when nothing is new.

    `again`: an earlier try of the run may have committed windows. Then the run goes no further than that try would have.
    """
    before = committed_before(opened, INGEST, run) if again else []
    if before and before[-1].window.run == run:
        return next_window(opened, INGEST, run, before[-1].window.goal)
    if opened.ledger.head(INGEST) is None:
        # From then on, what is there may be of an attempt of this ledger.
        _check_unused(opened)
        start = _first_positions(opened, request(opened, run, topics_now(opened)))
        kept = () if Guarantee(opened.stream.guarantee) == Guarantee.NONE else start
        open_lane(opened.ledger, INGEST, LaneKind.INGEST, run=run, start=kept)
    return _pin_ingest(opened, run)


def import_positions(
    opened: OpenStream, offsets: Mapping[tuple[str, int], int], others: str, run: str, *, write: bool, shift: int = 0
) -> tuple[Position, ...]:
    """Begin a new stream at offsets that another program has stored; `others` is for partitions that it does not know.

    `shift` moves the offsets, within Kafka's logs. Without `write`, the offsets are only checked. Raises WrongUse when the
    stream has positions already, or when no offset is of its topics.
    """
    topics = topics_now(opened)
    if opened.ledger.head(INGEST) is not None:
        raise WrongUse(
            f"{opened.ledger.stream} has positions already, and they never fall back: an import is for a new stream"
        )
    given = {place: offset for place, offset in offsets.items() if place[0] in topics}
    if not given:
        raise WrongUse(f"there is no offset of {', '.join(topics)} to import")
    known = known_now(opened, topics, learn=write)
    if shift:
        given = starting.shifted(known, given, shift)
    start = starting.start_positions(known, topics, others, given)
    if write:
        _check_unused(opened)
        opening = open_lane(opened.ledger, INGEST, LaneKind.INGEST, run=run, start=start, reason="import")
        if opening.head.positions != start:
            raise Conflict(
                f"another program has begun {opened.ledger.stream} at other positions meanwhile; nothing was imported"
            )
    return start


def _check_unused(opened: OpenStream) -> None:
    """Raises LedgerContradiction where the results of a stream that begins are there already."""
    for sink in opened.stream.sinks:
        kind_of(sink.type).make_admin().check_unused(opened, sink)


def preview(opened: OpenStream, run: str = "preview") -> tuple[Window | None, bool]:
    """The window that the next ingest would read, and whether it is pinned already. Writes nothing.

    None when nothing is new. Raises what planning raises, and TooLarge for a window that could not be pinned.
    """
    stored = opened.ledger.head(INGEST)
    if stored is not None and stored.head.pending is not None:
        return stored.head.pending.window, True
    asked = request(opened, run, topics_now(opened))
    head = stored.head if stored is not None else _nothing_read(opened)
    window = _next_of_ingest(opened, asked, head, learn=False)[0]
    if window is not None:
        # As long as one that is pinned.
        check_pending(opened.ledger.store, head, Pending(window=window, token=new_token(), previous="f" * 64))
    return window, False


def open_transactions(opened: OpenStream) -> tuple[OpenTransaction, ...]:
    """The open transactions that hold back messages from the ingest; none under read_uncommitted."""
    source = opened.stream.source
    if source.isolation == READ_UNCOMMITTED:
        return ()
    logs = opened.log.topics(topics_now(opened), source.isolation)
    return opened.log.open_transactions(logs, opened.log.high_watermarks(logs))


def _first_positions(opened: OpenStream, asked: Request) -> tuple[Position, ...]:
    """Where the ingest begins, in topics that may have changed since the ledger learned of them."""
    known = known_to_ingest(opened, asked, _nothing_read(opened), learn=True)
    return start_positions(opened, known, asked.topics)


def _nothing_read(opened: OpenStream) -> Head:
    stream, kind = opened.ledger.stream, LaneKind.INGEST
    return Head(stream=stream, lane=INGEST, kind=kind, state=LaneState.OPEN, token="", seq=0, positions=())


def start_positions(opened: OpenStream, known: KafkaState, topics: tuple[str, ...]) -> tuple[Position, ...]:
    """Where the ingest begins, as the stream file says."""
    start = opened.stream.source.start
    if isinstance(start, str):
        return starting.start_positions(known, topics, start)
    if isinstance(start, StartOffsets):
        given = {}
        for name, offset in start.offsets.items():
            topic, _, partition = name.rpartition("/")
            given[topic, int(partition)] = offset
        return starting.start_positions(known, topics, start.others, given)
    at_time = first_at(opened, known.logs, milliseconds(start.time))
    given = starting.offsets_at_time(known, at_time, start.time.isoformat(), start.if_none)
    return starting.start_positions(known, topics, "earliest", given)


def _pin_ingest(opened: OpenStream, run: str, goal: Mapping[TopicPartition, int] | None = None) -> Pending | None:
    def plan(head: Head) -> tuple[Window | None, KafkaState]:
        return _next_of_ingest(opened, request(opened, run, topics_now(opened)), head, goal)

    return pinning.pin(opened, INGEST, plan)


def _next_of_ingest(
    opened: OpenStream,
    asked: Request,
    head: Head,
    goal: Mapping[TopicPartition, int] | None = None,
    *,
    learn: bool = True,
) -> tuple[Window | None, KafkaState]:
    seen = known = known_to_ingest(opened, asked, head, learn=learn)
    if asked.guarantee == Guarantee.NONE or not head.positions:
        head = structs.replace(head, positions=_positions_of_run(opened, known, asked, head))
        # `start` does not say that the ingest has read up to there. Pinning checks what it has read.
        known = replace(known, epoch_ends={})
    return planner.next_window(head, known, sized(opened, known, asked), goal), seen


def _positions_of_run(opened: OpenStream, known: KafkaState, asked: Request, head: Head) -> tuple[Position, ...]:
    """For a lane without stored positions: where this run is after its last window, or where `start` says."""
    if head.last is not None and head.last.window.run == asked.run:
        return positions({range_.at: range_.until for range_ in head.last.window.ranges})
    return start_positions(opened, known, asked.topics)


def _has_reached(opened: OpenStream, goal: Mapping[TopicPartition, int]) -> bool:
    head = opened.ledger.head(INGEST)
    if head is None or Guarantee(opened.stream.guarantee) == Guarantee.NONE:
        return False
    offsets = head.head.offsets()
    return all(offsets.get(at, -1) >= end for at, end in goal.items())


def next_window(opened: OpenStream, lane: str, run: str, goal: tuple[Position, ...]) -> Pending | None:
    """The window that a run goes on with after a commit; None when the run has reached its goal.

    `goal`: the ends that the run saw when it pinned its first window. Without `goal`: the present ends.
    """
    if lane != INGEST:
        return plan_lane(opened, lane, run)
    ends = {position.at: position.offset for position in goal} or None
    if ends is not None and _has_reached(opened, ends):
        # A window that is pending now belongs to another run.
        return None
    return _pin_ingest(opened, run, ends)
