"""What grows with the windows of a stream: the processor time of commands on a ledger of few windows, and of many.

    python -m bench.windows [--few 1000] [--many 100000]

Not one of the pairs of `./run bench`: the ledger is a file of SQLite, and Kafka is in memory. Prints milliseconds of processor
time in both ledgers, and their ratio. All but the last three should take about as long in both; these read every record, for
that is what they are for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tests.support.streams_in_memory import LookedAt, StreamInMemory
from tests.support.wide_history import give_history
from tidemark.audit.coverage import coverage_by
from tidemark.audit.levels import Level
from tidemark.clients.sql import Database
from tidemark.ledger.covered import EVERY, history_of, keep_covered, unread_now
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import INGEST
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.sql import SQLLedgerStore
from tidemark.offsets.coordinates import Coordinate
from tidemark.runs.auditing import audit_without_spark
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.forms import ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import ingest
from tidemark.views.overview import overview
from tidemark.views.window import window_of

_PARTITIONS, _TIMES = 4, 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.windows", description=__doc__)
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
        sides = [
            _asked(_ledger(Path(folder), windows), windows)
            for folder, windows in ((few, options.few), (many, options.many))
        ]
        for name in sides[0]:
            took = [min(_processor_ms(side[name]) for _ in range(_TIMES)) for side in sides]
            print(f"{name:24} {took[0]:10.1f} {took[1]:10.1f} {took[1] / took[0]:8.2f}", flush=True)
    return 0


def _ledger(folder: Path, windows: int) -> OpenStream:
    store = SQLLedgerStore(
        Database("sqlite", str(folder / "ledger.db")), "ledger", "orders", "offsets", RequestTimeouts(30, 30)
    )
    store.prepare()
    made = StreamInMemory(folder, LookedAt(), store=cast("Any", store))
    made.ends(*[(0, 10)] * _PARTITIONS)
    give_history(made.opened, windows, _PARTITIONS)
    made.ends(*((0, end) for _, end in sorted(made.positions().items())))
    # As settling the windows one after another would have left it.
    found = made.opened.ledger.record(INGEST, windows // EVERY * EVERY)
    assert found is not None
    keep_covered(made.opened.ledger, found[1])
    return made.opened


def _asked(opened: OpenStream, windows: int) -> dict[str, Callable[[], object]]:
    ledger, middle = opened.ledger, windows // 2
    record = ledger.record(INGEST, middle)
    assert record is not None
    place = record[1].window.ranges[0]

    def coverage() -> object:
        history = history_of(ledger)
        assert history is not None
        return coverage_by(history.lanes, history.covered, history.ingest)

    def replay(**fields: str) -> object:
        return plan_request(opened, ReplayRequest(**cast("Any", fields), reason="a measurement", dry_run=True))

    return {
        "plan": lambda: ingest.preview(opened),
        "status": lambda: overview(opened, unread_now(ledger), without_kafka=True),
        "coverage": coverage,
        "a window's page": lambda: window_of(opened, INGEST, middle),
        "one message": lambda: look_up(ledger, Coordinate(place.at, place.start)),
        "replay of one window": lambda: replay(window=f"{INGEST}/{middle}"),
        "replay of one message": lambda: replay(records=f"orders/{place.partition}@{place.start}"),
        "the whole view": ledger.view,
        "verify": lambda: verify(ledger),
        "audit of the ledger": lambda: audit_without_spark(opened, "bench", Level.LEDGER),
    }


def _processor_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


if __name__ == "__main__":
    raise SystemExit(main())
