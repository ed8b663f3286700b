"""Compactions of folders and tables as actors: all is the product's but the rewriting of rows, which Spark does else."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from tests.simulation import lake
from tests.simulation.others import ICEBERG, LATEST, PARQUET, PUBLISHED, SUMS
from tidemark.cli.commands import compact as compact_command
from tidemark.errors import Fenced, VerificationFailed
from tidemark.ledger.ledger import Ledger
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.delta.latest import compacting as delta_latest
from tidemark.sinks.kinds import kind_of, sink_to_compact
from tidemark.sinks.parquet import compactions, files, steps
from tidemark.sinks.parquet.compactions import CompactedFolder, StoredCompactions
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.parquet.steps import CompactionStep, Listener

STREAM = "orders"
_MAX_BYTES = 1 << 30


def compact(run: str, sink: str, *, windows: int | None = None, again: bool = False, write: bool = True) -> None:
    """The command."""
    compact_command.compact(
        STREAM,
        sink=sink,
        before="",
        windows=windows,
        again=again,
        yes=write,
        dry_run=not write,
        run_name=run,
        verbose=False,
        as_json=True,
    )


def rewrite(group: Sequence[FolderPart], folder: str, heard: Listener) -> int:
    """The rows that count in some folders, with their windows, in one new folder."""
    tables = [_that_count(part) for part in group if part.holds]
    # Where nothing counts any more, a folder with rows that were erased has the columns.
    tables = tables or [_that_count(next(part for part in group if part.stale)).slice(0, 0)]
    rows = pa.concat_tables(tables, promote_options="permissive")
    lake.write(folder, rows)
    heard(CompactionStep.WRITTEN)
    held = files.held(_MAX_BYTES, folder) or {}
    number = sum(one.rows.number for one in held.values())
    if number != rows.num_rows:
        raise VerificationFailed(f"{folder} has {number} rows, and not {rows.num_rows}")
    heard(CompactionStep.VERIFIED)
    return number


def _that_count(part: FolderPart) -> pa.Table:
    table = files._table(part)
    if not part.compacted:
        lane, seq = part.names[0]
        more = {"_lane": pa.array([lane] * table.num_rows, pa.string())}
        more["_seq"] = pa.array([seq] * table.num_rows, pa.int32())
        more[files.GENERATION] = pa.array([part.windows[0].generation] * table.num_rows, pa.int64())
        for name, column in more.items():
            table = table.append_column(name, column)
    names = ("_topic", "_partition", "_incarnation", "_offset", files.GENERATION)
    each = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    kept = [
        (TopicPartition(topic, partition, incarnation), offset) not in part.lost.get(generation, ())
        for topic, partition, incarnation, offset, generation in each
    ]
    return table.filter(pa.array(np.array(kept, dtype=bool)))


def _submit(
    opened_here: Callable[[], OpenStream], _: OpenStream, script: str, arguments: Sequence[str], **__: Any
) -> None:
    """As `jobs/compact.py` reads its arguments."""
    parser = ArgumentParser()
    for name in ("--stream-file", "--sink", "--run", "--before", "--windows"):
        parser.add_argument(name)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    opened = opened_here()
    asked = CompactionRequest(None, int(options.windows) if options.windows else None, options.again)
    sink = sink_to_compact(opened.stream.sinks, STREAM, options.sink)
    _compact(opened, sink, options.run, asked)


def _compact(opened: OpenStream, sink: Any, run: str, asked: CompactionRequest) -> None:
    """As the Spark half of each type does it."""
    if sink.type == PARQUET:
        steps.compact(opened, sink, run, asked, rewrite, _heard)
        return
    if sink.name in PUBLISHED:
        steps.compact(opened, sink.history(opened.connections), run, asked, rewrite, _heard)
    if sink.name in (LATEST, SUMS):
        return
    admin = cast("Any", kind_of(sink.type).make_admin())
    if sink.type in ("delta_latest", "delta_aggregates"):
        delta_latest.vacuum(opened, sink, admin)
        return
    from tidemark.sinks.iceberg import compacting as iceberg
    from tidemark.sinks.iceberg.latest import compacting as iceberg_latest

    if sink.type == ICEBERG:
        iceberg.compact(opened, sink, run, asked)
    else:
        iceberg_latest.expire(opened, sink, run, admin)


def _heard(step: CompactionStep) -> None:
    from tests.simulation.actors import reached

    reached(step.value)


def _replace(ledger: Ledger, held: StoredCompactions, folder: CompactedFolder) -> StoredCompactions:
    """What a compaction is told of its change is true."""
    from tests.simulation.oracle import check

    try:
        return _really_replace(ledger, held, folder)
    except Fenced:
        found = compactions.find(ledger, held.value.sink)
        counts = found is not None and folder.folder in [one.folder for one in found.value.folders]
        check(not counts, "a compaction was told that it was fenced, and its folder counts")
        raise


_really_replace = compactions.replace


@contextmanager
def compacted(opened_here: Callable[[], OpenStream]) -> Iterator[None]:
    """While the block runs, the command compacts in the simulated world."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(compact_command, "submit", partial(_submit, opened_here)))
        stack.enter_context(patch.object(compactions, "replace", _replace))
        yield
