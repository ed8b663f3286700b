"""Compaction of Parquet folders: whatever happens beside it and wherever it is killed, what counts stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.command_line import asked
from tests.support.cuts import Cut
from tests.support.oracle import LEDGERS, Example
from tests.support.parquet_readers import assert_read_alike, places_by_reader, with_files
from tests.support.playground import Make, Playground
from tidemark.errors import Fenced
from tidemark.ledger.records import LaneKind
from tidemark.sinks.contract import Asked
from tidemark.sinks.kinds import sink_to_compact
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.compactions import CompactedFolder, described
from tidemark.sinks.parquet.files import tables_that_count
from tidemark.sinks.parquet.parts import steady
from tidemark.sinks.parquet.steps import Step, nobody
from tidemark_spark.audit import differences
from tidemark_spark.jobs import audit as audit_job
from tidemark_spark.sinks.parquet.compacting import compact

pytestmark = pytest.mark.usefixtures("spark")


def compacted(
    play: Playground, on_step: Callable[[Step], None] = nobody, run: str = "compaction", **how: Any
) -> list[CompactedFolder]:
    return compact(play.opened, sink_to_compact(play.opened.stream.sinks, play.name, None), run, Asked(**how), on_step)


def at(wanted: Step, then: Callable[[], object]) -> Callable[[Step], None]:
    """A listener that does something behind a step, once."""
    left = [then]

    def listen(done: Step) -> None:
        if done == wanted and left:
            left.pop()()

    return listen


def die() -> None:
    raise Cut


def windows(play: Playground, number: int, size: int = 40) -> None:
    for _ in range(number):
        play.produce(size)
        play.ingest()


def replay(play: Playground, *intervals: tuple[int, int]) -> None:
    play.select(LaneKind.REPLAY, play.ranges(0, 0, *intervals))


def base(play: Playground) -> Path:
    return Path(
        sink_to_compact(play.opened.stream.sinks, play.name, None).base(play.opened.connections).removeprefix("file://")
    )


def folders(play: Playground) -> list[str]:
    return sorted(
        str(one.parent.relative_to(base(play))) for one in base(play).rglob("_SUCCESS") if "generation=" in str(one)
    )


def assert_nothing_has_changed(play: Playground, spark: SparkSession) -> None:
    play.assert_exactly_what_was_read()
    wanted = sorted(play.expected().rows)
    assert places_by_reader(play, spark) == [wanted, wanted]


@pytest.mark.full
def test_many_windows_become_one_folder(make: Make, example: Example, ledger: str, spark: SparkSession) -> None:
    play = make(example, ledger=LEDGERS[ledger])
    windows(play, 2)
    with_files(play, partition_by=[play.fields[-1] if example.name == "orders" else "method"], compression="zstd")
    windows(play, 1)
    replay(play, (2, 6))
    before = folders(play)
    assert len(before) == 4
    plan = asked("compact", str(play.file), "--dry-run")
    assert [(one["folders"], one["windows"][0]) for one in plan["compacted"]] == [(4, "ingest/1 to 3")]
    assert folders(play) == before
    # A replay commits when the new folder is written, and before it counts.
    (made,) = compacted(play, at(Step.WRITTEN, lambda: replay(play, (5, 8), (11, 12))))
    assert described(made.windows).startswith("ingest/1 to 3, replay-")
    left = folders(play)
    assert len(left) == 2
    assert left[0] == str(Path(made.folder.removeprefix("file://")).relative_to(base(play)))
    assert_nothing_has_changed(play, spark)
    # What a late attempt at a compacted window writes counts for nobody, and is removed some time.
    late = base(play) / "lane=ingest/seq=000000001/generation=1"
    late.mkdir(parents=True)
    (late / "part-1.parquet").write_text("no file of Parquet")
    windows(play, 1)
    replay(play, (3, 9), (20, 25))
    # What was not compacted yet; the rows that the replay has replaced are still in the older folder.
    shown = asked("compact", str(play.file), "--yes")
    assert [len(one["windows"]) for one in shown["compacted"]] == [3]
    assert not late.exists()
    assert len(folders(play)) == 2
    assert_read_alike(play, spark)


STEPS = [
    Step.REPLACED,
    *(
        pytest.param(step, marks=pytest.mark.full)
        for step in (Step.CLAIMED, Step.WRITTEN, Step.VERIFIED, Step.REMOVED, Step.FINISHED)
    ),
]


@pytest.mark.full
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_compaction_that_dies(play: Playground, spark: SparkSession, step: Step) -> None:
    windows(play, 2)
    replay(play, (2, 4))
    with pytest.raises(Cut):
        compacted(play, at(step, die))
    assert_nothing_has_changed(play, spark)
    replay(play, (3, 6))
    # The same again finishes what is left: one folder, and where it was replaced before, that of the replay since.
    made = compacted(play, run="again")
    (whole,) = compacted(play, run="all", again=True) or made
    assert whole.rows == len(play.expected().rows)
    assert len(folders(play)) == 1
    assert compacted(play, again=True) == []
    assert_nothing_has_changed(play, spark)


@pytest.mark.full
def test_who_reads_meanwhile_reads_again(
    play: Playground, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows(play, 2)
    replay(play, (2, 4))
    wanted = len(play.expected().rows)
    looks = []

    def slowly(parts: Any, authority: Any) -> int:
        looks.append([one.folder for one in parts])
        if len(looks) == 1:
            compacted(play)
        return sum(table.num_rows for table in tables_that_count(parts, authority))

    assert steady(play.opened.book, "parquet", slowly) == wanted
    assert [len(look) for look in looks] == [3, 1]
    # An audit too, which looks at the files long after it has begun.
    windows(play, 1)
    summed, calls, again = differences.sums_found, [], []

    def late(*given: Any) -> Any:
        calls.append(given)
        # After Spark has listed the files of `parquet`.
        if given[0].inputFiles() and not again:
            again.append(True)
            compacted(play, again=True)
        return summed(*given)

    monkeypatch.setattr(differences, "sums_found", late)
    report = audit_job.audit(play.opened, "audit")
    assert report.clean, report.sentence()
    assert len(calls) == 4


@pytest.mark.full
def test_the_newer_of_two_compactions_counts(play: Playground, spark: SparkSession) -> None:
    windows(play, 2)
    found = []
    with pytest.raises(Fenced, match="was begun by run newer after this one"):
        compacted(play, at(Step.WRITTEN, lambda: found.extend(compacted(play, run="newer"))))
    assert len(found) == 1
    known = compactions.find(play.opened.book, "parquet")
    assert known is not None
    assert known.value.folders == tuple(found)
    assert known.value.claim is None
    assert_nothing_has_changed(play, spark)
