"""Digests of all types of fields, to the byte, and the texts and files that they are computed from without Spark."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.support.typed_values import VECTORS, plain, types, values
from tidemark.offsets.hashing import content_hash
from tidemark.sinks.column_texts import with_texts
from tidemark.sinks.json_texts import json_text, value_of_json
from tidemark.sinks.values import value_of
from tidemark.types.ddl import Type, type_alone
from tidemark.types.digests import canonical, digested, unscaled
from tidemark.types.fields import arrow_type, holds, of_arrow, text_of, type_of
from tidemark.types.fields import canonical as canonical_text

D, AT = Decimal, datetime(2026, 11, 26, 1, 2, 3, 456789, tzinfo=UTC)


@pytest.mark.covers("N82")
@pytest.mark.parametrize(("kind", "value", "encoded", "hashed"), VECTORS)
def test_vectors(kind: str, value: Any, encoded: str, hashed: str) -> None:
    found = canonical(type_alone(kind), value)
    assert (found.hex(), xxhash.xxh64_hexdigest(found, 42)) == (encoded, hashed)


FLAT: list[tuple[str, Any, Any]] = [
    ("decimal(12,2)", D("-1.10"), b"\x92"),
    ("decimal(12,2)", D("1.1"), b"\x6e"),
    ("decimal(38,2)", D("-1.10"), b"\x92"),
    ("decimal(38,0)", D(10**37), (10**37).to_bytes(16, "big")),
    ("decimal(5,0)", D(0), b"\0"),
    ("decimal(5,0)", D(128), b"\0\x80"),
    ("decimal(5,0)", D(-128), b"\x80"),
    ("date", date(1969, 12, 31), -1),
    ("timestamp_ntz", datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
    ("timestamp", AT, 1_795_654_923_456_789),
    ("int", 7, 7),
    ("float", 0.5, 0.5),
    ("boolean", True, True),
    ("binary", b"\0", b"\0"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), FLAT)
def test_flat_values_in_the_chain(kind: str, value: Any, expected: Any) -> None:
    assert digested(kind, value) == expected
    assert digested(kind, None) is None


def test_a_decimal_is_never_rounded_for_its_digest() -> None:
    with pytest.raises(ValueError, match="more than 2 digits behind the point"):
        unscaled(D("1.105"), 2)
    assert unscaled(D("1.100"), 2) == unscaled(D("1.1"), 2)


def test_nested_values_that_differ_have_different_digests() -> None:
    """Spark's own hash skips nulls, so that the first ones would be the same."""
    kinds = ["array<int>"] * 8
    arrays: list[Any] = [[1, None], [None, 1], [1], [], None, [None], [None, None], [1, 1]]
    structs = [{"x": None, "y": 1}, {"x": 1, "y": None}, {"x": None, "y": None}]
    cases = [*zip(kinds, arrays, strict=True), *(("struct<x:int,y:int>", one) for one in structs)]
    cases += [("array<array<int>>", [[1], []]), ("array<array<int>>", [[], [1]]), ("array<string>", ["a", "b"])]
    cases += [("array<string>", ["ab", ""]), ("map<string,string>", {"a": "b"}), ("map<string,string>", {"ab": ""})]
    found = [(case, content_hash(5, [digested(*case)])) for case in cases]
    for (one, left), (other, right) in itertools.combinations(found, 2):
        assert left != right, (one, other)


def test_the_order_of_a_map_changes_no_digest() -> None:
    of = type_alone("map<string,int>")
    assert canonical(of, [("b", 2), ("a", 1)]) == canonical(of, {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("old", "new", "value", "same"),
    [
        ("int", "bigint", 5, True),
        ("float", "double", 0.10000000149011612, True),
        ("decimal(5,2)", "decimal(12,2)", D("1.5"), True),
        ("array<decimal(5,2)>", "array<decimal(12,2)>", [D("1.5")], True),
        ("decimal(5,2)", "decimal(12,3)", D("1.5"), False),
    ],
)
def test_a_wider_type_has_the_digests_of_before(old: str, new: str, value: Any, *, same: bool) -> None:
    assert holds(type_alone(new), type_alone(old))
    assert not holds(type_alone(old), type_alone(new))
    assert (digested(canonical_text(old), value) == digested(canonical_text(new), value)) is same


@given(types())
def test_a_type_is_its_text(of: Type) -> None:
    kind = text_of(of)
    assert canonical_text(kind) == kind
    assert type_of(kind) == of
    assert of_arrow(arrow_type(of)) == of
    assert holds(of, of)


@pytest.mark.covers("N82")
@given(st.data())
def test_files_and_texts_say_the_value(data: st.DataObject) -> None:
    """What readers without Spark compute a digest from: Arrow's values, and the text that HBase has."""
    of = data.draw(types())
    value = data.draw(values(of))
    kind, expected = text_of(of), digested(text_of(of), value)
    table = pa.table({"c": pa.array([None if value is None else _of_arrow(of, value)], arrow_type(of))})
    assert digested(kind, table.column(0).to_pylist()[0]) == expected
    (text,) = with_texts(table).column(0).to_pylist()
    stored = text if text is None or isinstance(text, bytes) else _text(of, text).encode()
    assert value_of(kind, stored) == (expected.encode() if isinstance(expected, str) else expected)


def _of_arrow(of: Type, value: Any) -> Any:
    """A value as Arrow takes it: maps as pairs."""
    return value if of.name != "map" else list(value.items())


def _text(of: Type, value: Any) -> str:
    from tidemark.sinks.texts import of_file

    at = {"_topic": "t", "_partition": 0, "_incarnation": 1, "_offset": 0, "_index": 0}
    return str(of_file({**at, "c": value})["fields"]["c"])


@given(st.data())
def test_json_is_read_back(data: st.DataObject) -> None:
    of = data.draw(types().filter(lambda one: one.name in ("array", "map", "struct")))
    value = data.draw(values(of).filter(lambda one: one is not None))
    text = json_text(of, plain(of, value))
    assert canonical(of, value_of_json(of, text)) == canonical(of, value)
    # A damaged text is not taken for the same value.
    for wrong in (f" {text}", f"{text} ", text[:-1], text.replace("[", "[ ", 1).replace("{", "{ ", 1)):
        with pytest.raises(ValueError, match=r"."):
            value_of_json(of, wrong)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("decimal(12,2)", b"1.1"),
        ("decimal(12,2)", b"01.10"),
        ("decimal(12,2)", b"1E+2"),
        ("decimal(12,0)", b"1.0"),
        ("date", b"2026-11-31"),
        ("date", b"2026-1-1"),
        ("date", b"2026-11-27 00:00:00"),
        ("timestamp_ntz", b"2026-11-27"),
        ("int", b"1.0"),
        ("float", b"1"),
        ("float", b"1.0E39"),
        ("array<int>", b"[1"),
        ("array<int>", b"[1.5]"),
        ("array<int>", b'["1"]'),
        ("array<int>", b"[01]"),
        ("array<decimal(3,1)>", b"[1]"),
        ("array<float>", b"[NaN]"),
        ("map<string,int>", b"[]"),
        ("map<string,int>", b'[["a",1]]'),
        ("struct<a:int>", b"{}"),
        ("struct<a:int>", b'{"a":1,"b":2}'),
        ("array<boolean>", b"[0]"),
        ("array<timestamp>", b'["2026-11-27 01:02:03"]'),
        ("array<int>", b"[" * 100_000),
        ("array<int>", b"\xff"),
    ],
)
def test_a_text_that_spark_does_not_write_is_its_own_bytes(kind: str, stored: bytes) -> None:
    assert value_of(canonical_text(kind), stored) == stored
