"""HBase's filter of ranges of columns, as far as tables of aggregates ask with it."""

from __future__ import annotations

import re

_COMPARED = b"SingleColumnValueFilter"
_RANGE = re.compile(rb"ColumnRangeFilter \('([^']*)', true, '([^']*)', false\)")


def passes(filter_: bytes | None, column: bytes) -> bool:
    """Whether a column, with its family, is within one of the ranges of a filter; all are without a filter."""
    # What compares values chooses rows, and those who ask with it look again.
    if filter_ is None or _COMPARED in filter_:
        return True
    ranges = [one.groups() for one in map(_RANGE.fullmatch, filter_.split(b" OR ")) if one is not None]
    assert len(ranges) == len(filter_.split(b" OR ")), filter_
    qualifier = column.partition(b":")[2]
    return any(least <= qualifier < below for least, below in ranges)
