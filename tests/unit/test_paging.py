"""How many rows a scan asks for at once."""

from __future__ import annotations

from tidemark.clients.hbase.paging import PAGE_BYTES, PageSize


def test_small_rows_come_in_ever_larger_pages_up_to_a_limit() -> None:
    assert _asked(300, pages=6) == [8, 64, 512, 2_000, 2_000, 2_000]


def test_large_rows_come_a_few_at_a_time() -> None:
    assert _asked(1 << 20, pages=3) == [8, 4, 4]
    assert _asked(PAGE_BYTES * 3, pages=3) == [8, 1, 1]


def test_rows_that_become_large_and_small_again() -> None:
    size = PageSize()
    for _ in range(3):
        size.read([300] * size.rows)
    size.read([300] * 1_000 + [1 << 20] * 100)
    # The page weighed 25 times as much as it should.
    assert size.rows == 43
    size.read([300] * size.rows)
    assert size.rows == 43 * 8


def test_rows_without_values() -> None:
    assert _asked(0, pages=3) == [8, 64, 512]


def test_after_trouble_one_row_is_asked_for() -> None:
    size = PageSize()
    size.read([300] * size.rows)
    size.failed()
    assert size.rows == 1
    size.read([300])
    assert size.rows == 8


def _asked(weight: int, pages: int) -> list[int]:
    size, asked = PageSize(), []
    for _ in range(pages):
        asked.append(size.rows)
        size.read([weight] * size.rows)
    return asked
