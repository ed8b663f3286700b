"""What the versions of a table's lanes stand under: a table takes nothing of a lane that is older than what it has of it."""

from __future__ import annotations

from tidemark.ledger.book import Book


def versions_of(book: Book) -> str:
    """What a ledger's versions in a table stand under. After a restore, they begin anew.

    A ledger that is restored to before a wrong clock draws lower generations than the table has seen of it. As versions of
    the old name, the table would skip them until the clocks have caught up. Each restore gives a higher least ordinal.
    """
    register = book.register()
    restored = register[1].least_ordinal if register else 0
    return f"{book.stream}/restored {restored}" if restored else book.stream
