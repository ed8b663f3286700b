"""Names of fields: Tidemark's own are taken, and no others; and a field may have another name than the message has for it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.support.covering import REPOSITORY
from tests.support.rows import stream_of
from tests.support.stream_text import MINIMAL
from tidemark.drafts.format import named
from tidemark.errors import InvalidStreamFile
from tidemark.schemes.kinds import JsonScheme, RegexScheme
from tidemark.settings.own_names import OWN_BEGINNINGS, OWN_NAMES
from tidemark.settings.parts import FieldName
from tidemark.streams.loading import load

_NAME: TypeAdapter[str] = TypeAdapter(FieldName)
_ROOMS = ("spark", "sinks", "audit", "views", "schemes", "runs", "commit", "functions")
# Texts of the code that begin so and name no column.
_NO_COLUMNS = {
    "_as_written",
    "_delta_log",
    "_origin",
    "_read",
    "_tidemark",
    "_tidemark_fields",
    "_tidemark_ledger",
    "_tidemark_owner",
    *OWN_BEGINNINGS,
}


def words_of_code() -> set[str]:
    """What begins with a `_` in a text of the code, outside of docstrings."""
    found = set()
    for path in (path for room in _ROOMS for path in (REPOSITORY / "tidemark" / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {id(part.value) for part in ast.walk(tree) if isinstance(part, ast.Expr)}
        for part in ast.walk(tree):
            if isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)) and id(part) not in docs:
                text = part.value if isinstance(part.value, str) else part.value.decode("latin-1")
                found |= set(re.findall(r"(?<![A-Za-z0-9_.\-])_[a-z][a-z0-9_]*", text))
    return found


@pytest.mark.covers("S7")
def test_each_name_that_the_code_has_for_itself_is_taken() -> None:
    """A field of the same name would be taken for the column, or hide it."""
    assert words_of_code() - _NO_COLUMNS - OWN_NAMES == set()


@pytest.mark.covers("S7")
@pytest.mark.parametrize("name", ["_id", "__deleted", "__source_ts_ms", "größe", "ключ", "價格", "x" * 255, "a-b", "é"])
def test_a_name_as_messages_have_it_is_a_field(name: str) -> None:
    assert _NAME.validate_python(name) == name
    assert stream_of(scheme={"type": "json", "fields": {name: "string"}}).fields == {name: "string"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("_topic", "_topic is one of Tidemark's own names: give the field another"),
        ("_Offset", "_Offset is one of Tidemark's own names"),
        ("_made_x", "is one of Tidemark's own names"),
        ("a b", "expected the name of a field: letters, digits, _ and -"),
        ("€", "expected the name of a field"),
        ("a\u200bb", "expected the name of a field"),
        ("e\u0301", "some of its letters are written in two characters each"),
        ("-a", "expected the name of a field"),
        ("1a", "expected the name of a field"),
        ("x" * 256, "at most 255 long"),
    ],
)
def test_a_name_that_cannot_be_is_refused(tmp_path: Path, name: str, said: str) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL.replace("id: integer", f"{name!r}: integer" if name.isascii() else f'"{name}": integer'))
    with pytest.raises(InvalidStreamFile, match=re.escape(said)):
        load(path)


@pytest.mark.covers("S7")
def test_a_field_may_have_another_name_than_its_message_says() -> None:
    scheme = stream_of(
        scheme={"type": "json", "fields": {"id": {"type": "long", "from": "@id"}, "name": "string"}, "unknown": "keep"}
    ).scheme
    assert isinstance(scheme, JsonScheme)
    assert scheme.fields == {"id": "integer", "name": "string", "unknown": "string"}
    assert scheme.keys == ("@id", "name")
    pattern = {"name": "all", "regex": "(?<statusCode>.) (?<host>.)"}
    fields = {"status_code": {"type": "string", "from": "statusCode"}, "host": "string"}
    lines = stream_of(scheme={"type": "regex", "fields": fields, "patterns": [pattern]}).scheme
    assert isinstance(lines, RegexScheme)
    assert lines.groups_of(lines.patterns[0]) == ("status_code", "host")


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (
            {"type": "json", "fields": {"a": {"from": "b"}}},
            "fields.a: expected a type, or both of {type: a type, from: ",
        ),
        ({"type": "json", "fields": {"a": {"type": "no", "from": "b"}}}, "fields.a: expected a type"),
        ({"type": "json", "fields": {"a": {"type": "string", "from": ""}}}, "fields.a: expected a type"),
        (
            {"type": "json", "fields": {"a": {"type": "string", "from": "b"}, "b": "string"}},
            "two of them come from 'b'",
        ),
        (
            {"type": "delimited", "fields": {"a": {"type": "string", "from": "b"}}},
            "fields.a: `from` is not for the scheme delimited: its fields are in the order of the line",
        ),
        (
            {"type": "function", "function": "a:b", "fields": {"a": {"type": "string", "from": "b"}}},
            "`from` is not for the scheme function: the function gives the fields by their names",
        ),
    ],
)
def test_a_name_in_the_message_that_cannot_be_is_refused(scheme: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        stream_of(scheme=scheme)
    assert said in str(refused.value)


def test_names_of_a_draft_are_free_and_as_near_as_can_be() -> None:
    keys = [
        "@timestamp",
        "user.name",
        "_id",
        "_topic",
        "timestamp",
        "unknown",
        "Unknown",
        "",
        "€",
        "1",
        "a\ud83d",
        "№ 5",
    ]
    assert named(keys, ["unknown"]) == {
        "@timestamp": "timestamp_2",
        "user.name": "user_name",
        "_id": "_id",
        "_topic": "topic",
        "timestamp": "timestamp",
        "unknown": "unknown_2",
        "€": "field",
        "1": "field_1",
        "№ 5": "field_5",
    }
