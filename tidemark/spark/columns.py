"""The columns that Tidemark adds to a message and to its rows. A stream's own fields have other names: `own_names`.

The expressions here are the Spark side of `tidemark.offsets.hashing`, and give the same hashes, to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.offsets.hashing import NULL_BITS
from tidemark.offsets.tallies import Outcome
from tidemark.types.ddl import Type
from tidemark.types.fields import INTEGERS, NESTED, FieldType, is_nested, type_of

TOPIC, INCARNATION, PARTITION, OFFSET, INDEX = "_topic", "_incarnation", "_partition", "_offset", "_index"
KEY, VALUE, TIMESTAMP = "_key", "_value", "_timestamp"
TIMESTAMP_TYPE, HEADERS = "_timestamp_type", "_headers"
# A time in ms since 1970 that Spark cannot hold, with TIMESTAMP null; otherwise null.
BEYOND_TIME = "_beyond_time"
# A number of `tidemark.offsets.tallies.Outcome`.
OUTCOME = "_outcome"
# Why a message is a dead letter; null for other messages.
REASON = "_reason"
TOMBSTONE = "_tombstone"
# What a dead letter says beside the reason, or null. A failed message has how it failed, others a detail at most. Times
# are in ms since 1970.
FAILURE = "_failure"
FAILURE_TYPE = "struct<error: string, detail: string, attempts: int, first_at: bigint, last_at: bigint>"
# The names of a message's keys that no field of the stream has: some of them, each cut. Null for none; only some schemes
# have the column.
UNKNOWN_NAMES = "_unknown_names"
# How often a dead letter was read again and became one again.
REDRIVES = "_redrives"
# For a message as it was read: the size of key and value together, and the digest of its bytes.
BYTES, SOURCE = "_bytes", "_source"
# Ack values of the message and of the row, and the digest of the row's contents.
MESSAGE_HASH, ROW_HASH, DIGEST = "_message_hash", "_row_hash", "_digest"
# Options of Spark's JSON, with the full precision of its times.
JSON_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# As `tidemark.sinks.json_texts` has it: with the null members of structs.
_JSON = {**JSON_TIMES, "ignoreNullFields": "false"}
# The number of an offset's block, when rows are counted by blocks.
BLOCK = "_block"

AT = (TOPIC, INCARNATION, PARTITION)
COORDINATE = (*AT, OFFSET)
# What the hashes of a message and of a row cover, in SQL.
_COORDINATE = (TOPIC, f"CAST({INCARNATION} AS INT)", f"CAST({PARTITION} AS INT)", f"CAST({OFFSET} AS BIGINT)")
_ROW = (*_COORDINATE, f"CAST({INDEX} AS INT)")


def code(outcome: Outcome) -> Column:
    """The value of OUTCOME for an outcome."""
    return F.lit(outcome.value).cast("tinyint")


def has(outcome: Outcome) -> Column:
    """Whether a row's message has this outcome."""
    return F.col(OUTCOME) == code(outcome)


def detail(text: Column) -> Column:
    """A FAILURE with only a detail; null where the detail is null."""
    return F.when(text.isNotNull(), failure_of(F.lit(None), text))


def failure_of(error: Column, detail: Column) -> Column:
    """A FAILURE without retries: it has no attempts and no times."""
    unknown = F.lit(None)
    return F.struct(error, detail, unknown, unknown, unknown).cast(FAILURE_TYPE)


def field(name: str) -> Column:
    """A stream's field as a column."""
    return F.col(_quoted(name))


def literal(text: str) -> str:
    """A text in SQL, whatever Spark's settings say of escapes and variables."""
    return f"string(X'{text.encode().hex()}')" if set("'\\$") & set(text) else f"'{text}'"


def message_hash() -> Column:
    return _hash(_COORDINATE)


def row_hash() -> Column:
    return _hash(_ROW)


def source_digest() -> Column:
    """The digest of a message as it was read. The hash skips nulls, so the lengths tell null from empty."""
    parts = [part for name in (KEY, VALUE) for part in (F.coalesce(F.octet_length(name), F.lit(-1)), F.col(name))]
    headers = F.transform(
        HEADERS, lambda header: F.struct(F.when(header["value"].isNull(), F.lit(-1)), header["key"], header["value"])
    )
    return F.xxhash64(*map(F.expr, _COORDINATE), *parts, headers)


