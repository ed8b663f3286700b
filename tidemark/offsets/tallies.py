"""Counts and ack values of a window's messages, by their outcomes, and the arithmetic that a commit depends on.

An ack value is the XOR of the 64-bit hashes of the coordinates that were counted. Equal counts and equal ack values mean
the same messages, in any order. Storm's acker also keeps one XOR for a tuple tree, however large the tree is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from msgspec import Struct, structs

from tidemark.errors import VerificationFailed
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet, TopicPartition


class Outcome(IntEnum):
    """The outcome of a message: exactly one of these. The last two are dead letters."""

    STORED = 0
    # The message gave no rows.
    SKIPPED = 1
    INVALID = 2
    FAILED = 3


# gc=False: there are many of these, and none can be in a cycle. Searching them for cycles took half of a commit's time.
class Count(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A number of messages, and the XOR of their hashes as 16 hexadecimal digits (so that JSON keeps all 64 bits)."""

    number: int = 0
    ack: str = "0" * 16

    @classmethod
    def of(cls, number: int, ack: int) -> Count:
        return cls(number, f"{ack:016x}")

    def __add__(self, other: Count) -> Count:
        return Count.of(self.number + other.number, int(self.ack, 16) ^ int(other.ack, 16))


NOTHING = Count()


class PartitionTally(Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """The counts of the messages of one partition of a window.

    `read` = `stored` + `skipped` + `invalid` + `failed`, per message. `rows` counts result rows, of which a message may
    give several; `content` is the XOR of their content digests. Of the messages as they were read: `source` is the XOR of
    their source digests, `first` and `last` are offsets (None when nothing was read), `bytes` is keys and values together,
    timestamps are milliseconds since 1970.
    """

    topic: str
    incarnation: int
    partition: int
    read: Count = NOTHING
    stored: Count = NOTHING
    skipped: Count = NOTHING
    invalid: Count = NOTHING
    failed: Count = NOTHING
    rows: Count = NOTHING
    content: str = "0" * 16
    source: str = "0" * 16
    first: int | None = None
    last: int | None = None
    bytes: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition, self.incarnation)

    @property
    def dead_letters(self) -> int:
        """How many messages became dead letters."""
        return self.invalid.number + self.failed.number


def sum_tallies(left: PartitionTally, other: PartitionTally) -> PartitionTally:
    """The sum of two tallies of one partition, whose messages were counted apart."""
    return PartitionTally(
        topic=left.topic,
        incarnation=left.incarnation,
        partition=left.partition,
        read=left.read + other.read,
        stored=left.stored + other.stored,
        skipped=left.skipped + other.skipped,
        invalid=left.invalid + other.invalid,
        failed=left.failed + other.failed,
        rows=left.rows + other.rows,
        content=_xor(left.content, other.content),
        source=_xor(left.source, other.source),
        first=_least(left.first, other.first),
        last=_most(left.last, other.last),
        bytes=left.bytes + other.bytes,
        first_timestamp=_least(left.first_timestamp, other.first_timestamp),
        last_timestamp=_most(left.last_timestamp, other.last_timestamp),
    )


def after(read: Iterable[PartitionTally], became: Iterable[PartitionTally]) -> tuple[PartitionTally, ...]:
    """Join tallies of messages as they were read with the tallies of their outcomes, which were counted apart.

    `verify` finds messages that were lost in between, or came from nowhere.
    """
    left = {tally.at: tally for tally in became}
    tallies = []
    for tally in read:
        outcome = left.pop(tally.at, None)
        tallies.append(
            tally if outcome is None else structs.replace(tally, **{name: getattr(outcome, name) for name in _BECAME})
        )
    return (*tallies, *left.values())


_BECAME = ("stored", "skipped", "invalid", "failed", "rows", "content")


def _xor(left: str, other: str) -> str:
    return f"{int(left, 16) ^ int(other, 16):016x}"


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _most(*numbers: int | None) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


