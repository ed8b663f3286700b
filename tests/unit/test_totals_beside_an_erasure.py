"""Totals of aggregates while an erasure commits: each number was committed at some moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.streams_in_memory import at, offsets
from tests.support.sums_in_memory import Sums
from tidemark.sinks.hbase.aggregates.rows import block_qualifier, row_key
from tidemark.sinks.hbase.aggregates.sink import PlainAggregates
from tidemark.sinks.hbase.aggregates.states import Aggregate
from tidemark.sinks.hbase.aggregates.table import SteadyRows

N = (Aggregate("n", "count", None, "integer"),)
HOST = b"host-1"


@pytest.fixture(params=[100, 10])
def sums(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sums:
    """Ten offsets are of one key, ten of another; each message has a contribution of its own."""
    block: int = request.param
    made = Sums(tmp_path, monkeypatch, block, lambda offset: row_key([HOST if offset < 10 else b"host-2"]))
    made.ingest(10, 20)
    return made


def told(found: Iterator[tuple[tuple[bytes | None, ...], dict[str, bytes]]]) -> dict[bytes | None, int]:
    return {key: int(values["n"]) for (key,), values in found}


def erase_once(sums: Sums, offset: int) -> Callable[[], None]:
    """Before the next row of a scan, unless it has erased before."""

    def erase() -> None:
        sums.cells.between = lambda: None
        sums.erase(offset)

    return erase


def test_an_erasure_between_the_ledger_and_the_rows(sums: Sums) -> None:
    reader = SteadyRows.of(sums.stream.opened.book, sums.table)
    assert told(reader.totals(N)) == {HOST: 10, b"host-2": 10}
    sums.erase(5)
    # What this reader counts by is from before. The cells are no more.
    assert told(reader.totals(N)) == {HOST: 9, b"host-2": 10}
    assert reader.erased_since()


@pytest.mark.parametrize("at_a_time", [1, 1_000])
def test_an_erasure_amid_the_rows(sums: Sums, at_a_time: int) -> None:
    reader = SteadyRows.of(sums.stream.opened.book, sums.table)
    sums.cells.between = erase_once(sums, 5)
    found = told(reader.totals(N, at_a_time=at_a_time))
    # Each key as it was before, or after.
    assert found[HOST] in (9, 10)
    assert found[b"host-2"] == 10


@pytest.mark.covers("N27")
def test_the_results_are_as_of_one_moment(sums: Sums) -> None:
    """What `tidemark results` gives."""
    opened = sums.stream.opened
    (settings,) = [one for one in opened.stream.sinks if one.name == "sums"]
    sums.cells.between = erase_once(sums, 5)
    rows = list(PlainAggregates().rows(opened, settings, 100))  # type: ignore[arg-type]
    assert sorted(row["values"]["n"] for row in rows) == ["10", "9"]


def test_a_commit_alone_changes_nothing(sums: Sums) -> None:
    """A reader that has begun sees the contributions as of its beginning, whatever is committed."""
    reader = SteadyRows.of(sums.stream.opened.book, sums.table)
    sums.ingest(30)
    sums.work(sums.replay(offsets((0, 0, 10)), "again"), "again")
    assert told(reader.totals(N)) == {HOST: 10, b"host-2": 10}
    assert not reader.erased_since()


def test_rows_are_as_of_the_view_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit expects what its view says. A replay that commits meanwhile has written newer contributions over these."""
    sums = Sums(tmp_path, monkeypatch, 10)
    sums.ingest(20)
    book = sums.stream.opened.book
    view = book.view()
    first = {one.generation for one in view.windows}
    sums.work(sums.replay(offsets((0, 0, 20)), "again"), "again")
    column = block_qualifier(at(0), 10)
    assert SteadyRows.of(book, sums.table, view).as_of.counts(column) in first
    assert SteadyRows.of(book, sums.table).as_of.counts(column) not in first
