"""The grammar of filters: what it takes, what it refuses, and what fits."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import WrongUse
from tidemark.views.browsing.filters import MAX_CHARACTERS, Cell, Cells, Condition, FilterOperand, Op, parse


@pytest.mark.covers("U28")
def test_what_a_filter_says() -> None:
    found = parse(
        """key = 'it''s' and $.a[0]["b c"] >= -1.5e3 AND header "x y" is not null and reason contains "\\u0041" """.replace(
            "''", "\\'"
        ),
        ("reason",),
    )
    assert found.conditions == (
        Condition(FilterOperand("key"), Op.EQUAL, b"it's"),
        Condition(FilterOperand("path", path=("a", 0, "b c")), Op.AT_LEAST, Decimal("-1500")),
        Condition(FilterOperand("header", "x y"), Op.IS_NOT_NULL),
        Condition(FilterOperand("field", "reason"), Op.CONTAINS, b"A"),
    )
    assert found.paths == [("a", 0, "b c")]
    assert parse("  ").conditions == ()
    assert parse("$ = true").conditions == (Condition(FilterOperand("path"), Op.EQUAL, b"true"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amount < 0", r"character 1: 'amount' is not known here \(for JSON, write \$.amount\)"),
        ("reason = 'x'", "character 1: 'reason' is not known here"),
        ("key = c17", "character 7: expected a number, a text in quotes, true or false after =, found 'c17'"),
        ("key contains 5", "expected a text in quotes after contains"),
        ("key = 'a' or key = 'b'", "character 11: expected and, or the end, found 'or'"),
        ("key = 'a", 'character 7: "\'a" has no end'),
        ("key =", "expected a number, a text in quotes, true or false after =, found the end"),
        ("key is 5", "expected null, found '5'"),
        ("$.a ~ 'x'", "character 5"),
        ("$..a = 1", "character 2"),
        ("header = 'x'", "expected the name of a header"),
        ("key = '\\q'", "begins no escape"),
        ("and", "'and' is not known here"),
        ("(key = 1)", "character 1"),
        (" and ".join(["key = 1"] * 21), "21 conditions"),
        ("x" * 10_000, f"10000 characters, and may have {MAX_CHARACTERS}"),
        ("\u202e", "character 1"),
    ],
)
@pytest.mark.covers("U28", "Q17")
def test_a_filter_that_is_none_is_refused_where_it_is_wrong(text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        parse(text)


def holds(text: str, *cells: str | bytes | None) -> bool:
    """Whether a condition on `key` holds of some texts."""
    found: Cells = [one if one is None else Cell(one.encode() if isinstance(one, str) else one) for one in cells]
    return parse(f"key {text}").fits(lambda _: found)


@pytest.mark.covers("U28")
def test_numbers_are_compared_with_numbers_and_all_else_as_texts() -> None:
    assert holds("< 0", "-5")
    assert holds("= 5", "5.0")
    assert holds("= 9007199254740993", "9007199254740993")
    assert not holds("= 9007199254740993", "9007199254740992")
    assert holds("< '5'", "10")
    assert not holds("< 5", "ten")
    assert holds("!= 5", "ten")
    assert not holds("!= 5", None)
    assert not holds("!= 5")
    assert holds("is null", None)
    assert holds("is null")
    assert not holds("is null", "")
    assert holds("= ''", "")
    # Of several headers of a name, one is enough.
    assert holds("= 'b'", "a", None, "b")
    assert holds("contains 'b'", b"\xff\x00b\xfe")
    assert not holds("< 0", "-" + "9" * 200)
    assert holds("> 5", "1e999999")
    # An object of JSON is no number and no text, and contains what it says.
    item = Cell(b'{"a": 5}', plain=False)
    assert parse("$.x contains 'a'").fits(lambda _: [item])
    assert not parse("$.x = 5").fits(lambda _: [item])


@given(st.text(max_size=60))
@pytest.mark.covers("U28")
def test_a_text_in_quotes_is_the_text_whatever_is_in_it(text: str) -> None:
    (found,) = parse(f"value = {json.dumps(text)}").conditions
    assert found.other == text.encode("utf-8", "surrogatepass")


@given(st.text(alphabet="\"'\\$.[]=<> andkeyvalue019-\n", max_size=80))
@pytest.mark.covers("U28", "Q17")
def test_whatever_is_typed_is_a_filter_or_is_refused(text: str) -> None:
    try:
        found = parse(text)
    except WrongUse:
        return
    assert all(one.op in Op for one in found.conditions)
