"""What grows with a stream, and how: the processor time of what people and runs ask, at three sizes each.

    python -m bench.scale [--write] [windows | partitions | lanes | records | streams ...]

Not one of the pairs of `./run bench`: the ledger is a file of SQLite, and Kafka is in memory. Prints milliseconds of processor
time at each size, and the power of the size that the time grows with from the smallest to the largest: 0 is flat, 1 is in
proportion. `--write` puts the table into docs/scale.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from bench import report
from bench.pairs import processor_ms
from services.site import REPOSITORY
from tests.support.bulk import LOGS, many_closed
from tests.support.bulk import load as load_values
from tests.support.protocol_world import NoWork, hold
from tests.support.stream_text import MINIMAL
from tests.support.streams_in_memory import LookedAt, StreamInMemory
from tests.support.wide_history import give_history
from tidemark.audit.coverage import coverage_by
from tidemark.audit.levels import Level
from tidemark.clients.sql import Database
from tidemark.commit import protocol
from tidemark.ledger.covered import EVERY, history_of, keep_covered, unread_now
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import INGEST
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.sql import SQLLedgerStore
from tidemark.offsets.coordinates import Coordinate, parse_records
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.auditing import audit_without_spark
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.forms import ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import ingest, lanes
from tidemark.views.overview import overview
from tidemark.views.window import window_of

_TIMES = 3
_PAGE = REPOSITORY / "docs" / "scale.md"

Work = Callable[[], object]


class Row(NamedTuple):
    """What is asked, and the milliseconds of processor time at each size. `power`: None for times too short to tell."""

    asked: str
    took: tuple[float, ...]
    power: float | None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/scale.md; only with all axes")
    parser.add_argument("axes", nargs="*", choices=[[], *AXES], metavar="AXIS", help=", ".join(AXES))
    options = parser.parse_args()
    if options.write and options.axes:
        parser.error("--write puts the whole table: leave the axes out")
    lines: list[str] = []
    for name in options.axes or AXES:
        found = table_of(name)
        print("\n".join(found), flush=True)
        lines += found
    if options.write:
        report.put(_PAGE, "\n".join(lines))
    return 0


def table_of(axis: str) -> list[str]:
    """The lines of an axis' table, in Markdown."""
    what, sizes, made = AXES[axis]
    head = " | ".join(f"{size:,}" for size in sizes)
    lines = ["", f"| {what} | {head} | power |", "|---|" + "---:|" * (len(sizes) + 1)]
    for row in measured(made, sizes):
        took = " | ".join(_shown(one) for one in row.took)
        lines.append(f"| {row.asked} | {took} | {'' if row.power is None else row.power + 0.0} |")
    return lines


def measured(made: Callable[[Path, int], Mapping[str, Work]], sizes: Sequence[int]) -> Iterator[Row]:
    took: dict[str, list[float]] = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            for asked, work in made(Path(folder), size).items():
                took.setdefault(asked, []).append(min(processor_ms(work) for _ in range(_TIMES)))
    for asked, each in took.items():
        power = round(math.log(each[-1] / each[0]) / math.log(sizes[-1] / sizes[0]), 1) if min(each) > 0 else None
        yield Row(asked, tuple(each), power)


