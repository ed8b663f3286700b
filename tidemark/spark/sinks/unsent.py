"""Values that were not sent, in tables by key: the text that stands for one would take the place of the value before."""

from __future__ import annotations

import json
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.schemes.kinds import Fields
from tidemark.spark.columns import field
from tidemark.spark.sinks.sizes import refusal
from tidemark.types.ddl import Type
from tidemark.types.fields import type_of


def unsent(sink: str, text: str | None, fields: Fields) -> Column | None:
    """The refusal of a row of which a field was not sent; it names the first such field. None where none can be so.

    `text` stands for such a value: as a text or bytes, alone or within an array, a map or a struct.
    """
    if text is None:
        return None
    found = {name: one for name, kind in fields.items() if (one := _is(field(name), type_of(kind), text)) is not None}
    if not found:
        return None
    # By a list, since each condition would lengthen the method that Spark generates for a row: see sizes.first_too_large.
    place = F.array_position(F.array(*(F.coalesce(one, F.lit(False)) for one in found.values())), F.lit(True))
    name = F.try_element_at(F.array(*map(F.lit, found)), place.cast("int"))
    reason = F.concat(F.lit(f"sink {sink}: "), name, F.lit(f" was not sent ({text})"))
    return F.when(place > 0, refusal(reason))


def _is(value: Column, of: Type, text: str) -> Column | None:
    """Whether a value, or a part of it, is this text; None for a type that has no texts."""
    if of.name == "string":
        # Also as JSON, as the text of a `VARIANT` is.
        return value.isin(text, json.dumps(text))
    if of.name == "binary":
        return value == F.lit(text.encode())
    if of.name == "struct":
        members = [_is(value[one.name], one.type, text) for one in of.members]
        some = [F.coalesce(one, F.lit(False)) for one in members if one is not None]
        return reduce(or_, some) if some else None
    inner = of.of
    if inner is None or _is(value, inner, text) is None:
        return None
    parts = F.map_values(value) if of.name == "map" else value
    return F.exists(parts, lambda one: F.coalesce(_is(one, inner, text), F.lit(False)))  # type: ignore[arg-type]
