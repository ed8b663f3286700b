"""The last lines of a run's log: what it has committed, in a line each, whatever the number of windows and partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from tests.support.known_streams import KnownStream, tables
from tests.support.streams_in_memory import StreamInMemory
from tidemark.clients.kafka import clients
from tidemark.ledger.records import INGEST, Record, UnknownFields
from tidemark.views.messages.fates import Fate
from tidemark.views.metrics import counts
from tidemark.views.summary import answer_of, committed_by, said_of

__all__ = ["tables"]


def committed(made: StreamInMemory, run: str) -> list[Record]:
    return committed_by(made.opened, INGEST, run)


@pytest.mark.covers("N96")
def test_a_window_is_told_in_a_line_with_its_ranges_and_what_became_of_its_messages(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.STORED, Fate.DEAD_LETTER, Fate.STORED, Fate.SKIPPED])
    world.ends((0, 4))
    world.ingest("run 1")
    (line,) = said_of({}, committed(world, "run 1"))
    assert line.startswith(
        "committed window ingest/1: orders/0@0-4: read 4 = 2 stored + 1 skipped + 1 dead letter; into hbase; "
    )
    assert said_of({}, []) == ["nothing was committed: there was nothing to read"]


@pytest.mark.slow
@pytest.mark.covers("N96")
@pytest.mark.parametrize(("partitions", "windows"), [(3, 2), (200, 40)])
def test_the_lines_are_few_and_short_whatever_the_number_of_windows_and_partitions(
    tmp_path: Path, partitions: int, windows: int
) -> None:
    made = StreamInMemory(tmp_path)
    for number in range(1, windows + 1):
        made.ends(*[(0, 10 * number)] * partitions)
        made.ingest("run 1")
    lines = said_of({}, committed(made, "run 1"))
    assert len(lines) == min(windows, 21)
    assert max(map(len, lines)) < 300
    assert lines[-1].startswith(f"committed window ingest/{windows}: orders/0@")
    assert ("197 more" in lines[-1]) == (partitions == 200)
    assert ("20 windows before these are committed too" in lines) == (windows == 40)


@pytest.mark.covers("N114")
def test_keys_that_no_field_has_are_told(tmp_path: Path) -> None:
    """In short, and whatever a producer calls them; of several windows together."""
    world = KnownStream(tmp_path, [Fate.STORED] * 4)
    records = []
    for number, names in enumerate(
        ([("a", 2), ("\u202eb\n", 1), ("k" * 100, 1)], [("a", 1), *zip("cdef", (1,) * 4, strict=True)])
    ):
        world.ends((0, 2 * number + 2))
        (record,) = committed(world, world.ingest(f"run {number}").attempt.run)
        assert record.receipt is not None
        receipt = structs.replace(record.receipt, unknown=UnknownFields(2, tuple(names)))
        records.append(structs.replace(record, receipt=receipt))
    keys = "keys that the stream does not name"
    said = f"2 messages have {keys}: a (2), '{'k' * 30}…' (1), '\\u202eb\\n' (1)"
    assert f"; {said}; into hbase; " in said_of({}, records)[0]
    assert answer_of({}, records).endswith(f"; 4 messages have {keys}: a (3), c (1), d (1), e (1), f (1), 2 more")
    assert answer_of({}, []) == "nothing was committed: there was nothing to read"
    numbers = {one.name: one.value for one in counts(records)}
    assert (numbers["windows"], numbers["unknown_fields"]) == (2, 4)
    assert "keys" not in said_of({}, committed(world, "run 0"))[0]


@pytest.mark.covers("N96")
def test_kafkas_client_tells_of_its_connections_only_to_who_asks() -> None:
    assert not clients._LOG.isEnabledFor(20)
    assert clients._LOG.isEnabledFor(30)
