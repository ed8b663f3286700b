"""The columns that Tidemark adds to a message and to its rows; a stream's own fields begin with a letter.

The expressions here are the Spark side of `tidemark.hashing`: the same hashes, to the byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.tallies import Outcome

TOPIC, INCARNATION, PARTITION, OFFSET, INDEX = "_topic", "_incarnation", "_partition", "_offset", "_index"
KEY, VALUE, TIMESTAMP = "_key", "_value", "_timestamp"
TIMESTAMP_TYPE, HEADERS = "_timestamp_type", "_headers"
# A number of `tidemark.tallies.Outcome`.
OUTCOME = "_outcome"
# Why a message is set aside; null for one that is not.
REASON = "_reason"
TOMBSTONE = "_tombstone"
# What is to be said of a message that is set aside beside the reason, or null: of one that was given up how it failed, of
# others a detail at most. Times in ms since 1970.
FAILURE = "_failure"
FAILURE_TYPE = "struct<error: string, detail: string, attempts: int, first_at: bigint, last_at: bigint>"
# How often a dead letter was read again and became one again.
REDRIVES = "_redrives"
# Of a message as it was read: the size of key and value together, and the digest of its bytes.
BYTES, SOURCE = "_bytes", "_source"
# Ack values of the message and of the row, and the digest of the row's contents.
MESSAGE_HASH, ROW_HASH, DIGEST = "_message_hash", "_row_hash", "_digest"
# The number of an offset's block, where rows are counted by blocks.
BLOCK = "_block"

AT = (TOPIC, INCARNATION, PARTITION)
COORDINATE = (*AT, OFFSET)


def code(outcome: Outcome) -> Column:
    """An outcome as OUTCOME holds it."""
    return F.lit(outcome.value).cast("tinyint")


def has(outcome: Outcome) -> Column:
    """Whether a row's message has this outcome."""
    return F.col(OUTCOME) == code(outcome)


def detail(text: Column) -> Column:
    """A FAILURE with nothing but a detail; null where that is null."""
    return F.when(text.isNotNull(), failure_of(F.lit(None), text))


def failure_of(error: Column, detail: Column) -> Column:
    """A FAILURE of what is not tried again: it has no attempts and no times."""
    unknown = F.lit(None)
    return F.struct(error, detail, unknown, unknown, unknown).cast(FAILURE_TYPE)


def field(name: str) -> Column:
    """A stream's field as a column; its name may hold a hyphen."""
    return F.col(f"`{name}`")


def message_hash() -> Column:
    return F.xxhash64(TOPIC, F.col(INCARNATION).cast("int"), F.col(PARTITION).cast("int"), F.col(OFFSET).cast("long"))


def row_hash() -> Column:
    return F.xxhash64(*_coordinate(), F.col(INDEX).cast("int"))


def source_digest() -> Column:
    """The digest of a message as it was read; what is null is passed over, so that the lengths tell it from what is empty."""
    parts = [part for name in (KEY, VALUE) for part in (F.coalesce(F.octet_length(name), F.lit(-1)), F.col(name))]
    return F.xxhash64(*_coordinate(), *parts, HEADERS)


def content_digest(fields: Sequence[Column], if_any: Sequence[Column] = ()) -> Column:
    """The digest of a row over the text or bytes of its fields, and over those of `if_any` that are not null."""
    texts = [_netstring(one) for one in fields]
    texts += [F.when(one.isNull(), F.lit("")).otherwise(_netstring(one)) for one in if_any]
    return F.xxhash64(*_coordinate(), F.col(INDEX).cast("int"), F.concat(*texts))


def text(name: str) -> Column:
    """A field as the bytes that are stored in HBase and digested: its own if it is binary, else Spark's text of it in UTF-8.

    Times are in UTC. Of binary, both casts leave the bytes as they are.
    """
    return field(name).cast("string").cast("binary")


def _coordinate() -> list[Column]:
    return [
        F.col(TOPIC),
        F.col(INCARNATION).cast("int"),
        F.col(PARTITION).cast("int"),
        F.col(OFFSET).cast("long"),
    ]


def _netstring(one: Column) -> Column:
    # As text even where it is no UTF-8, which Spark leaves as it is; cast to binary, it would be copied.
    content = one.cast("string")
    # Null is passed over: what is left of it is the length's place.
    return F.concat_ws(":", F.coalesce(F.octet_length(content).cast("string"), F.lit("-")), content)
