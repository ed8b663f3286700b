"""A lost ledger out of the results: looks at what attempts have left in every sink, for `ledger/adopting.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark.errors import WrongUse
from tidemark.ledger.adopting import Found, Left, Results, adopted, newest_attempts
from tidemark.ledger.book import Book
from tidemark.ledger.records import SinkReceipt
from tidemark.runs.discovery import topics_now
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.hbase.plain import left_in
from tidemark.sinks.kinds import kind_of

DEAD_LETTERS = "dead_letters"


def history_of_results(opened: OpenStream, until: Mapping[tuple[str, int], int]) -> Book:
    """A ledger in memory with a history in which the results count, and nothing else. Reads all sinks that can tell.

    `until`: where the ingest was, by another layout. Raises WrongUse where the ledger is not lost whole, or where no row is
    left.
    """
    if opened.book.register() is not None or any(True for _ in opened.book.records_with_bytes()):
        raise WrongUse(
            f"the ledger of {opened.book.stream} is not lost whole. What is left of it is worth more than the results: "
            "rebuild it without --from results. If a run has only begun here since the loss, name an empty place in the "
            "stream file's ledger"
        )
    looked_at = [one.name for one in opened.stream.sinks if _left_in_sink(opened, one.name) is not None]
    found = newest_attempts(_left(opened, looked_at))
    if not found:
        raise WrongUse(f"the results of {opened.book.stream} hold no row: there is nothing to rebuild from")
    topics = opened.log.topics(topics_now(opened), opened.stream.source.isolation)
    results = Results(
        sinks=looked_at,
        until=until,
        ids={name: log.topic_id for name, log in topics.items()},
        isolation=opened.stream.source.isolation,
        receipt=lambda one: _receipt(opened, looked_at, one),
    )
    return adopted(opened.book, found, results)


def _left(opened: OpenStream, sinks: list[str]) -> Iterator[tuple[str | None, Left]]:
    for name in sinks:
        for one in _left_in_sink(opened, name) or ():
            yield name, one
    for one in left_in(opened.dead_letter_table()):
        yield None, one


def _left_in_sink(opened: OpenStream, name: str) -> Iterator[Left] | None:
    settings = next(one for one in opened.stream.sinks if one.name == name)
    return kind_of(settings.type).without_spark().left(opened, settings)


def _receipt(
    opened: OpenStream, looked_at: list[str], one: Found
) -> tuple[tuple[SinkReceipt, ...], SinkReceipt | None]:
    """The sinks in which the attempt has left rows, and those that cannot tell; and the dead letters."""
    sinks = tuple(
        SinkReceipt(
            name=sink.name,
            type=sink.type,
            place=kind_of(sink.type).without_spark().place(opened, sink, one.lane, one.seq, one.generation),
        )
        for sink in opened.stream.sinks
        if sink.name in one.places or sink.name not in looked_at
    )
    letters = opened.stream.dead_letters
    place = {"connection": letters.hbase, "table": letters.table}
    return sinks, SinkReceipt(name=DEAD_LETTERS, type="hbase", place=place)
