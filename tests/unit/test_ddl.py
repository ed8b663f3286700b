"""Schemas in Spark's DDL: read as Spark reads them, and what is wrong with one is said of its field."""

from __future__ import annotations

import pytest

from tests.support.schemas import SCHEMAS
from tidemark.types.ddl import schema_of


@pytest.mark.parametrize("ddl", SCHEMAS)
def test_a_schema(ddl: str) -> None:
    found = schema_of(ddl)
    assert f"struct<{','.join(f'{one.name}:{one.type}' for one in found)}>" == SCHEMAS[ddl]


def test_what_has_to_be_there() -> None:
    a, b = schema_of("a struct<x: int NOT NULL, y: int>, b int not null")
    assert (a.required, [one.required for one in a.type.members], b.required) == (False, [True, False], True)


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("", "expected the name of a field, found 'the end'"),
        ("id", "id: expected one of the types string, .*; found the end"),
        ("id int,", "expected the name of a field, found 'the end'"),
        ("id int name string", "expected a comma or the end behind id, found 'name'"),
        ("id decim", "id: expected one of the types .*; found 'decim'"),
        ("id char(3)", "id: expected one of the types .*; found 'char'"),
        ("a interval", "a: expected one of the types .*; found 'interval'"),
        ("price decimal(3,5)", r"price: decimal\(3,5\); expected at most 38 digits"),
        ("price decimal(39)", r"price: decimal\(39,0\); expected at most 38 digits"),
        ("price decimal(x)", "price: expected a number of digits, found 'x'"),
        ("a array<strin>", r"a\[\]: expected one of the types .*; found 'strin'"),
        ("a array<int", "a: expected '>', found the end"),
        ("a array<int>>", "expected a comma or the end behind a, found '>'"),
        ("a map<int,string>", "a: the keys of a JSON object are strings"),
        ("a struct<>", "expected the name of a field of a, found '>'"),
        ("a struct<b: struct<c: in>>", "a.b.c: expected one of the types"),
        ("id int not", "id: expected 'NULL', found the end"),
        ("id int, ID string", "id is named twice"),
        ("a struct<x: int, X: int>", "a.x is named twice"),
        ("a-b int", "cannot be read from '-b int' on; a name with other characters"),
        ("a int comment x", "a: expected a text in quotes behind COMMENT, found 'x'"),
        (f"a {'array<' * 11}int{'>' * 11}", r"a\S+: array is nested deeper than 10 levels .*type string or variant"),
        (f"a {'map<string, ' * 11}int{'>' * 11}", "map is nested deeper than 10 levels"),
        (f"a {'struct<b: ' * 11}int{'>' * 11}", "struct is nested deeper than 10 levels"),
    ],
)
def test_a_schema_that_is_wrong(ddl: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        schema_of(ddl)


@pytest.mark.parametrize("begins", ["array<", "map<string, ", "struct<b: "])
def test_ten_levels_are_read_however_names_look(begins: str) -> None:
    """Levels are counted, and no marks in names: those between backticks may hold any."""
    ddl = f"a {begins * 10}int{'>' * 10}, `{'.' * 60}[{{` array<int>, b {begins * 10}int{'>' * 10}"
    assert [one.name for one in schema_of(ddl)] == ["a", "." * 60 + "[{", "b"]
