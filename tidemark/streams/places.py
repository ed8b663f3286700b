"""The places that streams write to, and which of them would meet: two of one stream, or of two streams of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.sinks.contract import Owned, owned_table

if TYPE_CHECKING:
    from tidemark.streams.loading import StreamFile
    from tidemark.streams.model import Stream

# The beginning of a place of Kafka. Streams may share a topic: its messages say whose they are.
_TOPIC = "topic"


@dataclass(frozen=True)
class _Written:
    """A place, and who writes to it. `ledger`: streams may share it, with ledgers of others."""

    owned: Owned
    by: str
    connection: str
    ledger: bool = False
    file: Path | None = None


class _Places:
    """Places of which none is another one, or lies within another one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[_Written]] = {}
        # Each place that one of them lies within.
        self._around: dict[tuple[str, ...], _Written] = {}

    def add(self, key: tuple[str, ...], one: _Written) -> _Written | None:
        """Take a place in, and give one that it meets; None if it meets none."""
        for length in range(1, len(key) + 1):
            for other in self._known.get(key[:length], []):
                if not (one.ledger and other.ledger and length == len(key)):
                    return other
        if key in self._around:
            return self._around[key]
        self._known.setdefault(key, []).append(one)
        for length in range(1, len(key)):
            self._around.setdefault(key[:length], one)
        return None


def problem_within(stream: Stream) -> str | None:
    """The problem with the places of one stream; None if each thing that it writes has its own."""
    places = _Places()
    for one in _written(stream):
        if (other := places.add(one.owned.place, one)) is not None:
            same = other.owned.place == one.owned.place and other.owned.said == one.owned.said
            return one.owned.problem if same else _meet(one, other)
    return None


def problems_among(files: Iterable[StreamFile]) -> Iterator[tuple[Path, Path, str]]:
    """Pairs of stream files whose streams have one name, or write to one place, each with what is wrong with the first."""
    names: dict[str, StreamFile] = {}
    places = _Places()
    for file in files:
        stream = file.stream
        if (other := names.setdefault(stream.name, file)) is not file:
            yield file.path, other.path, f"stream {stream.name} is described by {other.path} already"
            continue
        for one in _written(stream, file.path):
            met = None if one.owned.place[0] == _TOPIC else places.add((one.connection, *one.owned.place), one)
            if met is not None and met.file is not None:
                yield file.path, met.file, _meet(one, met)


def _written(stream: Stream, file: Path | None = None) -> Iterator[_Written]:
    for owned in stream.dead_letters.owned():
        yield _Written(owned, "the dead letters", stream.dead_letters.connection, file=file)
    for owned in stream.dead_letters.copied():
        yield _Written(owned, "the copies of the dead letters", stream.dead_letters.copy_kafka, file=file)
    for table in stream.ledger.tables():
        yield _Written(owned_table(table), "the ledger", stream.ledger.connection, ledger=True, file=file)
    for sink in stream.sinks:
        for owned in sink.owned():
            yield _Written(owned, f"sink {sink.name}", sink.connection, file=file)


def _meet(one: _Written, other: _Written) -> str:
    return (
        f"{_shown(one)} of {one.by} meets {_shown(other)} of {other.by}{f' in {other.file}' if other.file else ''}: they are "
        "one, one lies within the other, or their names differ in case alone, which not every file system tells apart. "
        "Name another place, next to it"
    )


def _shown(one: _Written) -> str:
    return one.owned.said or " ".join(one.owned.place)
