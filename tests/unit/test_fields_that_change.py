"""`tidemark streams check --against-ledger`: before a deployment, what a run would refuse of the fields' types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import tidemark
from tests.support.lakes import with_a_row
from tidemark.errors import EXIT_WRONG_USE
from tidemark.sinks.delta import table
from tidemark.sinks.parquet import types


@pytest.mark.slow
@pytest.mark.covers("N91")
def test_the_places_of_the_sinks_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    known = {
        "HERE": {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")},
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[2]"},
        "LAKE_DEFAULT": {"conn_type": "tidemark_lake", "extra": {"path": str(lake)}},
    }
    for name, said in known.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(said))

    def checked(code: int = 0, *more: str, **fields: str) -> str:
        path = tmp_path / "orders.yaml"
        stream = {
            "stream": "orders",
            "source": {"topics": ["orders"]},
            "scheme": {"type": "json", "fields": {"id": "integer", **fields}},
            "sinks": [{"type": "parquet", "folder": "files"}, {"type": "delta", "folder": "table"}],
            "dead_letters": {"type": "sql", "sql": "here"},
            "ledger": {"type": "sql", "sql": "here"},
        }
        path.write_text(yaml.safe_dump(stream))
        return tidemark("streams", "check", str(path), *more, code=code)[1]

    checked(0, "--against-ledger", n="int")
    types.keep(f"file://{lake}/files", {"id": "integer", "n": "int"})
    table.prepare(f"file://{lake}/table", table.columns({"id": "integer", "n": "int"}), "orders", "here")
    # Before there is a row, any type will do.
    checked(0, "--against-ledger", n="decimal(12,2)")
    for place in ("files", "table"):
        with_a_row(f"file://{lake}/{place}")
    for same in ("int", "smallint"):
        checked(0, "--against-ledger", n=same, more="date")
    # The files would take it, and the table would not.
    said = checked(EXIT_WRONG_USE, "--against-ledger", n="integer")
    assert (
        "lake/table has the column n as int, and the stream file now has it as integer, and Delta cannot widen" in said
    )
    said = checked(EXIT_WRONG_USE, "--against-ledger", n="decimal(12,2)")
    assert "lake/files has the field n as int, and the stream file now has it as decimal(12,2)" in said
    assert "names it N" in checked(EXIT_WRONG_USE, "--against-ledger", N="int")
    # Without the option, nobody is asked.
    checked(0, n="decimal(12,2)")
