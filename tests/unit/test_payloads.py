"""What people are shown of a message: text that nothing obeys, cut with a note."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.evil import EVIL
from tidemark.views.messages.payloads import MAX_HEX, Masked, masked, shown, visible


@pytest.mark.covers("U9")
@given(st.one_of(st.binary(max_size=80), st.text(max_size=40).map(str.encode)), st.integers(1, 90))
def test_nothing_is_obeyed_and_nothing_is_left_out_without_a_word(value: bytes, most: int) -> None:
    found = shown(value, most)
    assert all(one.isprintable() or one in "\n\t" for one in found.text)
    assert (found.bytes, found.more) == (len(value), max(0, len(value) - most))
    assert bytes.fromhex(found.hex) == value[:MAX_HEX]
    text = value.decode(errors="replace")
    if found.utf8 and found.more == 0:
        assert found.text == visible(text)
    # Text that only was cut is no binary.
    if "\ufffd" not in text:
        assert found.utf8
        assert visible(text).startswith(found.text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\u202egnp.exe\u2066".encode(), "\\u202egnp.exe\\u2066"),
        ("a\u200bb\u00a0c\ufeff".encode(), "a\\u200bb\\xa0c\\ufeff"),
        (b"line\r\nnext\ttab", "line\\r\nnext\ttab"),
        (EVIL.encode(), EVIL),
        (b"\xff\x00", "\\xff\\x00"),
    ],
)
def test_marks_and_codes_are_shown_by_their_numbers(value: bytes, text: str) -> None:
    found = shown(value)
    assert found.text == text


@pytest.mark.covers("U9")
def test_ten_megabytes_are_cut_with_a_note() -> None:
    found = shown(b"x" * 10_000_000)
    assert (len(found.text), found.more, found.bytes) == (16_384, 9_983_616, 10_000_000)
    assert (len(bytes.fromhex(found.hex)), found.hex_more) == (512, 9_999_488)


def test_what_is_masked_is_only_its_size() -> None:
    assert (masked(b"secret"), masked(b"")) == (Masked(6), Masked(0))
