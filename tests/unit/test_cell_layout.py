"""How a row's fields lie in cells, and that a table keeps its layout."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tidemark.errors import WrongUse
from tidemark.sinks.hbase.cells import PACKED, CellLayout

FIELDS = ("host", "path", "code")
LAYOUTS = [CellLayout(), CellLayout({"path": "p", "code": "host-code"}), CellLayout(packed=True)]


def cells_of(layout: CellLayout, contents: Sequence[bytes | None]) -> dict[bytes, bytes | None]:
    """The cells of one row, among others."""
    others: list[bytes | None] = [b"before", None, None]
    arrays = [pa.array([other, value, None], pa.binary()) for other, value in zip(others, contents, strict=True)]
    return {column: values[1].as_py() for column, values in layout.cells(FIELDS, arrays)}


@pytest.mark.parametrize("layout", LAYOUTS, ids=["cells", "columns", "packed"])
def test_fields_come_back_under_their_names(layout: CellLayout) -> None:
    cells = cells_of(layout, [b"a.example", None, b""])
    there = {column: value for column, value in cells.items() if value is not None}
    assert layout.fields(there) == {"host": b"a.example", "code": b""}
    assert CellLayout.of_mark(layout.marked()) == layout


def test_where_they_lie() -> None:
    contents = [b"a", b"/", b"200"]
    plain, columns, packed = (cells_of(layout, contents) for layout in LAYOUTS)
    assert plain == {b"d:host": b"a", b"d:path": b"/", b"d:code": b"200"}
    assert columns == {b"d:host": b"a", b"d:p": b"/", b"d:host-code": b"200"}
    assert packed == {b"d:_packed": b"4:host1:a4:path1:/4:code3:200"}
    assert CellLayout().marked() == {}


def test_a_damaged_cell_is_no_field() -> None:
    assert LAYOUTS[2].fields({PACKED: b"4:ho"}) == {"d:_packed": b"4:ho"}
    assert LAYOUTS[2].fields({}) == {}


def test_another_layout_is_refused_by_name() -> None:
    LAYOUTS[1].check("HBase table x", {"columns": {"path": "p", "code": "host-code"}})
    with pytest.raises(WrongUse, match="HBase table x was made with packed unset, the stream file says True"):
        LAYOUTS[2].check("HBase table x", {"stream": "s"})
    with pytest.raises(WrongUse, match=r"was made with columns \{'a': 'b'\}, the stream file says unset"):
        LAYOUTS[0].check("HBase table x", {"columns": {"a": "b"}})
