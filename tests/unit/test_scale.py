"""`python -m bench.scale` at small sizes. The times stand in docs/scale.md."""

from __future__ import annotations

import pytest

from bench.scale import AXES, table_of
from tests.support.covering import REPOSITORY

_SMALL = (70, 140)


# Building DAGs imports Airflow, which tests/dags does.
@pytest.mark.slow
@pytest.mark.parametrize("axis", [name for name in AXES if name != "streams"])
def test_the_page_has_a_line_of_all_that_is_measured(axis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, sizes, made = AXES[axis]
    monkeypatch.setitem(AXES, axis, (what, _SMALL, made))
    _, head, _, *lines = table_of(axis)
    assert head == f"| {what} | 70 | 140 | power |"
    page = (REPOSITORY / "docs/scale.md").read_text()
    assert f"| {what} | " + " | ".join(f"{size:,}" for size in sizes) + " | power |" in page
    assert lines
    assert [line for line in lines if line.partition(" | ")[0] not in page] == []
