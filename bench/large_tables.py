"""Publishing into a large table of newest rows: the memory and the processor time of the one process that does it.

    python -m bench.large_tables [--keys 10000000] [--changes 100000] [--buckets 256]

Not one of the pairs of `./run bench`: the ledger is in memory, and the table in a folder of this machine. Prints megabytes, the
most that the process had, and seconds of processor time: of the window that fills the table, and of three with changes of keys
that are scattered over all buckets. Runs on Linux.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench import latest_publishing
from bench.latest_publishing import Publication
from tests.support.memory import MemoryStore
from tidemark.commit.protocol import Fence, Listener
from tidemark.ledger.records import Attempt, Record

_TIMES = 3


class _Measured(Publication):
    """Prints what each publication takes."""

    def _publish(self, record: Record) -> float:
        gc.collect()
        # From here on, VmHWM is the most of what follows.
        Path("/proc/self/clear_refs").write_text("5")
        began = time.process_time()
        took = super()._publish(record)
        rows = sum(tally.rows.number for tally in record.tallies)
        print(f"{rows:>12,} rows {_most_megabytes():>6} MB {time.process_time() - began:>7.1f} s", flush=True)
        return took


class _WritesApart(latest_publishing._Writes):  # noqa: SLF001
    """Makes the rows of a window in another process, as Spark would: they must not count as the publisher's."""

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        apart = multiprocessing.get_context("fork").Process(target=super().store, args=(attempt, fence, on_step))
        apart.start()
        apart.join()
        assert apart.exitcode == 0, "the rows of a window were not written"
        self._place = self._written_to(attempt)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.large_tables", description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--buckets", type=int, default=256)
    options = parser.parse_args()
    sizes: dict[str, Any] = {"_KEYS": options.keys, "_CHANGES": options.changes, "_Writes": _WritesApart}
    with patch.multiple(latest_publishing, **sizes):
        table = _Measured(MemoryStore(), 1, options.buckets)
        try:
            for _ in range(_TIMES):
                table.publish_next()
        finally:
            table.close()
    return 0


def _most_megabytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(one.split()[1]) // 1024 for one in lines if one.startswith("VmHWM:"))


if __name__ == "__main__":
    raise SystemExit(main())
