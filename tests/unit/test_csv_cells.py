"""Cells of CSV exports, which a spreadsheet must not take for formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.migrate import importing


@pytest.mark.covers("Q15")
@given(text=st.sampled_from(["", "=", "+", "-", "@", "\t", "\r"]).flatmap(lambda sign: st.text().map(sign.__add__)))
def test_no_cell_begins_as_a_formula_does(text: str) -> None:
    cell = importing.harmless(text)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell in (text, f"'{text}")
