"""Where a message went: the windows that read or passed it, which of them counts, what is stored of it, what Kafka has.

Asks the ledger, the sinks and Kafka. `tidemark.views.messages.message` says it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tidemark.clients.kafka.slots import KafkaMessage
from tidemark.clients.kafka.slots import OffsetContents as InKafka
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.errors import TidemarkError, WrongUse
from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.erasures import is_erased
from tidemark.ledger.holes import Ingest
from tidemark.ledger.incarnations import Topics, assign_incarnations, written
from tidemark.ledger.ledger import StoredHead
from tidemark.ledger.lookup import CoveringWindows
from tidemark.ledger.newest import open_heads
from tidemark.ledger.records import INGEST, Gap, Pending, Record
from tidemark.offsets.coordinates import Coordinate, NamedOffsets, parse_records
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.times import milliseconds, read_time
from tidemark.runs.live.message_lookup import check_known, look, of_the_stream
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import first_at
from tidemark.sinks.contract import KeyedRowFound, SinkAdmin, SinkSettings
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.reading import read_at
from tidemark.sinks.stored_rows import StoredRow
from tidemark.views.messages.fates import CoveringWindow, Fate, OffsetFacts, OutcomeCounts, fate, possible

DEAD_LETTERS = "dead letters"
# A message may have thousands of rows, each with a key of its own.
_MAX_KEYS = 5
# A coordinate with a time in the place of the offset.
_AT = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>\d{1,10})@(?P<time>.*[-:].*)")


@dataclass(frozen=True)
class LocatedRecord:
    """The answers of ledger, sinks and Kafka for one coordinate. `kafka`: why Kafka said nothing, as a text, or what it has."""

    stream: str
    at: Coordinate
    fate: Fate
    may_be: frozenset[Fate]
    found: CoveringWindows
    pending: tuple[tuple[str, Pending], ...]
    rows: Mapping[str, list[StoredRow]]
    kafka: InKafka | str | None
    position: int | None
    # Why a sink's rows are not said, by its name; and what sinks by key hold for a row, by the sink and the row's place.
    unsaid: Mapping[str, str] = field(default_factory=dict)
    under_keys: Sequence[tuple[str, StoredRow, KeyedRowFound]] = ()
    # The sinks that were not asked, since they take servers of their own.
    not_asked: tuple[str, ...] = ()
    # By what it was erased, when that was not the window of this coordinate: one of another stream, or incarnation.
    elsewhere: str | None = None
    topics: Topics = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The coordinate as a request takes it."""
        return written(self.topics, self.at)

    @property
    def counting(self) -> Record | None:
        """The window whose results count at the coordinate."""
        return self.found.counting()

    @property
    def message(self) -> KafkaMessage | None:
        return self.kafka.message if isinstance(self.kafka, InKafka) else None


def coordinate(opened: OpenStream, said: str) -> Coordinate:
    """The one coordinate that people name: topic/partition@offset, or with a time the first message at or after it.

    Below the cut of a truncated log, an offset belongs to an earlier incarnation. With its incarnation, topic#2/0@5, it is
    taken as it is. Raises WrongUse, also for an incarnation that the ledger does not know, for a time in a topic that the
    stream does not read, and where the partition has no message at or after the time.
    """
    if (timed := _AT.fullmatch(said.strip())) is not None:
        place = _at_time(opened, timed["topic"], int(timed["partition"]), timed["time"])
        named = NamedOffsets(RangeSet([place.as_range()]))
    else:
        named = parse_records(said)
    wanted = assign_incarnations(opened.ledger.topics(), named.open) | named.exact
    if wanted.count() != 1:
        raise WrongUse(f"{said!r}: expected one coordinate, topic/partition@offset")
    (range_,) = wanted
    place = Coordinate(range_.partition, range_.start)
    check_known(opened, place)
    return place


