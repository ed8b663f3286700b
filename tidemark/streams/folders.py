"""The streams of a folder: which of them would write over each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tidemark.streams.loading import StreamFile
from tidemark.streams.places import Places, meeting, written

# The beginning of a place of Kafka. Streams may share a topic: its messages say whose they are.
_TOPIC = "topic"


def problems_among(files: Iterable[StreamFile]) -> Iterator[tuple[Path, Path, str]]:
    """Pairs of stream files whose streams have one name, or write to one place, each with the problem of the first."""
    names: dict[str, StreamFile] = {}
    places = Places()
    for file in files:
        stream = file.stream
        if (other := names.setdefault(stream.name, file)) is not file:
            yield file.path, other.path, f"stream {stream.name} is described by {other.path} already"
            continue
        for place in written(stream.ledger, stream.dead_letters, stream.sinks, file.path):
            met = None if place.owned.place[0] == _TOPIC else places.add((place.connection, *place.owned.place), place)
            if met is not None and met.file is not None:
                yield file.path, met.file, meeting(place, met)
