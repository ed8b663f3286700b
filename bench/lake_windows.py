"""What grows with the windows of a lake's table: a commit's publication, and a reading by another program.

    python -m bench.lake_windows [--few 100] [--many 2000] [--compact 50] [SINK ...]

Not one of the pairs of `./run bench`: the ledger and Kafka are in memory, and each window has ten rows. The table is compacted
after every so many windows, and both sides are measured as many windows after a compaction: the first 25. Prints milliseconds
of processor time after few windows, after many, and their ratio, which should be 1.2 at most.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.pairs import processor_ms
from tests.support.delta_in_memory import DeltaInMemory
from tests.support.iceberg_in_memory import IcebergInMemory
from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory, LatestInMemory
from tidemark.ledger.ledger import now_ms
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.delta.sink import DeltaAdmin
from tidemark.sinks.iceberg.compacting import compact
from tidemark.sinks.iceberg.sink import IcebergAdmin
from tidemark.sinks.latest.sink import LatestRowsAdmin

_ROWS, _KEYS, _MEASURED, _READINGS = 10, 40, 25, 5


class _Rows(IcebergInMemory):
    """The sink `iceberg`, which compacts by the machine's clock, as its snapshots have it."""

    def shrink(self, run: str) -> None:
        before, self.now = self.now, now_ms() + 1_000
        compact(self.opened, self.sink.model_copy(update={"keep_hours": 0}), run, CompactionRequest())
        self.now = before

    def read(self) -> object:
        return self.table().scan().to_arrow()


class _Files(DeltaInMemory):
    """The sink `delta`, whose files stay those of one window each: `tidemark compact` takes none of them."""

    def shrink(self, run: str) -> None: ...

    def read(self) -> object:
        return self.foreign().to_pyarrow_table()


class _Newest:
    """A sink of newest rows."""

    def __init__(self, world: LatestInMemory) -> None:
        self._world = world
        self.ends, self.ingest, self.read = world.ends, world.ingest, world.seen

    def shrink(self, run: str) -> None:
        self._world.compact(run)
        self._world.vacuum(0)


def _code(_: int, offset: int) -> list[Change]:
    return [Change(offset % _KEYS, f"m{offset}")]


_SINKS: dict[str, Callable[[Path], Any]] = {
    "delta": _Files,
    "iceberg": _Rows,
    "iceberg_latest": lambda folder: _Newest(IcebergLatestInMemory(folder, code=_code)),
    "delta_latest": lambda folder: _Newest(DeltaLatestInMemory(folder, code=_code)),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lake_windows", description=__doc__)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=2_000)
    parser.add_argument("--compact", type=int, default=50)
    parser.add_argument("sinks", nargs="*", choices=[[], *_SINKS], metavar="SINK")
    options = parser.parse_args()
    for one in options.sinks or _SINKS:
        with tempfile.TemporaryDirectory() as folder:
            sides = [*_measured(_SINKS[one](Path(folder)), (options.few, options.many), options.compact)]
        for name, few, many in zip(("publish", "read"), *sides, strict=True):
            print(f"{one:16} {name:8} {few:8.1f} {many:8.1f} {many / few:6.2f}", flush=True)
    return 0


def _measured(table: Any, after: Iterable[int], every: int) -> Iterable[tuple[float, float]]:
    """The milliseconds of a publication and of a reading after so many windows."""
    windows = 0
    for number in after:
        while windows < number or windows % every:
            windows += 1
            _window(table, windows)
            if windows % every == 0:
                table.shrink(f"compaction {windows}")
        with _publications() as spent:
            for _ in range(_MEASURED):
                windows += 1
                _window(table, windows)
        yield median(spent), median(processor_ms(table.read) for _ in range(_READINGS))


def _window(table: Any, number: int) -> None:
    table.ends((0, _ROWS * number))
    assert table.ingest(f"run {number}") is not None


@contextmanager
def _publications() -> Iterator[list[float]]:
    """Within this, the milliseconds of each publication."""
    spent: list[float] = []
    with ExitStack() as stack:
        for kind in (DeltaAdmin, IcebergAdmin, LatestRowsAdmin):
            stack.enter_context(patch.object(kind, "publish", _timed(kind.publish, spent)))
        yield spent


def _timed(real: Callable[..., None], spent: list[float]) -> Callable[..., None]:
    def publish(*given: Any) -> None:
        spent.append(processor_ms(lambda: real(*given)))

    return publish


if __name__ == "__main__":
    raise SystemExit(main())
