"""The base of all parts of a stream file: names, lists, and strict validation."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict

T = TypeVar("T")

# YAML has only lists; here they become immutable tuples.
Items = Annotated[tuple[T, ...], Strict(False)]

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Table = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
ConnectionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,99}$")]
# Names a column of tables and files: valid as HBase qualifier, as Parquet column, and in SQL between backticks.
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]

# Text that Airflow keeps of a stream file. In PostgreSQL, text may hold every character except U+0000.
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]

# The regions that a new table has, with equally many salts each. HBase splits them further as they grow.
Regions = Literal[1, 2, 4, 8, 16]

# HBase's default for `hbase.client.keyvalue.maxsize`, and for the same limit of its servers.
MOST_CELL_BYTES = 10_485_760
CellBytes = Annotated[int, Field(ge=1_024, le=2_147_483_647)]


class Part(BaseModel):
    """Unknown keys are refused, and `"5"` is not 5."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
