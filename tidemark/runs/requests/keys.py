"""Which offsets hold messages with one key: by reading Kafka's logs, and by the dead letters, which keep keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.errors import WrongUse
from tidemark.ledger.records import INGEST
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.reading import Reading
from tidemark.runs.live.kafka_now import as_read, held_now, topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.reading import pieces, rows_of_pieces

_HEX = "hex:"


@dataclass(frozen=True)
class OffsetsWithKey:
    """The offsets with a key: those that were read in Kafka, and dead letters. `unseen` offsets could not be looked at."""

    offsets: RangeSet
    read: int
    dead_letters: int
    unseen: int

    def sentence(self) -> str:
        number = self.offsets.count()
        text = (
            f"{number_of(number, 'message', 'has', 'have')} the key, {self.dead_letters} of them dead letters: "
            f"{number_of(self.read, 'offset', 'was', 'were')} read in Kafka"
        )
        if self.unseen:
            text += (
                f". {number_of(self.unseen, 'offset', 'that windows have read is', 'that windows have read are')} "
                "no longer in Kafka: only dead letters of them have their keys. Name others by their records"
            )
        return text


def parse_key(said: str) -> bytes:
    """A key as people write it: text, or `hex:` with hexadecimal digits. Raises WrongUse."""
    if not said.startswith(_HEX):
        return said.encode()
    try:
        return bytes.fromhex(said.removeprefix(_HEX))
    except ValueError:
        raise WrongUse(f"key {said!r}: expected hexadecimal digits after {_HEX}, two for each byte") from None


def find_key(opened: OpenStream, key: bytes, reading: Reading, most: int | None = None) -> OffsetsWithKey:
    """The offsets below the ingest positions with this key. Reads all of them that Kafka still holds, one by one.

    Messages that Kafka has deleted are found only where a dead letter counts. Raises WrongUse, and so where more than `most`
    offsets would be read; Unreachable.
    """
    view = opened.ledger.view()
    if INGEST not in view.heads:
        raise WrongUse(f"{opened.ledger.stream} has not been read yet: there is nothing to erase")
    held = as_read(opened, view.heads[INGEST], held_now(opened, topics_now(opened)) & view.below)
    if most is not None and held.count() > most:
        raise WrongUse(
            f"key: Kafka holds {held.count()} offsets of {opened.ledger.stream}, and a page reads up to {most} to look for a "
            f"key. A dry run of the DAG {opened.ledger.stream}__erase, or tidemark erase {opened.ledger.stream} --dry-run, "
            "reads any number"
        )
    reading.begin(held)
    offsets = RangeSet(_in_kafka(opened, held, key, reading))
    # A log may be cut, or its topic recreated, while it is read: what was found above that may be of other messages.
    still = _up_to_its_end(held_now(opened, topics_now(opened)))
    still_read = as_read(opened, view.heads[INGEST], held & still)
    letters = RangeSet(
        OffsetRange(row.place.partition, row.place.offset, row.place.offset + 1)
        # Also those that another stream has erased: here they are still to be erased.
        for row in rows_of_pieces(opened.ledger, opened.dead_letter_table(), view, pieces(view.authority.covered()))
        if row.fields.get("key") == key
    )
    # From the same view: offsets that the ingest reads meanwhile are not gone from Kafka.
    unseen = view.authority.covered() - still_read
    return OffsetsWithKey((offsets & still_read) | letters, held.count(), letters.count(), unseen.count())


def _up_to_its_end(held: RangeSet) -> RangeSet:
    """With what Kafka may have deleted meanwhile at the beginning of a log: it was read before."""
    return RangeSet(OffsetRange(at, 0, held.of(at)[-1][1]) for at in held.partitions)


def _in_kafka(opened: OpenStream, held: RangeSet, key: bytes, reading: Reading) -> Iterator[OffsetRange]:
    """The messages with a key at offsets that Kafka holds. Also those of aborted transactions: they are harmless here."""
    for partition, messages in opened.log.messages(held):
        reached = partition.start
        for offset, message in messages:
            reading.passed(partition.partition, offset + 1 - reached)
            reached = offset + 1
            if message == key:
                yield OffsetRange(partition.partition, offset, offset + 1)
        # Markers and compacted offsets may end it.
        reading.passed(partition.partition, partition.until - reached)
