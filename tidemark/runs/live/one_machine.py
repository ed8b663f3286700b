"""Where a stream needs all of its programs on one machine: its ledger or its dead letters are in a file of SQLite."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.clients.connections import Connections
from tidemark.errors import ConnectionMissing, WrongUse
from tidemark.streams.model import Stream

_LEDGER = "its ledger"


def check_one_machine(stream: Stream, connections: Connections, master: str | None = None) -> None:
    """Raises WrongUse for a file of SQLite where Spark's workers may be on other machines: each would open its own file.

    `master`: that of the Spark at work. None: the one that the stream's Spark connection names, if there is one.
    """
    files = list(_files(stream, connections))
    if not files:
        # No other connection is asked for.
        return
    master = master or _master(stream, connections)
    if master is not None and not master.startswith("local"):
        verb = "is" if files == [_LEDGER] else "are"
        raise WrongUse(
            f"stream {stream.name}: {' and '.join(files)} {verb} in a file of SQLite, which suits one machine, and Spark's "
            f"master is {master}: each worker would open a file of its own. Name a connection to PostgreSQL or MySQL there, or "
            "a Spark connection with the master local[...]"
        )


def _files(stream: Stream, connections: Connections) -> Iterator[str]:
    for what, settings in ((_LEDGER, stream.ledger), ("its dead letters", stream.dead_letters)):
        if settings.database is not None and _is_file(settings.database, connections):
            yield what


def _is_file(name: str, connections: Connections) -> bool:
    try:
        return connections(name).kind == "sqlite"
    except ConnectionMissing:
        # Whoever opens it says so.
        return False


def _master(stream: Stream, connections: Connections) -> str | None:
    if stream.engine.master is not None:
        return stream.engine.master
    try:
        return connections(stream.engine.spark).host
    except ConnectionMissing:
        return None
