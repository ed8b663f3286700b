"""The name of a lane's versions in a table, which takes nothing of a lane that is older than what it has of it."""

from __future__ import annotations

from tidemark.ledger.book import Book


def versions_of(book: Book) -> str:
    """The name of a ledger's versions in a table. After a restore, they begin again.

    A ledger that is restored to before a wrong clock draws lower generations than the table has seen of it. As versions of
    the old name, the table would skip them until the clocks have caught up. Each restore gives another name.
    """
    restored = _restored(book)
    return f"{book.stream}/restored {restored}" if restored else book.stream


def was_restored(book: Book) -> bool:
    """Whether a table may have rows of windows that the ledger knows no more, at offsets that it reads again."""
    return bool(_restored(book))


def _restored(book: Book) -> str:
    register = book.register()
    return register[1].restored if register else ""
