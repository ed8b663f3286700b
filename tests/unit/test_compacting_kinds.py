"""What `tidemark compact` takes: sinks of each type whose kind names a compaction, and what Parquet's says."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.compactions import authority_of, committed
from tests.support.memory import MemoryStore
from tidemark.clients.connections import Connection
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.sinks.contract import CompactionRequest, Replaceable, Replacement, SinkType
from tidemark.sinks.kinds import KINDS, kind_of, sink_to_compact, worker_modules
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.compactions import CompactedFolder, WindowSpan
from tidemark.sinks.parquet.folders import OWNER_FILE
from tidemark.sinks.parquet.settings import FolderSettings, ParquetSink


class LinesSink(FolderSettings):
    type: Literal["json_lines"]
    name: str = "lines"


class LinesCompaction:
    def at_work(self, opened: object, settings: object) -> str:
        return "theirs"


def test_the_registry_says_which_sinks_can_be_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    parquet, lines = ParquetSink(type="parquet", folder="a"), LinesSink(type="json_lines", folder="b")
    assert sink_to_compact([parquet, lines], "orders", None) is parquet
    with pytest.raises(
        WrongUse,
        match="orders: name with --sink one sink of type delta_aggregates or delta_latest or hbase_aggregates or "
        "hbase_latest or iceberg or iceberg_aggregates or iceberg_latest or parquet; there are: parquet",
    ):
        sink_to_compact([parquet, lines], "orders", "lines")
    kind = SinkType(LinesSink, "", "", compaction=f"{__name__}:LinesCompaction")
    monkeypatch.setitem(KINDS, "json_lines", kind)
    assert sink_to_compact([parquet, lines], "orders", "lines") is lines
    assert kind_of(lines.type).make_compaction().at_work(cast("Any", None), lines) == "theirs"
    with pytest.raises(
        WrongUse,
        match="type delta_aggregates or delta_latest or hbase_aggregates or hbase_latest or iceberg or iceberg_aggregates or "
        "iceberg_latest or json_lines or parquet; there are: parquet, lines",
    ):
        sink_to_compact([parquet, lines], "orders", None)
    with pytest.raises(WrongUse, match="there are: none"):
        sink_to_compact([], "orders", None)


def test_what_a_warm_engine_loads_for_its_workers_is_there() -> None:
    assert "tidemark.spark.sinks.kafka.writer" in worker_modules()
    assert [name for name in worker_modules() if find_spec(name) is None] == []


def test_what_parquet_says_of_its_compactions(tmp_path: Path) -> None:
    sink, base = ParquetSink(type="parquet", folder="orders"), f"file://{tmp_path}/orders"
    lake = Connection("lake_default", extra={"path": str(tmp_path)})
    windows = [committed(base, seq, range(seq * 10, seq * 10 + 10)) for seq in (1, 2, 3)]
    sizes = []
    for window in windows:
        file = Path(window.record.places[0].place["folder"].removeprefix("file://")) / "part-0.parquet"
        file.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": ["a"]}), file)
        sizes.append(file.stat().st_size)
    (tmp_path / "orders" / OWNER_FILE).write_text("{}")
    ledger = Ledger(MemoryStore(), "s", clock=lambda: 1_000_000)
    ledger.view = lambda sink=None: SimpleNamespace(windows=windows, authority=authority_of(windows))  # type: ignore[method-assign]
    opened = SimpleNamespace(ledger=ledger, connections=lambda name: lake)

    compaction = kind_of(sink.type).make_compaction()
    assert compaction.at_work(opened, sink) is None
    assert compaction.made(opened, sink, "mine") == []
    assert compaction.planned(opened, sink, CompactionRequest(windows=2)) == [
        Replaceable(["ingest/1 to 2"], 2, 2, sum(sizes[:2]))
    ]

    held = compactions.claim(ledger, "parquet", "mine")
    assert compaction.at_work(opened, sink) == "mine"
    spans = (WindowSpan("ingest", 1, 3), WindowSpan("replay-1", 1, 2))
    folder = CompactedFolder(base=base, folder="f", generation=1, windows=spans, rows=5, run="mine", at=1)
    compactions.finish(ledger, compactions.replace(ledger, held, folder))
    assert compaction.at_work(opened, sink) is None
    assert compaction.made(opened, sink, "mine") == [Replacement(["ingest/1 to 2", "replay-1/1"], 5, "f")]
    assert compaction.made(opened, sink, "another") == []
