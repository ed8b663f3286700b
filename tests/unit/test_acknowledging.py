"""Pieces of rows on their way to a server: what is said to be acknowledged, and when."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest

from tidemark.commit.fence import HeadFence
from tidemark.errors import Fenced, Unreachable
from tidemark.offsets.ranges import TopicPartition
from tidemark.spark.sinks.acknowledging import Prepared, write_pieces
from tidemark.spark.sinks.contract import WriteContext

AT = ("orders", 1, 0)
Write = Callable[[list[int]], None]


class Fence:
    """Lost when it is looked at for the n-th time."""

    def __init__(self, lost_at: int = 1_000) -> None:
        self.left = lost_at

    def check_now_and_then(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise Fenced("somebody else has the window")


def said(
    write: Write, *, fence: Fence | None = None, look: Write = lambda rows: None
) -> list[tuple[int, list[tuple[Any, int]]]]:
    """What is said of 5 rows a batch in pieces of 2, and what has been reported by then."""
    reported: list[tuple[TopicPartition, int]] = []
    found = []
    context = WriteContext(
        "ingest", 1, 7, cast("HeadFence", fence or Fence()), lambda at, number: reported.append((at, number))
    )

    def prepare(piece: pa.RecordBatch) -> Prepared:
        rows = piece.column(0).to_pylist()
        look(rows)
        return lambda: write(rows), [(*AT, len(rows), 1, len(rows), 2, 3)]

    given = [pa.RecordBatch.from_pydict({"n": [5 * batch + row for row in range(5)]}) for batch in range(2)]
    for one in write_pieces(given, 2, context, prepare):
        found.append((one.column("messages")[0].as_py(), list(reported)))
    return found


def test_each_piece_is_written_once_in_its_order_and_said_when_it_was() -> None:
    written: list[list[int]] = []
    found = said(written.append)
    assert written == [[0, 1], [2, 3], [4], [5, 6], [7, 8], [9]]
    assert [number for number, _ in found] == [2, 2, 1, 2, 2, 1]
    at = TopicPartition("orders", 0, 1)
    assert found[-1][1] == [(at, number) for number in (2, 2, 1, 2, 2, 1)]


def test_the_next_piece_is_prepared_while_one_is_on_its_way_and_none_is_written_beside_it() -> None:
    busy, changed = threading.Lock(), threading.Condition()
    prepared: list[list[int]] = []

    def look(rows: list[int]) -> None:
        with changed:
            prepared.append(rows)
            changed.notify()

    def write(rows: list[int]) -> None:
        assert busy.acquire(blocking=False)
        with changed:
            # Behind the last one comes none.
            assert rows == [9] or changed.wait_for(lambda: prepared[-1] != rows, timeout=10)
        busy.release()

    assert len(said(write, look=look)) == len(prepared) == 6


def test_what_failed_is_not_said_to_be_there() -> None:
    written: list[list[int]] = []

    def write(rows: list[int]) -> None:
        if 4 in rows:
            raise Unreachable("HBase is away")
        written.append(rows)

    with pytest.raises(Unreachable):
        said(write)
    assert written == [[0, 1], [2, 3]]


def test_nothing_more_is_written_when_the_window_is_lost() -> None:
    written: list[list[int]] = []
    with pytest.raises(Fenced):
        said(written.append, fence=Fence(3))
    assert written == [[0, 1], [2, 3]]


def test_python_collects_again_afterwards() -> None:
    assert gc.isenabled()
    during = []
    said(lambda rows: during.append(gc.isenabled()))
    assert not any(during)
    assert gc.isenabled()
    with pytest.raises(Fenced):
        said(lambda rows: None, fence=Fence(1))
    assert gc.isenabled()
