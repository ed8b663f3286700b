"""Which schemas of a registry the messages of a window name, in Confluent's wire format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.clients.registry_answers import FRAME, KINDS, RefusedSchema
from tidemark.errors import WrongUse
from tidemark.spark.columns import VALUE

if TYPE_CHECKING:
    from tidemark.clients.schema_registry import SchemaRegistry

_ID = "_schema_id"
# With more schemas in a window, most numbers can only be bytes of messages that are no records. So only numbers that the
# registry lists are asked for. Spark cannot plan for more real schemas than this.
_MAX_SCHEMAS = 1_000


def schemas_of(messages: DataFrame, registry: SchemaRegistry, kind: str) -> dict[int, str | RefusedSchema | None]:
    """The schemas that messages name, each asked for once. Of very many, only those that the registry lists.

    Raises Unreachable, WrongUse.
    """
    named = messages.select(schema_number().alias(_ID)).where(F.col(_ID).isNotNull()).distinct()
    numbers = sorted(row[_ID] for row in named.limit(_MAX_SCHEMAS + 1).collect())
    if len(numbers) > _MAX_SCHEMAS:
        listed = registry.numbers()
        if listed is not None:
            known = messages.sparkSession.createDataFrame([(number,) for number in listed], f"{_ID} long")
            named = named.join(F.broadcast(known), _ID, "left_semi")
        numbers = sorted(row[_ID] for row in named.collect())
    schemas = registry.schemas(numbers, KINDS[kind])
    if sum(text is not None for text in schemas.values()) > _MAX_SCHEMAS:
        raise WrongUse(
            f"the messages of this window were written with more than {_MAX_SCHEMAS} schemas of the registry"
        )
    return schemas


def schema_number() -> Column:
    """The number after a first byte of 0; null for a value of another form."""
    starts = (F.octet_length(VALUE) >= FRAME) & (F.hex(F.expr(f"substring({VALUE}, 1, 1)")) == "00")
    return F.when(starts, F.conv(F.hex(F.expr(f"substring({VALUE}, 2, 4)")), 16, 10).cast("bigint"))
