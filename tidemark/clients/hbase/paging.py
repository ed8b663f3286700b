"""The number of rows to ask for at once, when the size of a row is known only after it is read.

A gateway holds a whole answer in memory, and so does the reader.
"""

from __future__ import annotations

from collections.abc import Iterable

# The size that an answer should have. Rows of some hundred bytes come in pages of `_MAX`, so round trips cost little.
PAGE_BYTES = 4 << 20
_FIRST, _MAX, _GROWTH = 8, 2_000, 8
# The most rows of the first page of a scan that goes on with the size of another one.
_MAX_FIRST = 512


class PageSize:
    """The number of rows for the next page: those that fit into PAGE_BYTES, by the size of the last page's rows.

    For one scan, or for consecutive scans of rows of one kind.
    """

    def __init__(self) -> None:
        self.rows = _FIRST

    def begin(self) -> None:
        """Note that a scan begins. Its rows may be larger than those of the scan before."""
        self.rows = min(self.rows, _MAX_FIRST)

    def read(self, weights: Iterable[int]) -> None:
        """Note a page that has come; `weights`: the bytes of each of its rows."""
        each = list(weights)
        fitting = PAGE_BYTES * len(each) // max(1, sum(each))
        # Upwards in small steps: the next rows may be larger.
        self.rows = max(1, min(fitting, self.rows * _GROWTH, _MAX))

    def failed(self) -> None:
        """Note that no page has come, perhaps because the page was too large."""
        self.rows = 1
