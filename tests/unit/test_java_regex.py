"""The groups of regular expressions in Java's syntax, of which Python knows only a part."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.schemes.java_regex import groups_of


@pytest.mark.covers("N92")
@pytest.mark.parametrize(
    ("regex", "groups"),
    [
        (r"(?<host>\p{L}+) (\d+)", ["host", None]),
        (r"\Q(a\E(b)", [None]),
        (r"\Q(a", []),
        (r"[()]([\[(]+)[](]", [None]),
        (r"[^](]([a-z&&[^(b)]]*)", [None]),
        (r"[\Q]\E(](x)", [None]),
        (r"(?:a)(?=b)(?!c)(?<=d)(?<!e)(?>f)(?i)(?i:g)(h)", [None]),
        (r"((a)(?<b>c))", [None, None, "b"]),
        (r"\(a\)\[(\h*+)\R\x{1F600}", [None]),
        ("", []),
    ],
)
def test_groups_are_found_whatever_the_syntax(regex: str, groups: list[str | None]) -> None:
    assert groups_of(regex) == groups


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        ("(a", r"a \( has no end"),
        ("a)", r"a \) closes nothing"),
        ("[a", r"a \[ has no end"),
        ("[a&&[b]", r"a \[ has no end"),
    ],
)
def test_brackets_without_an_end_are_refused(regex: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"not a regular expression: {why}"):
        groups_of(regex)


@given(st.from_regex(r"(?:\((?:\?:)?|\)|[a-c.*?]|\[[a-c(]\]|\\[().w]){0,12}", fullmatch=True))
def test_as_python_counts_where_it_knows_the_syntax(regex: str) -> None:
    try:
        compiled = re.compile(regex)
    except re.error:
        return
    assert groups_of(regex) == [None] * compiled.groups
