"""The names of columns that Tidemark and the formats of tables have for themselves, which no field may have.

All others that begin with `_` are free, as Debezium's `__deleted` and MongoDB's `_id`. A test looks in the code for more.
"""

from __future__ import annotations

from typing import Final

# In results and in between, each after a `_`.
_OF_TIDEMARK: Final = """
    ack after alone at attempts base64 because before beyond_time bits block both bucket bytes columns
    computed_by condition counted counts dead_letters debris deleted detail digest empty erasing error expected
    failure few found found_digest from generation had headers history in incarnation index inside is_row json
    key key_hash lane looked marks matched members message_hash metadata name newest not_wrapped number of
    offset other others out out_key outcome owners packed partition parts piece pieces problem protobuf
    published qualifier reason record redrives refused repeated row_hash rows rows_ack said schema_id seq size
    source split start taken tallied text there through times timestamp timestamp_type tombstone too_large
    too_many topic unknown_names unsplit until unwrapped value wanted whole why word wrapped
"""
# Of tables of Iceberg and Delta, as Spark shows them.
_OF_TABLES: Final = "file pos spec_id change_type commit_version commit_timestamp"
OWN_NAMES: Final = frozenset(f"_{name}" for name in (*_OF_TIDEMARK.split(), *_OF_TABLES.split()))
# What a field's own name stands behind, in between.
OWN_BEGINNINGS: Final = ("_given_", "_made_", "_text_", "_part_", "_other_", "_in_", "_record_", "_tidemark")


def is_own(name: str) -> bool:
    """Whether no field may have a name, in whatever case: Spark takes `_Topic` and `_topic` for the same column."""
    lower = name.lower()
    return lower in OWN_NAMES or lower.startswith(OWN_BEGINNINGS)