def located(opened: OpenStream, at: Coordinate, *, all_sinks: bool = True) -> LocatedRecord:
    """Ask ledger, sinks and Kafka of a coordinate. If Kafka or a sink does not answer, the rest does.

    Without `all_sinks`, only sinks are asked that answer as quickly as the ledger. Raises the ledger's errors, and those of
    the table of dead letters.
    """
    ledger, source = opened.ledger, opened.stream.source
    register = ledger.register()
    heads = open_heads(ledger, register[1]) if register else {}
    covering_windows, answers, not_asked = _stored(opened, at, all_sinks=all_sinks)
    rows = {name: answer for name, answer in answers.items() if not isinstance(answer, str)}
    looked = look(opened, at)
    kafka = looked.slot
    ingest = heads.get(INGEST)
    position = ingest.head.offsets().get(at.partition) if ingest else None
    # Kafka has nothing below the first window of a partition that was added later: that need not be read here.
    asked_for = Ingest.of(register[1] if register else None, ingest.head if ingest else None).asked_for(at.partition)
    pending = _pending(opened, heads, at)
    covering = _covering(opened, covering_windows, at, rows)
    slot = kafka.slot if isinstance(kafka, InKafka) else None
    facts = OffsetFacts(
        slot,
        chosen=_chosen(source.partitions, at.partition) and looked.ours and source.reads(at.partition.topic),
        unknown=isinstance(kafka, str),
        asked_for=(asked_for.start, asked_for.until),
        covering=covering,
        pending=bool(pending),
        gap=newest_gap(covering_windows)[1].kind if covering_windows.gaps else None,
        isolation=source.isolation,
    )
    what = fate(at.offset, facts)
    elsewhere = looked.hidden if what != Fate.ERASED else None
    if elsewhere is not None:
        what, rows = Fate.ERASED, {}
    may_be = possible(covering, slot) if covering is not None and elsewhere is None else frozenset({what})
    under_keys, problems = _under_keys(opened, covering_windows, rows)
    said = {name for name, _, _ in under_keys}
    unsaid = {name: answer for name, answer in answers.items() if isinstance(answer, str) and name not in said}
    unsaid |= problems
    return LocatedRecord(
        ledger.stream,
        at,
        what,
        may_be,
        covering_windows,
        pending,
        rows,
        kafka,
        position,
        unsaid,
        under_keys,
        not_asked,
        elsewhere,
        register[1].topics if register else {},
    )


def _stored(
    opened: OpenStream, at: Coordinate, *, all_sinks: bool
) -> tuple[CoveringWindows, Mapping[str, list[StoredRow] | str], tuple[str, ...]]:
    """The ledger's knowledge, the rows of each sink or why they are not said, and the sinks that were not asked."""
    kinds = {sink.name: kind_of(sink.type).make_admin() for sink in opened.stream.sinks}
    asked = [sink for sink in opened.stream.sinks if all_sinks or kinds[sink.name].looks_quickly]
    dead_letters = opened.dead_letter_table()
    readers: dict[str, Callable[[Record], list[StoredRow] | str]] = {
        DEAD_LETTERS: lambda record: dead_letters.rows_at(at, record.attempt.generation),
        **{sink.name: partial(_rows, kinds[sink.name], opened, sink, at) for sink in asked},
    }
    windows, rows = read_at(opened.ledger, at, readers)
    return windows, rows, tuple(sink.name for sink in opened.stream.sinks if sink not in asked)


def _rows(
    kind: SinkAdmin, opened: OpenStream, sink: SinkSettings, at: Coordinate, record: Record
) -> list[StoredRow] | str:
    try:
        return kind.rows_at(opened, sink, at, record)
    except (TidemarkError, OSError) as problem:
        return f"{type(problem).__name__}: {problem}"