def content_digest(columns: Sequence[str] | Mapping[str, FieldType]) -> Column:
    """The digest of a row over the values of these columns, by their types; without types, texts and bytes.

    The session has to be in UTC, as those of our jobs are.
    """
    quoted = [_quoted(name) for name in columns]
    nulls = [_nulls(quoted[start : start + NULL_BITS]) for start in range(0, len(quoted), NULL_BITS)]
    kinds = columns.values() if isinstance(columns, Mapping) else ["string"] * len(quoted)
    return _hash([*_ROW, *nulls, *map(_digested, quoted, map(type_of, kinds))])


def values_hash(columns: Mapping[str, FieldType]) -> Column:
    """A hash of the values of these columns alone, wherever the row is: as `content_digest`."""
    quoted = [_quoted(name) for name in columns]
    nulls = [_nulls(quoted[start : start + NULL_BITS]) for start in range(0, len(quoted), NULL_BITS)]
    return _hash([*nulls, *map(_digested, quoted, map(type_of, columns.values()))])


def text(name: str, kind: FieldType) -> Column:
    """A field as the bytes that HBase stores: a binary field's own bytes, else Spark's text in UTF-8, or JSON.

    Times are in UTC. Both casts leave the bytes of a binary field as they are.
    """
    if is_nested(kind):
        return F.to_json(field(name), _JSON).cast("binary")
    return flat_text(name)


def flat_text(name: str) -> Column:
    """As `text`, of a field that is no array, map or struct."""
    return field(name).cast("string").cast("binary")


def _digested(value: str, of: Type) -> str:
    """The Spark side of `tidemark.types.digests.digested`, in SQL."""
    if of.name in NESTED:
        return f"if({value} IS NULL, NULL, {_canonical(value, of, 0)})"
    if of.name in INTEGERS[:-1]:
        return f"CAST({value} AS BIGINT)"
    if of.name == "date":
        return f"CAST(unix_date({value}) AS BIGINT)"
    if of.name == "float":
        return f"CAST({value} AS DOUBLE)"
    return f"CAST({value} AS DECIMAL(38,{of.scale}))" if of.name == "decimal" else value


def _canonical(value: str, of: Type, depth: int) -> str:
    """The canonical bytes of a value that may be null. `depth` keeps the names of lambdas apart."""
    return f"if({value} IS NULL, X'00', concat(X'01', {_body(value, of, depth)}))"


def _body(value: str, of: Type, depth: int) -> str:
    name, one = of.name, f"x{depth}"
    if of.of is not None and name == "array":
        return _counted(value, f"transform({value}, {one} -> hex({_canonical(one, of.of, depth + 1)}))")
    if of.of is not None:
        entry = f"{_canonical(f'{one}.key', Type('string'), depth + 1)}, {_canonical(f'{one}.value', of.of, depth + 1)}"
        return _counted(value, f"array_sort(transform(map_entries({value}), {one} -> hex(concat({entry}))))")
    if name == "struct":
        return (
            f"concat({', '.join(_canonical(f'{value}.{_quoted(part.name)}', part.type, depth) for part in of.members)})"
        )
    if name == "boolean":
        return f"if({value}, X'01', X'00')"
    if name in INTEGERS:
        return _long(f"CAST({value} AS BIGINT)")
    if name in ("float", "double"):
        return _long(f"xxhash64(CAST({value} AS DOUBLE))")
    if name == "date":
        return _long(f"CAST(unix_date({value}) AS BIGINT)")
    if name in ("timestamp", "timestamp_ntz"):
        return _long(f"unix_micros(CAST({value} AS TIMESTAMP))")
    if name == "decimal":
        return f"concat(X'{of.scale:02x}', {_long(f'xxhash64(CAST({value} AS DECIMAL(38,{of.scale})))')})"
    return f"concat({_length(f'octet_length({value})')}, CAST({value} AS BINARY))"


def _counted(value: str, parts: str) -> str:
    # Through texts: to append each part to the bytes before it would copy these as often as there are parts.
    return f"concat({_length(f'size({value})')}, unhex(array_join({parts}, '')))"


def _long(number: str) -> str:
    return f"unhex(lpad(hex({number}), 16, '0'))"


def _length(number: str) -> str:
    return f"unhex(lpad(hex(CAST({number} AS BIGINT)), 8, '0'))"


def _hash(parts: Sequence[str]) -> Column:
    # As a text: each function of Spark that Python calls takes up to a third of a millisecond.
    return F.expr(f"xxhash64({', '.join(parts)})")


def _nulls(columns: Sequence[str]) -> str:
    """A bit for each of at most 64 columns: whether it is null. The hash skips nulls."""
    return " | ".join(f"if({one} IS NULL, shiftleft(1L, {bit}), 0L)" for bit, one in enumerate(columns))


def _quoted(name: str) -> str:
    """A column's name in SQL; it may hold a hyphen."""
    return f"`{name.replace('`', '``')}`"
