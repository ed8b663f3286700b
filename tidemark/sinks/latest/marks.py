"""The properties of a table with a row for each key: the key, the number of buckets, and more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidemark.errors import WrongUse
from tidemark.sinks.aggregates.states import Values, same_values
from tidemark.sinks.parquet.settings import Compression
from tidemark.types.renamed_fields import NEVER, Names

KEY, BUCKETS, COMPRESSION = "tidemark.key", "tidemark.buckets", "tidemark.compression"
# Of a table with totals: what they are.
VALUES = "tidemark.values"
# That of `TableVersion.restored`.
RESTORED = "tidemark.restored"
# That of `TableVersion.noted`.
NOTED = "tidemark.noted"


def marks(key: Sequence[str], buckets: int, compression: Compression, values: Values | None = None) -> dict[str, str]:
    of_totals = {} if values is None else {VALUES: json.dumps(values)}
    return {KEY: json.dumps(list(key)), BUCKETS: str(buckets), COMPRESSION: compression, **of_totals}


def key_of(there: Mapping[str, str]) -> tuple[str, ...]:
    """The key of a table with these properties."""
    return tuple(json.loads(there[KEY]))


def values_of(there: Mapping[str, str]) -> Values:
    """The totals of a table with these properties; empty for none."""
    found: Values = json.loads(there.get(VALUES, "{}"))
    return found


def check_marks(
    table: object, there: Mapping[str, str], wanted: Mapping[str, str], another: str, was: Names = NEVER
) -> dict[str, str]:
    """The properties that a table has to change; empty for none.

    Raises WrongUse for a table that was made with another key or number of buckets, or with other totals. `another`: what to
    name instead.
    """
    for name, said, none in ((KEY, "key", ""), (BUCKETS, "number of buckets", ""), (VALUES, "values", "of no totals")):
        before, now = there.get(name), wanted.get(name)
        same = same_values(was, values_of(there), values_of(wanted)) if name == VALUES else before == now
        if not same:
            raise WrongUse(
                f"{table} was made with the {said} {before or none or 'of another type of sink'}, the stream file says "
                f"{now or none}. Name another {another}, and fill it by a replay"
            )
    return {} if there.get(COMPRESSION) == wanted[COMPRESSION] else {COMPRESSION: wanted[COMPRESSION]}
