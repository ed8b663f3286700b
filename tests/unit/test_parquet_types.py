"""The types of a Parquet sink's fields: one that changes is refused before a file has it, by every writer and reader."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.lakes import with_a_row
from tidemark.errors import WrongUse
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.files import attempt_folder
from tidemark.types.fields import FieldType, canonical

FIELDS: dict[str, FieldType] = {
    "id": "integer",
    "s": "string",
    "d-1": "double",
    "at": "timestamp",
    "b": "boolean",
    "raw": "binary",
}
ROW = {"id": 5, "s": "x", "d-1": 0.5, "at": datetime(2026, 11, 21, tzinfo=UTC), "b": True, "raw": b"\xff"}


@pytest.fixture
def base(tmp_path: Path) -> str:
    return f"file://{tmp_path}/lake"


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_another_type_is_refused(base: str, name: str) -> None:
    types.keep(base, FIELDS)
    with_a_row(base)
    other: FieldType = "integer" if FIELDS[name] != "integer" else "string"
    with pytest.raises(
        WrongUse, match=f"has the field {name} as {FIELDS[name]}, and the stream file now has it as {other}"
    ):
        types.keep(base, {**FIELDS, name: other, "more": "string"})
    # Nothing was noted of what was refused.
    types.keep(base, {"more": "integer"})
    # A field that was left out for a while is still there in older files.
    with pytest.raises(WrongUse, match=f"has the field {name}"):
        types.check(base, {name: other})
    assert types.check(base, {}) == {**FIELDS, "more": "integer"}


def test_a_field_renamed_in_case_alone_is_refused(base: str) -> None:
    """Spark would read the older files' column as the new field, by its new type, and Arrow would read two fields."""
    types.keep(base, FIELDS)
    with_a_row(base)
    kinds: tuple[FieldType, ...] = ("integer", "string")
    for kind in kinds:
        with pytest.raises(WrongUse, match="has the field id, and the stream file now names it ID"):
            types.keep(base, {"ID": kind})
        with pytest.raises(WrongUse, match="Keep the name id"):
            types.check(base, {"ID": kind, "s": "string"})
    assert types.check(base, FIELDS) == FIELDS


@pytest.mark.parametrize("int96", [False, True])
def test_files_of_earlier_versions_say_their_types(base: str, int96: bool) -> None:
    assert types.check(base, FIELDS) == {}
    for lane, seq in (("ingest", 1), ("ingest", 2), ("replay-1", 1)):
        folder = Path(attempt_folder(base, lane, seq, 7).removeprefix("file://"))
        folder.mkdir(parents=True)
        (folder / "_SUCCESS").touch()
        if (lane, seq) == ("ingest", 1):
            table = pa.table({name: [value] for name, value in {**ROW, "_offset": 1}.items()})
            (folder / "by_s=x").mkdir()
            pq.write_table(table, folder / "by_s=x" / "part-0.parquet", use_deprecated_int96_timestamps=int96)
    # The newest windows have no files.
    with pytest.raises(WrongUse, match="has the field at as timestamp"):
        types.check(base, {"at": "string"})
    types.keep(base, {"id": "integer"})
    assert types.check(base, FIELDS) == FIELDS


@pytest.mark.covers("N91")
@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("int", "integer", "integer"),
        ("integer", "int", "integer"),
        ("smallint", "int", "int"),
        ("float", "double", "double"),
        ("double", "float", "double"),
        ("decimal(5,2)", "decimal(12,2)", "decimal(12,2)"),
        ("array<int>", "array<int>", "array<int>"),
    ],
)
def test_files_are_read_and_written_with_the_widest_type(base: str, old: str, new: str, kept: str) -> None:
    types.keep(base, {"a": old, "b": "string"})
    assert types.as_stored(base, {"a": new}) == {"a": kept}
    types.keep(base, {"a": new})
    for one in (old, new):
        assert types.as_stored(base, {"a": one}) == {"a": kept}
    assert types.check(base, {}) == {"a": kept, "b": "string"}


@pytest.mark.covers("N91")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int", "decimal(12,2)"),
        ("integer", "decimal(20,0)"),
        ("decimal(5,2)", "decimal(12,3)"),
        ("int", "double"),
        ("integer", "string"),
        ("timestamp", "timestamp_ntz"),
        ("date", "timestamp"),
        ("array<int>", "array<decimal(12,0)>"),
        ("struct<a:int>", "struct<a:int,b:int>"),
        ("map<string,int>", "array<int>"),
    ],
)
def test_a_type_whose_digests_differ_is_refused(base: str, old: str, new: str) -> None:
    was, now = canonical(old), canonical(new)
    types.keep(base, {"a": was})
    with_a_row(base)
    said = re.escape(f"has the field a as {was}, and the stream file now has it as {now}: name another folder")
    with pytest.raises(WrongUse, match=said):
        types.keep(base, {"a": now})
    with pytest.raises(WrongUse, match=said):
        types.as_stored(base, {"a": now})


@pytest.mark.covers("N84")
@pytest.mark.parametrize("now", ["decimal(12,2)", "date", "array<string>", "struct<a:int>"])
def test_what_was_text_may_stay_text(base: str, now: str) -> None:
    types.keep(base, {"a": "string"})
    with_a_row(base)
    with pytest.raises(WrongUse, match="`as_text` goes on with its text"):
        types.keep(base, {"a": now})
