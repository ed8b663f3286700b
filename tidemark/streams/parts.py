"""What the parts of a stream file share: names, lists, and how strict they are."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict

T = TypeVar("T")

# YAML knows lists only; here they become immutable.
Items = Annotated[tuple[T, ...], Strict(False)]

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Table = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
ConnectionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,99}$")]
# A column of a table and of a file: what HBase takes as a qualifier, Parquet as a column and SQL between backticks.
FieldName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")]

# Into how many regions a table is cut when it is made, of as many salts each; HBase splits them further as they grow.
Regions = Literal[1, 2, 4, 8, 16]

# What HBase takes unless it is told otherwise, by `hbase.client.keyvalue.maxsize` and that of its servers.
MOST_CELL_BYTES = 10_485_760
CellBytes = Annotated[int, Field(ge=1_024, le=2_147_483_647)]


class Part(BaseModel):
    """Unknown keys are refused, and `"5"` is not 5."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
