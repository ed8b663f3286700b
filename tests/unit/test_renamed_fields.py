"""A field that got another name: what its older files, columns and cells are read as, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from _pytest.outcomes import Failed

from tests.model.planting import planted
from tests.support.lakes import with_a_row
from tests.support.stream_text import MINIMAL
from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.parquet import types
from tidemark.streams.loading import load
from tidemark.types.fields import joined
from tidemark.types.renamed_fields import both, by_today, same_names

WAS = {"customer": ("client",)}


def test_a_row_has_the_names_of_today() -> None:
    assert by_today(WAS, {"id": 1, "client": "a"}) == {"id": 1, "customer": "a"}
    # Written under today's name, beside a column that somebody has left.
    assert by_today(WAS, {"client": "a", "customer": "b"}) == {"client": "a", "customer": "b"}
    assert both({"c": ["b"]}, {"b": ["a"], "x": ["y"]}) == {"c": ("b", "a"), "b": ("a",), "x": ("y",)}
    assert both(WAS, {"customer": ("buyer",)}) == {"customer": ("client", "buyer")}
    assert same_names(WAS, ["id", "client"], ["id", "customer"])
    assert not same_names(WAS, ["id", "client"], ["customer", "id"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The value that an older program wrote takes the place of today's.
        (" for old in names if name not in stored}", " for old in names}"),
        # A row keeps the name that it was written under.
        ("{today.get(name, name): value", "{name: value"),
        # Of a field that was renamed twice, the first name is forgotten.
        ("(*names, *names_of.get(names[at], ()))", "(*names,)"),
        # The stream file's names take the place of those that a folder has noted.
        ("(*one.get(name, ()), *other.get(name, ()))", "other.get(name, one.get(name, ()))"),
        # Any field may take the place of any other.
        ("old == name or old in was.get(name, ())", "old == name or bool(was)"),
    ],
)
def test_planted_bugs_of_renames_are_found(tmp_path: Path, old: str, new: str) -> None:
    def check() -> None:
        test_a_row_has_the_names_of_today()
        test_a_folder_notes_the_names_of_before(tmp_path)

    with planted("tidemark.types.renamed_fields", old, new), pytest.raises((AssertionError, WrongUse, Failed)):
        check()


@pytest.mark.covers("N108")
def test_a_folder_notes_the_names_of_before(tmp_path: Path) -> None:
    base = f"file://{tmp_path}/lake"
    types.keep(base, {"id": "integer", "client": "string", "n": "int"})
    with_a_row(base)
    # Before a run has written under the new name, the stream file says it alone.
    assert types.names_of(base, WAS) == WAS
    assert not types.names_of(base)
    types.keep(base, {"id": "integer", "customer": "string", "m": "integer"}, {**WAS, "m": ("n",)})
    # From then on the folder says it, also to programs that have no stream file, and if the stream file says it no more.
    assert types.names_of(base) == {**WAS, "m": ("n",)}
    assert types.as_stored(base, {"m": "int", "customer": "string"}) == {"m": "integer", "customer": "string"}
    for again in ({"client": "string"}, {"client": "string", "customer": "string"}):
        with pytest.raises(WrongUse, match="has under the name client what is now customer"):
            types.keep(base, again)
    with pytest.raises(WrongUse, match="has the field m as integer, and the stream file now has it as string"):
        types.check(base, {"m": "string"}, {"m": ("n",)})
    types.keep(base, {"buyer": "string"}, {"buyer": ("customer",)})
    assert types.names_of(base)["buyer"] == ("customer", "client")


def test_two_fields_do_not_become_one(tmp_path: Path) -> None:
    base = f"file://{tmp_path}/lake"
    types.keep(base, {"client": "string", "customer": "string"})
    with_a_row(base)
    with pytest.raises(WrongUse, match="it is too late to say that one was the other"):
        types.keep(base, {"customer": "string"}, WAS)


@pytest.mark.covers("N108")
def test_delta_refuses_it_and_says_what_to_do(tmp_path: Path) -> None:
    base = f"file://{tmp_path}/table"
    delta_table.prepare(base, delta_table.columns({"client": "string"}), "s", "ledger")
    with_a_row(base)
    said = "has the column client, and the stream file says that it is now customer: .* Name another folder"
    with pytest.raises(WrongUse, match=said):
        delta_table.check_columns(base, {"customer": "string"}, WAS)
    with pytest.raises(WrongUse, match=said):
        delta_table.prepare(base, delta_table.columns({"customer": "string"}), "s", "ledger", WAS)
    # A new table has the new name.
    delta_table.prepare(f"{base}2", delta_table.columns({"customer": "string"}), "s", "ledger", WAS)


@pytest.mark.parametrize(
    ("was", "said"),
    [
        ({"customer": "client"}, "was: the stream has no field customer"),
        ({"id": "paid"}, "was: paid is the name of a field of today"),
        ({"id": "PAID"}, r"was: PAID is the name of a field of today \(paid\)"),
        ({"id": "number", "paid": ["number"]}, "was: number is named twice"),
        ({"id": []}, "was.id"),
    ],
)
def test_what_was_cannot_say(tmp_path: Path, was: dict[str, Any], said: str) -> None:
    path = tmp_path / "orders.yaml"
    text = MINIMAL.replace("id: integer", "id: integer\n    paid: boolean")
    path.write_text(text + yaml.safe_dump({"was": was}))
    with pytest.raises(InvalidStreamFile, match=said):
        load(path)


@pytest.mark.covers("N91")
@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("map<string,decimal(5,2)>", "map<string,decimal(9,2)>", "map<string,decimal(9,2)>"),
        ("struct<a:float,b:int>", "struct<a:double,b:smallint>", "struct<a:double,b:int>"),
        (
            "array<struct<m:map<string,tinyint>>>",
            "array<struct<m:map<string,int>>>",
            "array<struct<m:map<string,int>>>",
        ),
        ("array<int>", "array<decimal(12,0)>", None),
        ("array<decimal(5,2)>", "array<decimal(7,3)>", None),
        ("struct<a:int>", "struct<b:int>", None),
        ("struct<a:int>", "struct<a:int,b:int>", None),
        ("array<int>", "map<string,int>", None),
        ("array<int>", "int", None),
    ],
)
def test_what_lies_within_may_become_wider(one: str, other: str, found: str | None) -> None:
    assert joined(one, other) == joined(other, one) == found
