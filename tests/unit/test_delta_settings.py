"""The settings of sinks in Delta tables: `streams check` refuses exactly the fields that Delta refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidemark.errors import WrongUse
from tidemark.sinks.contract import SettingsContext
from tidemark.sinks.delta import table
from tidemark.sinks.delta.latest import table as latest
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.delta.settings import DeltaSink

IN_MAP = "map<string,timestamp_ntz>"
FIELDS: list[tuple[dict[str, str], str]] = [
    ({"m": IN_MAP}, "m"),
    ({"a": f"array<{IN_MAP}>"}, "a"),
    ({"s": f"struct<m:{IN_MAP}>"}, "s"),
    ({"m": "map<string,struct<at:timestamp_ntz>>"}, "m"),
    ({"m": "map<string,timestamp>", "n": IN_MAP}, "n"),
    # Another field says that the table has local times.
    ({"m": IN_MAP, "at": "timestamp_ntz"}, ""),
    ({"m": IN_MAP, "at": "struct<of:array<timestamp_ntz>>"}, ""),
    ({"at": "array<timestamp_ntz>"}, ""),
    ({"m": "map<string,timestamp>", "d": "map<string,date>"}, ""),
]


@pytest.mark.covers("N81")
@pytest.mark.parametrize(("fields", "refused"), FIELDS, ids=str)
def test_fields_that_delta_refuses_are_refused_before(fields: dict[str, str], refused: str, tmp_path: Path) -> None:
    fields = {"id": "integer", **fields}
    base, around = f"file://{tmp_path}/table", SettingsContext(fields, "at_least_once", lambda *_: True)
    sinks: list[Any] = [
        DeltaSink(type="delta", folder="table"),
        DeltaLatestSink.model_validate({"type": "delta_latest", "folder": "table", "key": "id"}),
    ]
    for sink in sinks:
        said = sink.problem_with(around)
        assert (said or "").startswith(f"sink {sink.name}: {refused} is of type" if refused else "")
        assert bool(said) == bool(refused)
    prepare = [
        lambda: table.prepare(base, table.columns(fields), "s", "l"),
        lambda: latest.prepare(f"{base}2", fields, "s", "l", ["id"], 3, "snappy"),
    ]
    for one in prepare:
        if refused:
            with pytest.raises(WrongUse, match="Delta refuses the table"):
                one()
        else:
            one()
