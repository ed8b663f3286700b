"""The base of all parts of a stream file: names, lists, and strict validation."""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from tidemark.functions import FUNCTION_NAME
from tidemark.settings.own_names import is_own

T = TypeVar("T")

# YAML has only lists; here they become immutable tuples.
Items = Annotated[tuple[T, ...], Strict(False)]

# The expectation that an error names, by the pattern that the text does not match.
PATTERNS: dict[str, str] = {}


def form(pattern: str, expected: str) -> Any:
    """A pattern for a text in a stream file, and the words that an error has for it."""
    PATTERNS[pattern] = expected
    return Field(pattern=pattern)


Name = Annotated[
    str,
    form(
        r"^[a-z][a-z0-9_]{0,62}$", "a name of small letters, digits and _, which begins with a letter, at most 63 long"
    ),
]
Topic = Annotated[
    str, form(r"^[A-Za-z0-9._-]{1,249}$", "the name of a topic: letters, digits, dots, _ and -, at most 249 long")
]
FileName = Annotated[
    str,
    form(
        r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$",
        "a name of letters, digits, _, dots and -, which begins with none of the last two, at most 200 long",
    ),
]


def _one_name(table: str) -> str:
    """A table of HBase by the one name that all have for it. Raises ValueError for one of HBase's own."""
    namespace, _, name = table.rpartition(":")
    if namespace == "hbase":
        raise ValueError(f"{table} is one of HBase's own tables; name another one")
    return name if namespace == "default" else table


Table = Annotated[
    str,
    form(
        r"^([A-Za-z0-9_]{1,100}:)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$",
        "a table of HBase: letters, digits, _, dots and -, beginning with none of the last two, at most 200 long; "
        "with its namespace if it has one: reports:orders",
    ),
    AfterValidator(_one_name),
]
ConnectionName = Annotated[
    str,
    form(
        r"^[A-Za-z][A-Za-z0-9_]{0,99}$",
        "the name of a connection, not its address: letters, digits and _, beginning with a letter, at most 100 long",
    ),
]
# Beyond ASCII the pattern has all characters: which are letters is checked in Python.
_FIELD_NAME = "^[A-Za-z_\u00a1-\U0010ffff][A-Za-z0-9_\u00a1-\U0010ffff-]{0,254}$"
A_FIELD_NAME = "the name of a field: letters, digits, _ and -, beginning with a letter or _, at most 255 long"


def _not_own(name: str) -> str:
    if not all(one in "_-" or unicodedata.category(one)[0] in "LMN" for one in name) or not (
        name[0] == "_" or unicodedata.category(name[0])[0] == "L"
    ):
        raise ValueError(f"expected {A_FIELD_NAME}")
    if unicodedata.normalize("NFC", name) != name:
        raise ValueError(
            "some of its letters are written in two characters each, and look like other ones: write them as one"
        )
    if is_own(name):
        raise ValueError(
            f"{name} is one of Tidemark's own names: give the field another, as {name.strip('_')}: {{from: {name}}}"
        )
    return name


# Names a column of tables and files: valid as HBase qualifier, as Parquet column, and in SQL between backticks.
FieldName = Annotated[str, form(_FIELD_NAME, A_FIELD_NAME), AfterValidator(_not_own)]

# Text that Airflow keeps of a stream file. In PostgreSQL, text may hold every character except U+0000.
Text = Annotated[str, form(r"^[^\x00]*$", "a text without the character U+0000")]
# A function of one's own.
FunctionName = Annotated[str, form(FUNCTION_NAME, "a function, as module:name"), Field(max_length=200)]

# The regions that a new table has, with equally many salts each. HBase splits them further as they grow.
Regions = Literal[1, 2, 4, 8, 16]

# HBase's default for `hbase.client.keyvalue.maxsize`, and for the same limit of its servers.
MAX_CELL_BYTES = 10_485_760
CellBytes = Annotated[int, Field(ge=1_024, le=2_147_483_647)]


class Part(BaseModel):
    """Unknown keys are refused, and `"5"` is not 5."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
