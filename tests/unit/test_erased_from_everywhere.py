"""Of each type of sink with each store of dead letters: after an erasure and a compaction, no file holds what was erased.

Whoever looks has no ledger and no library of ours: all files of the whole folder, with the catalog and the database in it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from deltalake import DeltaTable

from tests.support.delta_in_memory import DeltaInMemory
from tests.support.grep import holding
from tests.support.iceberg_in_memory import COLUMNS, LETTERS, IcebergInMemory
from tests.support.latest_tables import (
    Change,
    DeltaAggregatesInMemory,
    DeltaLatestInMemory,
    IcebergAggregatesInMemory,
    IcebergLatestInMemory,
    LatestInMemory,
    rewritten,
)
from tests.support.letter_files import add_file, prepare_table, write_file
from tests.support.letters_in_databases import write
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.clients.connections import Connection
from tidemark.ledger.records import SinkReceipt
from tidemark.ledger.register import note_places
from tidemark.runs import erasing
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.dead_letters import kinds as stores
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.sinks.iceberg.compacting import compact
from tidemark.sinks.kinds import KINDS
from tidemark.sinks.parquet import files, steps
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.streams.loading import load

SECRET = "anna@secret.org, a value that is long enough to be in a page of its own" * 3
# As the column `id` has it, at offset 0.
FIRST = 0x5EC2E7_00000000
GONE = 5
ERASED = offsets((0, GONE, GONE + 1))
# What is no file of ours: `tests/integration/test_erased_from_servers.py` looks at what HBase, Kafka and databases keep.
ON_SERVERS = {"hbase", "hbase_latest", "hbase_aggregates", "kafka"}


@dataclass
class ParquetInMemory(IcebergInMemory):
    """The sink `parquet`."""

    text: str = TEXT.replace("  - type: hbase\n    table: orders\n", "  - type: parquet\n    folder: orders\n").replace(
        *LETTERS
    )
    columns: ClassVar = [name for name in COLUMNS.names if name != "_generation"]

    @property
    def base(self) -> str:
        return f"file://{self.folder}/orders"

    def prepare(self) -> None:
        register = self.opened.ledger.register()
        assert register is not None
        files.own(self.base, "orders", register[1].ledger, "parquet")

    def receipt(self, lane: str, seq: int, generation: int) -> SinkReceipt:
        folder = files.attempt_folder(self.base, lane, seq, generation)
        return SinkReceipt(name="parquet", type="parquet", place={"base": self.base, "folder": folder})


def _compact_parquet(world: StreamInMemory) -> None:
    (sink,) = (one for one in world.opened.stream.sinks if isinstance(one, ParquetSink))
    steps.compact(world.opened, sink, "compaction", CompactionRequest(), rewritten)


def _compact_latest(world: StreamInMemory) -> None:
    assert isinstance(world, LatestInMemory)
    world.compact("compaction")
    world.vacuum(24)


def _compact_iceberg(world: StreamInMemory) -> None:
    assert isinstance(world, IcebergInMemory)
    compact(world.opened, world.sink, "compaction", CompactionRequest())


def _vacuum(world: StreamInMemory) -> None:
    """What the list of what remains says to do with a table of Delta."""
    _vacuumed(f"file://{world.folder}/orders")


def _vacuumed(base: str) -> None:
    DeltaTable(base).vacuum(0, enforce_retention_duration=False, dry_run=False)


def _latest(kind: type[LatestInMemory]) -> Callable[[Path], LatestInMemory]:
    return lambda folder: kind(
        folder, code=lambda _, offset: [Change(offset % 7, SECRET if offset == GONE else f"m{offset}")]
    )


def _by_number(kind: type[IcebergInMemory]) -> Callable[[Path], IcebergInMemory]:
    return lambda folder: kind(folder, first=FIRST)


# The stream, and what a person does after an erasure.
SINKS: dict[str, tuple[Callable[[Path], StreamInMemory], Callable[[StreamInMemory], None]]] = {
    "parquet": (_by_number(ParquetInMemory), _compact_parquet),
    "delta": (_by_number(DeltaInMemory), _vacuum),
    "iceberg": (_by_number(IcebergInMemory), _compact_iceberg),
    "delta_latest": (_latest(DeltaLatestInMemory), _compact_latest),
    "iceberg_latest": (_latest(IcebergLatestInMemory), _compact_latest),
    "delta_aggregates": (_latest(DeltaAggregatesInMemory), _compact_latest),
    "iceberg_aggregates": (_latest(IcebergAggregatesInMemory), _compact_latest),
}
STORES = {"sql": "table: dl", "parquet": "folder: dl", "delta": "folder: dl"}


@pytest.mark.covers("E65")
def test_no_type_is_left_out() -> None:
    assert {*SINKS} == {*KINDS} - ON_SERVERS
    assert {*STORES} == {*stores.KINDS} - ON_SERVERS


def _write_letters(world: StreamInMemory, store: str, generation: int) -> str:
    """Dead letters of a window, as Spark leaves them. Returns their folder."""
    place = next(one for one in world.opened.places_now() if one.name == "dead_letters")
    note_places(world.opened.ledger, [place])
    register = world.opened.ledger.register()
    assert register is not None
    ledger = register[1].ledger
    values = ((2, b"kept"), (GONE, SECRET.encode()))
    if store == "sql":
        letters = letters_in(world.opened.connections, "sql_default", "dl", "orders")
        letters.prepare("orders", ledger)
        for offset, value in values:
            write(letters, generation, offset, at=at(0), value=value)
        return ""
    base = str(place.place["base"])
    if store == "delta":
        prepare_table(base, "orders", ledger)
    else:
        files.own(base, "orders", ledger, "dead_letters")
    for part, (offset, value) in enumerate(values):
        (add_file if store == "delta" else write_file)(
            base, generation, offset, at=at(0), part=part, seq=1, value=value
        )
    return base


def _found(folder: Path) -> set[str]:
    return holding(folder, SECRET) | holding(folder, FIRST + GONE) | holding(folder, str(FIRST + GONE))


@pytest.mark.covers("E65")
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("sink", SINKS)
def test_nobody_finds_what_was_erased(sink: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = StreamInMemory._connection
    monkeypatch.setattr(
        StreamInMemory,
        "_connection",
        lambda self, name: (
            Connection(name, host=str(tmp_path / "dl.db"), kind="sqlite")
            if name.startswith("sql")
            else real(self, name)
        ),
    )
    make, compaction = SINKS[sink]
    world = make(tmp_path)
    path = world.opened.file.path
    path.write_text(path.read_text().replace(LETTERS[1], f"dead_letters:\n  type: {store}\n  {STORES[store]}\n"))
    world.opened = replace(world.opened, file=load(path))
    for end in (7, 14):
        world.ends((0, end))
        world.ingest(f"run {end}")
    base = _write_letters(world, store, world.opened.ledger.committed()[0].generation)
    assert len(_found(tmp_path)) > 1
    world.now += 1000
    world.erase(ERASED)

    def remains() -> str:
        return " ".join(one.remains for one in erasing.remaining(world.opened, ERASED) if one.type != "kafka")

    # The paths that the list gives are below the folder of a table.
    unnamed = [one for one in _found(tmp_path) if not _is_named(one, remains())]
    assert unnamed == []
    compaction(world)
    if store == "delta":
        _vacuumed(base)
    assert _found(tmp_path) == set()
    assert remains().strip() == ""
    kept = holding(tmp_path, FIRST + GONE - 1) | holding(tmp_path, f"m{GONE - 1}")
    assert kept


def _is_named(file: str, said: str) -> bool:
    """By its name below its table, or by the window that wrote it."""
    parts = Path(file).parts
    by_name = any(str(Path(*parts[at:])) in said for at in range(len(parts) - 1))
    window = next((f"files of ingest/{int(one.partition('=')[2])}" for one in parts if one.startswith("seq=")), None)
    with suppress(ValueError):
        return by_name or (window is not None and window in said)
    return by_name