def _shown(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 10 else f"{milliseconds:.1f}"


# the axes


def _of_windows(folder: Path, windows: int) -> dict[str, Work]:
    opened = _with_history(folder, windows, partitions=4)
    ledger, middle = opened.ledger, windows // 2
    record = ledger.record(INGEST, middle)
    assert record is not None
    place = record[1].window.ranges[0]
    return {
        **_everyday(opened),
        "the page of a window": lambda: window_of(opened, INGEST, middle),
        "`tidemark show` of a message": lambda: look_up(ledger, Coordinate(place.at, place.start)),
        "the plan of a replay of one window": lambda: _plan(opened, window=f"{INGEST}/{middle}"),
        "the plan of a replay of one message": lambda: _plan(opened, records=f"orders/{place.partition}@{place.start}"),
        "`tidemark ledger verify`": lambda: verify(ledger),
        "an audit of the ledger": lambda: audit_without_spark(opened, "bench", Level.LEDGER),
    }


def _of_partitions(folder: Path, partitions: int) -> dict[str, Work]:
    opened = _with_history(folder, 100, partitions)
    ledger, kafka = opened.ledger, cast("Any", opened.log)
    runs = itertools.count()

    def window() -> None:
        kafka.logs["orders"] = [(start, end + 10) for start, end in kafka.logs["orders"]]
        run = f"run {next(runs)}"
        pending = ingest.plan_ingest(opened, run)
        assert pending is not None
        protocol.process(
            ledger, opened.sweeper, NoWork(), hold, INGEST, pending.window.seq, lanes.this_run(opened, run)
        )

    window()
    return {
        "a window, from pin to settled": window,
        **_everyday(opened),
        "the page of a window": lambda: window_of(opened, INGEST, 101),
    }


def _of_lanes(folder: Path, closed: int) -> dict[str, Work]:
    store = _store(folder, "bulk")
    load_values(store, many_closed(closed))
    ledger = Ledger(store, "bulk")
    return {
        "`tidemark show` of a message": lambda: look_up(ledger, Coordinate(LOGS[0], 5_000)),
        "which windows count, as readers ask": ledger.view,
        "`tidemark ledger verify`": lambda: verify(ledger),
    }


def _of_records(folder: Path, records: int) -> dict[str, Work]:
    """Every third message of a topic, as people name them."""
    text = "\n".join(f"orders/0@{3 * number}" for number in range(records))
    chosen = RangeSet(OffsetRange(LOGS[0], 3 * number, 3 * number + 1) for number in range(records))
    ledger = Ledger(_store(folder, "orders"), "orders")
    kept = ledger.store_selection(chosen)
    return {
        "reading their list": lambda: parse_records(text, "records"),
        "storing them in the ledger": lambda: ledger.store_selection(chosen),
        "reading them from there": lambda: Ledger(ledger.store, "orders").selection(kept),
        "comparing them with what was read": lambda: chosen - RangeSet([OffsetRange(LOGS[0], 0, records)]),
    }


def _of_streams(folder: Path, streams: int) -> dict[str, Work]:
    from tidemark.airflow import build_dags

    for number in range(streams):
        name = f"stream_{number:04}"
        (folder / f"{name}.yaml").write_text(MINIMAL.replace("stream: orders", f"stream: {name}"))
    return {"building the DAGs of a folder": lambda: build_dags(folder)}


AXES: dict[str, tuple[str, tuple[int, ...], Callable[[Path, int], Mapping[str, Work]]]] = {
    "windows": ("windows of an ingest", (1_000, 10_000, 100_000), _of_windows),
    "partitions": ("partitions of a topic", (10, 100, 1_000), _of_partitions),
    "lanes": ("closed replays", (100, 1_000, 10_000), _of_lanes),
    "records": ("scattered records of a request", (10_000, 100_000, 1_000_000), _of_records),
    "streams": ("streams in a folder", (10, 100, 300), _of_streams),
}


def _everyday(opened: OpenStream) -> dict[str, Work]:
    """What each run of a stream does, and what people look at each day."""

    def coverage() -> object:
        history = history_of(opened.ledger)
        assert history is not None
        return coverage_by(history.lanes, history.covered, history.ingest)

    return {
        "`tidemark plan`": lambda: ingest.preview(opened),
        "`tidemark status`": lambda: overview(opened, unread_now(opened.ledger), without_kafka=True),
        "`tidemark ledger coverage`": coverage,
    }


def _plan(opened: OpenStream, **fields: Any) -> object:
    return plan_request(opened, ReplayRequest(**fields, reason="a measurement", dry_run=True))


def _with_history(folder: Path, windows: int, partitions: int) -> OpenStream:
    """A stream whose ingest has committed windows, and has kept what they cover as settling them in turn would have."""
    made = StreamInMemory(folder, LookedAt(), store=cast("Any", _store(folder, "orders")))
    made.ends(*[(0, 10)] * partitions)
    give_history(made.opened, windows, partitions)
    made.ends(*((0, end) for _, end in sorted(made.positions().items())))
    found = made.opened.ledger.record(INGEST, windows // EVERY * EVERY)
    assert found is not None
    keep_covered(made.opened.ledger, found[1])
    return made.opened


def _store(folder: Path, stream: str) -> SQLLedgerStore:
    where = Database("sqlite", str(folder / "ledger.db"))
    store = SQLLedgerStore(where, "ledger", stream, "offsets", RequestTimeouts(30, 30))
    store.prepare()
    return store


if __name__ == "__main__":
    raise SystemExit(main())