class Acknowledged(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a partition as a sink reports them: messages, their rows, and the XOR of the rows' content digests."""

    messages: Count
    rows: Count
    content: str


Acknowledgements = Mapping[TopicPartition, Acknowledged]
NONE_ACKNOWLEDGED = Acknowledged(NOTHING, NOTHING, "0" * 16)


def check_once(repeated: Iterable[tuple[TopicPartition, int]], what: str) -> None:
    """Raise VerificationFailed for a partition with repeated items; `repeated` gives their number per partition.

    The arithmetic of counts and XORs holds for sets only. A message that comes twice has no XOR, and a sink acknowledges
    the message twice too.
    """
    for at, number in repeated:
        if number:
            raise VerificationFailed(f"{at}: {number} {what} came more than once")


def check_read(tallies: Iterable[PartitionTally], wanted: RangeSet) -> None:
    """Check that no more was read than was wanted, and nothing before or after it. Less is allowed: logs have gaps.

    Raises VerificationFailed naming the partition and the offsets.
    """
    for tally in tallies:
        if tally.read == NOTHING:
            continue
        (hull,) = wanted.only([tally.at]).hull() or (None,)
        if hull is None:
            raise VerificationFailed(
                f"{tally.at}: {number_of(tally.read.number, 'message', 'was', 'were')} read, and none is wanted"
            )
        if tally.first is None or tally.last is None or not hull.start <= tally.first <= tally.last < hull.until:
            raise VerificationFailed(f"{tally.at}: offsets {tally.first} to {tally.last} were read, of {hull}")
        number = wanted.count(tally.at)
        if tally.read.number > number:
            read = number_of(tally.read.number, "message", "was", "were")
            raise VerificationFailed(f"{tally.at}: {read} read at {number_of(number, 'offset')}")


def verify(
    tallies: Iterable[PartitionTally], stored: Mapping[str, Acknowledgements], dead_letters: Acknowledgements | None
) -> None:
    """Check that each message read was skipped, stored by every sink, or stored as a dead letter; and rows' contents.

    `stored` holds each sink's acknowledgements by the sink's name. Without `dead_letters`, none are stored: the window
    writes some sinks alone, and only counts what is invalid or failed. Raises VerificationFailed naming sink and partition.
    """
    known = {tally.at: tally for tally in tallies}
    for tally in known.values():
        outcomes = tally.stored + tally.skipped + tally.invalid + tally.failed
        _same(f"{tally.at}: read", tally.read, "given an outcome", outcomes)
        if dead_letters is not None:
            dead = tally.invalid + tally.failed
            kept = dead_letters.get(tally.at, NONE_ACKNOWLEDGED).messages
            _same(f"{tally.at}: invalid or failed", dead, "acknowledged by the dead letters", kept)
        for sink, acknowledged in stored.items():
            got = acknowledged.get(tally.at, NONE_ACKNOWLEDGED)
            _same(f"{tally.at}: messages to store", tally.stored, f"acknowledged by sink {sink}", got.messages)
            _same(f"{tally.at}: rows to store", tally.rows, f"acknowledged by sink {sink}", got.rows)
            _same_content(tally, sink, got)
    for sink, acknowledged in [*stored.items(), ("dead letters", dead_letters or {})]:
        for partition in acknowledged.keys() - known.keys():
            raise VerificationFailed(f"{sink} acknowledged {partition}, of which nothing was read in this window")


def _same(left: str, expected: Count, right: str, counted: Count) -> None:
    if expected == counted:
        return
    what = f"{left}: {expected.number}, {right}: {counted.number}"
    if expected.number == counted.number:
        what += f", but not the same ones (ack values {expected.ack} and {counted.ack})"
    raise VerificationFailed(what)


def _same_content(tally: PartitionTally, sink: str, acknowledged: Acknowledged) -> None:
    if tally.content == acknowledged.content:
        return
    raise VerificationFailed(
        f"{tally.at}: rows to store and those acknowledged by sink {sink} have other contents (digests {tally.content} and "
        f"{acknowledged.content}). Spark computed them more than once, for example after it lost an executor, and they came "
        "out differently"
    )
