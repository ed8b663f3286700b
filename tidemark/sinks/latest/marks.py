"""The properties of a table with the newest row of each key: the key, the number of buckets, and more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidemark.errors import WrongUse
from tidemark.sinks.parquet.settings import Compression

KEY, BUCKETS, COMPRESSION = "tidemark.key", "tidemark.buckets", "tidemark.compression"
# That of `TableVersion.restored`.
RESTORED = "tidemark.restored"


def marks(key: Sequence[str], buckets: int, compression: Compression) -> dict[str, str]:
    return {KEY: json.dumps(list(key)), BUCKETS: str(buckets), COMPRESSION: compression}


def key_of(there: Mapping[str, str]) -> tuple[str, ...]:
    """The key of a table with these properties."""
    return tuple(json.loads(there[KEY]))


def check_marks(table: object, there: Mapping[str, str], wanted: Mapping[str, str], another: str) -> dict[str, str]:
    """The properties that a table has to change; empty for none.

    Raises WrongUse for a table that was made with another key or number of buckets. `another`: what to name instead.
    """
    for name, said in ((KEY, "key"), (BUCKETS, "number of buckets")):
        if there.get(name) != wanted[name]:
            raise WrongUse(
                f"{table} was made with the {said} {there.get(name, 'of another type of sink')}, the stream file says "
                f"{wanted[name]}. Name another {another}, and fill it by a replay"
            )
    return {} if there.get(COMPRESSION) == wanted[COMPRESSION] else {COMPRESSION: wanted[COMPRESSION]}