def _under_keys(
    opened: OpenStream, windows: CoveringWindows, rows: Mapping[str, list[StoredRow]]
) -> tuple[list[tuple[str, StoredRow, KeyedRowFound]], dict[str, str]]:
    """The rows of sinks by key for the first rows of the message, and why one of them did not say it, by its name.

    Keys are known from the rows of a sink that keeps the fields by coordinate.
    """
    kinds = {sink.name: kind_of(sink.type).make_admin() for sink in opened.stream.sinks}
    known = next((rows[name] for name, kind in kinds.items() if kind.keeps_fields and rows.get(name)), [])
    under_keys, problems = [], {}
    if known:
        # The newest value of a key may be of another message, which another stream has erased.
        opened = replace(opened, ledger=for_readers(opened.ledger))
    for sink in opened.stream.sinks:
        try:
            for row in known[:_MAX_KEYS]:
                under = kinds[sink.name].under_key(opened, sink, row, windows)
                if under is not None:
                    under_keys.append((sink.name, row, under))
        except TidemarkError as problem:
            problems[sink.name] = f"{type(problem).__name__}: {problem}"
    return under_keys, problems


def newest_gap(windows: CoveringWindows) -> tuple[Record, Gap]:
    """The newest window that jumped over the coordinate, and its gap. Only where there is one."""
    return max(windows.gaps, key=lambda pair: pair[0].attempt.generation)


def _at_time(opened: OpenStream, topic: str, partition: int, said: str) -> Coordinate:
    at = milliseconds(read_time(said))
    if topic not in of_the_stream(opened, [topic]):
        raise WrongUse(f"the stream reads no topic {topic}, and no window of it has read one")
    logs = opened.log.topics((topic,), opened.stream.source.isolation)
    if topic not in logs or partition not in logs[topic].partitions:
        raise WrongUse(f"Kafka has no partition {topic}/{partition}")
    offset = first_at(opened, logs, at)[topic, partition]
    if offset is None:
        raise WrongUse(f"{topic}/{partition} has no message at or after {said}")
    return Coordinate(TopicPartition(topic, partition), offset)


def _chosen(partitions: Mapping[str, tuple[int, ...]] | None, at: TopicPartition) -> bool:
    return partitions is None or at.partition in partitions.get(at.topic, ())


def _pending(opened: OpenStream, heads: Mapping[str, StoredHead], at: Coordinate) -> tuple[tuple[str, Pending], ...]:
    """The pending windows that will read the offset, the ingest's first."""
    pending_windows = []
    for lane, stored in sorted(heads.items(), key=lambda item: (item[0] != INGEST, item[0])):
        pending = stored.head.pending
        if pending is None or (at.partition, at.offset) not in pending.window.hull():
            continue
        selection = pending.window.selection
        if selection is None or opened.ledger.holding([selection], at):
            pending_windows.append((lane, pending))
    return tuple(pending_windows)


def _covering(
    opened: OpenStream, windows: CoveringWindows, at: Coordinate, rows: Mapping[str, list[StoredRow]]
) -> CoveringWindow | None:
    """The facts about the offset from the window that counts there; None when no committed window covers it."""
    counting = windows.counting()
    if counting is None:
        return None
    record = opened.ledger.with_receipt(counting)
    wrote = {sink.name for sink in record.receipt.sinks} & set(rows) if record.receipt else set()
    there = any(rows[name] for name in wrote)
    # A newer window may have filled a sink alone, with other outcomes. Then no row there says nothing of this window.
    own = any(windows.counting(name) is counting for name in wrote)
    return CoveringWindow(
        _counted(opened, record, at.partition),
        dead_letter=bool(rows.get(DEAD_LETTERS)),
        row=there if there or own else None,
        uncommitted=record.window.isolation == READ_UNCOMMITTED,
        erased=is_erased(opened.ledger, record, at),
    )


def _counted(opened: OpenStream, record: Record, at: TopicPartition) -> OutcomeCounts | None:
    if record.receipt is None:
        return None
    covers = opened.ledger.covers(record.window).count(at)
    tallies = [tally for tally in record.tallies if tally.at == at]
    stored, skipped, read = (
        sum(getattr(tally, name).number for tally in tallies) for name in ("stored", "skipped", "read")
    )
    dead = sum(tally.dead_letters for tally in tallies)
    return OutcomeCounts(stored, dead, skipped, covers - read)
