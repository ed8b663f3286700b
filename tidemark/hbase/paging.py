"""How many rows to ask for at once, when nobody knows what a row weighs before it is read.

A gateway holds the whole of an answer in memory, and so does who reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

# What an answer should weigh. Rows of some hundred bytes come in pages of `_MOST`, so that the round trips do not count.
PAGE_BYTES = 4 << 20
_FIRST, _MOST, _GROWTH = 8, 2_000, 8


class PageSize:
    """The number of rows for the next page of one scan: as many as PAGE_BYTES take, from what the last page weighed."""

    def __init__(self) -> None:
        self.rows = _FIRST

    def read(self, weights: Iterable[int]) -> None:
        """A page has come; `weights`: the bytes of each of its rows."""
        each = list(weights)
        fitting = PAGE_BYTES * len(each) // max(1, sum(each))
        # Slowly upwards: what comes next may weigh more.
        self.rows = max(1, min(fitting, self.rows * _GROWTH, _MOST))

    def failed(self) -> None:
        """No page has come, perhaps because it was too large."""
        self.rows = 1
