"""What an attempt writes once more after an erasure, and is killed before it finds out: named, and cleared when asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.simulation.playing import Play, stage
from tests.simulation.steps import Program, Step
from tests.simulation.work import ROWS
from tests.simulation.world import Setting
from tests.support.delta_in_memory import add
from tests.support.erasures import ANN, REASON
from tests.support.lakes import Lake
from tests.support.streams_in_memory import offsets
from tidemark.clients.connections import Connection
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs import erasing
from tidemark.sinks.contract import Erasing
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.sink import DeltaAdmin
from tidemark.sinks.hbase.rows import MARK, PartitionKeys
from tidemark.sinks.iceberg.sink import IcebergAdmin
from tidemark.sinks.parquet.sink import ParquetAdmin

GONE = offsets((0, 5, 6))
LEFT = "which an attempt has left: remove this folder"
COORDINATES = ("_topic", "_incarnation", "_partition", "_offset")


@pytest.fixture
def erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Lake, str, int]:
    """A stream with an erasure, and the lane and generation of a replay that was given up before."""
    lake = Lake(tmp_path)
    lake.ingest()
    lane = lake.cancelled_replay()
    (folder,) = (one for one in lake.holding(5) if lane in one)
    monkeypatch.setattr("tidemark.sinks.hbase.sink.HBaseAdmin.late", lambda *_: 0)
    lake.erase(monkeypatch)
    return lake, lane, int(folder.rpartition("=")[2])


def _remains(lake: Lake, wanted: RangeSet = GONE) -> str:
    return next(one.remains for one in erasing.remaining(lake.stream.opened, wanted) if one.name == "lake")


@pytest.mark.covers("E64")
def test_folders_that_came_late_are_named_and_cleared(erased: tuple[Lake, str, int]) -> None:
    lake, lane, generation = erased
    assert LEFT not in _remains(lake)
    lake.write(offsets((0, 3, 8)), lane, 1, generation)
    assert LEFT in _remains(lake)
    # Of what was not erased, nothing is said, and nothing is cleared.
    other = offsets((0, 3, 4))
    assert LEFT not in _remains(lake, other)
    erasing.clear_again(lake.stream.opened, other)
    assert any(lane in one for one in lake.holding(5))
    erasing.clear_again(lake.stream.opened, GONE)
    assert not any(lane in one for one in lake.holding(5))
    assert LEFT not in _remains(lake)


@pytest.mark.covers("E64")
def test_what_several_windows_have_erased_is_cleared_window_by_window(
    erased: tuple[Lake, str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, lane, generation = erased
    other = offsets((0, 3, 4))
    again = erasing.open_erasure(lake.stream.opened, "again", erasing.choose(lake.stream.opened, other), REASON, ANN)
    erasing.erase(lake.stream.opened, again, "again")
    lake.write(offsets((0, 3, 8)), lane, 1, generation)
    passes: list[RangeSet] = []
    real = ParquetAdmin.erase

    def noted(self: ParquetAdmin, connections: Any, place: Any, one: Erasing) -> None:
        passes.append(one.erased)
        real(self, connections, place, one)

    monkeypatch.setattr(ParquetAdmin, "erase", noted)
    erasing.clear_again(lake.stream.opened, GONE | other)
    assert RangeSet(part for one in passes for part in one) == GONE | other
    assert len(passes) == 2
    assert not any(lane in folder for offset in (3, 5) for folder in lake.holding(offset))


@pytest.mark.covers("E64")
def test_what_came_late_into_tables(erased: tuple[Lake, str, int]) -> None:
    lake, lane, generation = erased
    opened, fields = lake.stream.opened, lake.stream.opened.fields
    standing = opened.ledger.standing()
    (by,) = (one for one in standing.windows if one.erased)
    erasing_of = Erasing(by.record, by.erased, standing)
    base = f"file://{lake.folder}/table"
    delta_table.prepare(base, delta_table.columns(fields), "orders", "ledger")
    schema = delta_table.columns(fields)
    schema = schema.remove(schema.get_field_index("_generation"))
    row = {**dict.fromkeys(schema.names), **dict(zip(COORDINATES, ("orders", 1, 0, 5), strict=True))}
    for one in (generation, by.generation + 1):
        folder = Path(delta_table.partition_folder(base, one).removeprefix("file://"))
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist([row], schema), folder / "part-0.parquet")
        add(base, f"of {one}", one, "late/1")
    # Of the newer generation nobody knows yet whether it counts.
    place = {"base": base}
    assert DeltaAdmin().late(opened.connections, place, [erasing_of]) == 1
    DeltaAdmin().erase(opened.connections, place, erasing_of)
    assert DeltaAdmin().late(opened.connections, place, [erasing_of]) == 0
    assert {*delta_table.files_of(base)} == {by.generation + 1}
    # The files of an Iceberg table that nobody has published.
    lake.base = f"file://{lake.folder}/iceberg/data"
    lake.write(offsets((0, 3, 8)), lane, 1, generation)
    catalog = Connection("catalog", host=str(lake.folder / "catalog.db"), kind="sqlite")
    named = {"base": f"file://{lake.folder}/iceberg", "catalog": "", "catalog_name": "c", "table": "lake.orders"}
    assert IcebergAdmin().late(lambda _: catalog, named, [erasing_of]) == 1


@pytest.mark.covers("E64")
def test_the_command_clears_again_and_a_dry_run_does_not() -> None:
    with stage():
        steps = (Step("produce", a=8), Step("produce", a=8), Step("ingest", 9), Step("erase", 11, a=7, b=0))
        play = Play(Program(Setting(), steps))
        for number, step in enumerate(steps):
            play.do(number, step)
        ((at, offset),) = play.oracle.erased
        late = PartitionKeys(TopicPartition(at.topic, at.partition, at.incarnation)).key(offset, 0), MARK, b"late"

        def there() -> bool:
            return any(row == late[0] for row, *_ in play.world.hbase.everything(ROWS))

        for dry in (False, True):
            play.world.hbase.compact()
            play.world.hbase.put(ROWS, [late], 1)
            assert there()
            (before,) = play.oracle.requests[next(key for key in play.oracle.requests if key[1] == "run 11")]
            before.run, before.dry = f"again {dry}", dry
            play.world.run(before.begin, None, 0, "again")
            assert there() is dry
