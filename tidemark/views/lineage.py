"""A run's inputs and outputs, as lineage tools name it: topics, tables, folders, with ranges and counts.

Namespaces and names follow OpenLineage's naming of data sets where it has one: `kafka://host:port` and the topic, the scheme
of a folder and its path. A table of HBase is `hbase://host:port` and the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.ledger.records import Record, SinkReceipt
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.kinds import admin_or_default
from tidemark.views.summary import WindowOfRun, committed_by, messages, passed_over, windows

# A facet is a part of an event: totals are of all windows.
MAX_WINDOWS = 100


@dataclass(frozen=True)
class DataSet:
    """A topic, table or folder. `rows`: how many messages were read there, or rows written; None where nobody counts them."""

    namespace: str
    name: str
    rows: int | None


@dataclass(frozen=True)
class WindowOfLane(WindowOfRun):
    lane: str


@dataclass(frozen=True)
class Windows:
    """Totals of all windows that a run has committed, and the first windows."""

    stream: str
    lanes: list[str]
    run: str
    committed: int
    read: int
    stored: int
    skipped: int
    dead_letters: int
    offsets_lost: int
    offsets_skipped: int
    windows: list[WindowOfLane]


@dataclass(frozen=True)
class Lineage:
    """The data sets of a run's committed windows, and what the windows say: ranges, generations, counts."""

    inputs: tuple[DataSet, ...]
    outputs: tuple[DataSet, ...]
    windows: Windows


def lineage(opened: OpenStream, lanes: Sequence[str], run: str) -> Lineage:
    """The windows that a run has committed in its lanes until now."""
    records = [record for lane in lanes for record in committed_by(opened, lane, run)]
    counts, passed = [messages(record) for record in records], [passed_over(record) for record in records]
    first = records[:MAX_WINDOWS]
    return Lineage(
        inputs=tuple(_inputs(opened, records)),
        outputs=tuple(_outputs(opened, records)),
        windows=Windows(
            stream=opened.ledger.stream,
            lanes=list(lanes),
            run=run,
            committed=len(records),
            read=sum(count.read for count in counts),
            stored=sum(count.stored for count in counts),
            skipped=sum(count.skipped for count in counts),
            dead_letters=sum(count.dead_letters for count in counts),
            offsets_lost=sum(gap.lost for gap in passed),
            offsets_skipped=sum(gap.skipped for gap in passed),
            windows=[
                WindowOfLane(**vars(window), lane=record.lane)
                for record, window in zip(first, windows(opened.ledger.topics(), first), strict=True)
            ],
        ),
    )


def _inputs(opened: OpenStream, records: Iterable[Record]) -> Iterable[DataSet]:
    read: dict[str, int] = {}
    for record in records:
        for tally in record.tallies:
            read[tally.topic] = read.get(tally.topic, 0) + tally.read.number
    namespace = f"kafka://{opened.log.endpoint.servers.split(',')[0]}"
    return (DataSet(namespace, topic, number) for topic, number in sorted(read.items()))


def _outputs(opened: OpenStream, records: Iterable[Record]) -> Iterable[DataSet]:
    rows: dict[tuple[str, str], int] = {}
    for record in records:
        if record.receipt is None:
            continue
        number = sum(tally.rows.number for tally in record.tallies)
        written = [(place, number) for place in record.receipt.sinks]
        if record.receipt.dead_letters is not None:
            written.append((record.receipt.dead_letters, sum(tally.dead_letters for tally in record.tallies)))
        for sink, count in written:
            for at in _named(opened, sink):
                rows[at] = rows.get(at, 0) + count
    return (DataSet(*at, count) for at, count in sorted(rows.items()))


def _named(opened: OpenStream, sink: SinkReceipt) -> Iterable[tuple[str, str]]:
    """Where a sink has written, as namespace and name."""
    # A task that reports lineage needs none of the packages that the job needed.
    named = [*admin_or_default(sink.type).data_sets(opened.connections, sink.place)]
    # Of a type that does not say where it writes.
    return named or [(f"tidemark://{opened.ledger.stream}", sink.name)]
