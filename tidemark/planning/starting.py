"""Where a new lane begins. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.errors import (
    OffsetsOutOfRange,
    WrongUse,
)
from tidemark.ledger.records import (
    Position,
    positions,
)
from tidemark.planning.checking import check_topics
from tidemark.planning.inputs import KafkaState


def start_positions(
    known: KafkaState, topics: tuple[str, ...], start: str, given: Mapping[tuple[str, int], int] | None = None
) -> tuple[Position, ...]:
    """Where a new lane begins: at the log starts (`earliest`) or at the ends (`latest`).

    An offset of `given` has precedence for its (topic, partition). Raises OffsetsOutOfRange for an offset below its log, and
    WrongUse for an offset above the log's end or a partition that Kafka does not have.
    """
    check_topics(known, topics, set())
    logs = known.to_read()
    starts = {at: known.begins(at, log) if start == "earliest" else log.end for at, log in logs.items()}
    by_name = {(at.topic, at.partition): at for at in logs}
    for name, offset in (given or {}).items():
        if name not in by_name:
            raise WrongUse(f"start.offsets: {name[0]}/{name[1]} does not exist")
        at = by_name[name]
        if offset < (begins := known.begins(at, logs[at])):
            raise OffsetsOutOfRange(
                f"start.offsets: {at} begins at {begins} now, {offset} is below it. Name an offset that is still there."
            )
        if offset > logs[at].end:
            raise WrongUse(f"start.offsets: {at} ends at {logs[at].end} now, {offset} lies above it")
        starts[at] = offset
    return positions(starts)


def shifted(known: KafkaState, given: Mapping[tuple[str, int], int], shift: int) -> dict[tuple[str, int], int]:
    """Offsets of (topic, partition), moved by `shift` forwards or backwards, and kept inside Kafka's logs."""
    logs = {(at.topic, at.partition): log for at, log in known.partitions().items()}
    return {
        place: min(max(offset + shift, logs[place].start), logs[place].end) if place in logs else offset
        for place, offset in given.items()
    }


def offsets_at_time(
    known: KafkaState, at_time: Mapping[tuple[str, int], int | None], time: str, if_none: str
) -> dict[tuple[str, int], int]:
    """The offsets at which a time begins. `found`: the first message at or after it per partition, None where none is.

    For None, `if_none` decides: `fail` raises WrongUse naming the partitions, `end` takes the end of the log. The ends were
    taken before the times were looked up, so no message at or after the time lies below them.
    """
    ends = {(at.topic, at.partition): log.end for at, log in known.to_read().items()}
    missing = sorted(f"{topic}/{partition}" for topic, partition in ends if at_time.get((topic, partition)) is None)
    if missing and if_none == "fail":
        raise WrongUse(
            f"no message at or after {time} in {', '.join(missing)}: take an earlier time, "
            "or say `if_none: end` to begin at the end"
        )
    return {name: end if (offset := at_time.get(name)) is None else min(offset, end) for name, end in ends.items()}
