"""Compaction of Parquet folders: whatever happens beside it and wherever it is killed, what counts stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.command_line import asked
from tests.support.cuts import Cut
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import LEDGERS, Example
from tests.support.parquet_readers import assert_read_alike, places_by_reader, with_files
from tidemark.errors import Fenced
from tidemark.ledger.records import LaneKind
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.kinds import sink_to_compact
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.compactions import CompactedFolder, described
from tidemark.sinks.parquet.files import tables_that_count
from tidemark.sinks.parquet.parts import steady
from tidemark.sinks.parquet.steps import CompactionStep, nobody
from tidemark.spark.audit import differences
from tidemark.spark.jobs import audit as audit_job
from tidemark.spark.sinks.parquet.compacting import compact

pytestmark = pytest.mark.usefixtures("spark")


def compacted(
    live: LiveStream, on_step: Callable[[CompactionStep], None] = nobody, run: str = "compaction", **how: Any
) -> list[CompactedFolder]:
    return compact(
        live.opened, sink_to_compact(live.opened.stream.sinks, live.name, None), run, CompactionRequest(**how), on_step
    )


def at(wanted: CompactionStep, then: Callable[[], object]) -> Callable[[CompactionStep], None]:
    """A listener that does something behind a step, once."""
    left = [then]

    def listen(done: CompactionStep) -> None:
        if done == wanted and left:
            left.pop()()

    return listen


def die() -> None:
    raise Cut


def windows(live: LiveStream, number: int, size: int = 40) -> None:
    for _ in range(number):
        live.produce(size)
        live.ingest()


def replay(live: LiveStream, *intervals: tuple[int, int]) -> None:
    live.select(LaneKind.REPLAY, live.ranges(0, 0, *intervals))


def base(live: LiveStream) -> Path:
    return Path(
        sink_to_compact(live.opened.stream.sinks, live.name, None).base(live.opened.connections).removeprefix("file://")
    )


def folders(live: LiveStream) -> list[str]:
    return sorted(
        str(one.parent.relative_to(base(live))) for one in base(live).rglob("_SUCCESS") if "generation=" in str(one)
    )


def assert_nothing_has_changed(live: LiveStream, spark: SparkSession) -> None:
    live.assert_exactly_what_was_read()
    wanted = sorted(live.expected().rows)
    assert places_by_reader(live, spark) == [wanted, wanted]


@pytest.mark.full
def test_many_windows_become_one_folder(make: Make, example: Example, ledger: str, spark: SparkSession) -> None:
    live = make(example, ledger=LEDGERS[ledger])
    windows(live, 2)
    with_files(live, partition_by=[live.fields[-1] if example.name == "orders" else "method"], compression="zstd")
    windows(live, 1)
    replay(live, (2, 6))
    before = folders(live)
    assert len(before) == 4
    plan = asked("compact", str(live.file), "--dry-run")
    assert [(one["folders"], one["windows"][0]) for one in plan["compacted"]] == [(4, "ingest/1 to 3")]
    assert folders(live) == before
    # A replay commits when the new folder is written, and before it counts.
    (made,) = compacted(live, at(CompactionStep.WRITTEN, lambda: replay(live, (5, 8), (11, 12))))
    assert described(made.windows).startswith("ingest/1 to 3, replay-")
    left = folders(live)
    assert len(left) == 2
    assert left[0] == str(Path(made.folder.removeprefix("file://")).relative_to(base(live)))
    assert_nothing_has_changed(live, spark)
    # What a late attempt at a compacted window writes counts for nobody, and is removed some time.
    late = base(live) / "lane=ingest/seq=000000001/generation=1"
    late.mkdir(parents=True)
    (late / "part-1.parquet").write_text("no file of Parquet")
    windows(live, 1)
    replay(live, (3, 9), (20, 25))
    # What was not compacted yet; the rows that the replay has replaced are still in the older folder.
    shown = asked("compact", str(live.file), "--yes")
    assert [len(one["windows"]) for one in shown["compacted"]] == [3]
    assert not late.exists()
    assert len(folders(live)) == 2
    assert_read_alike(live, spark)


STEPS = [
    CompactionStep.REPLACED,
    *(
        pytest.param(step, marks=pytest.mark.full)
        for step in (
            CompactionStep.CLAIMED,
            CompactionStep.WRITTEN,
            CompactionStep.VERIFIED,
            CompactionStep.REMOVED,
            CompactionStep.FINISHED,
        )
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_compaction_that_dies(live: LiveStream, spark: SparkSession, step: CompactionStep) -> None:
    windows(live, 2)
    replay(live, (2, 4))
    with pytest.raises(Cut):
        compacted(live, at(step, die))
    assert_nothing_has_changed(live, spark)
    replay(live, (3, 6))
    # The same again finishes what is left: one folder, and where it was replaced before, that of the replay since.
    made = compacted(live, run="again")
    (whole,) = compacted(live, run="all", again=True) or made
    assert whole.rows == len(live.expected().rows)
    assert len(folders(live)) == 1
    assert compacted(live, again=True) == []
    assert_nothing_has_changed(live, spark)


@pytest.mark.full
def test_who_reads_meanwhile_reads_again(
    live: LiveStream, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(live, 2)
    replay(live, (2, 4))
    wanted = len(live.expected().rows)
    looks = []

    def slowly(parts: Any, authority: Any) -> int:
        looks.append([one.folder for one in parts])
        if len(looks) == 1:
            compacted(live)
        return sum(table.num_rows for table in tables_that_count(parts, authority))

    assert steady(live.opened.ledger, "parquet", slowly) == wanted
    assert [len(look) for look in looks] == [3, 1]
    # An audit too, which looks at the files long after it has begun.
    windows(live, 1)
    summed, calls, again = differences.sums_found, [], []

    def late(*given: Any) -> Any:
        calls.append(given)
        # After Spark has listed the files of `parquet`.
        if given[0].inputFiles() and not again:
            again.append(True)
            compacted(live, again=True)
        return summed(*given)

    monkeypatch.setattr(differences, "sums_found", late)
    report = audit_job.audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert len(calls) == 4


@pytest.mark.full
def test_the_newer_of_two_compactions_counts(live: LiveStream, spark: SparkSession) -> None:
    windows(live, 2)
    found = []
    with pytest.raises(Fenced, match="was begun by run newer after this one"):
        compacted(live, at(CompactionStep.WRITTEN, lambda: found.extend(compacted(live, run="newer"))))
    assert len(found) == 1
    known = compactions.find(live.opened.ledger, "parquet")
    assert known is not None
    assert known.value.folders == tuple(found)
    assert known.value.claim is None
    assert_nothing_has_changed(live, spark)
