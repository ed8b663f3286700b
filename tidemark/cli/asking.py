"""What people write on a command line, as values."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from tidemark.coordinates import parse_coordinates
from tidemark.errors import WrongUse
from tidemark.skipping import Target
from tidemark.streams.model import Start, StartTime

_START: TypeAdapter[Start] = TypeAdapter(Start)


def target(said: Sequence[str]) -> Target:
    """`latest`, one time, or coordinates. Raises WrongUse."""
    if any("@" in one for one in said):
        wanted = [coordinate for one in said for coordinate in parse_coordinates(one)]
        offsets = {(one.partition.topic, one.partition.partition): one.offset for one in wanted}
        if len(offsets) < len(wanted):
            raise WrongUse("--to names a partition twice")
        return offsets
    if list(said) == ["latest"]:
        return "latest"
    if len(said) != 1 or said == ["earliest"]:
        raise WrongUse(
            f"--to {' '.join(said)}: expected latest, one time, or topic/partition@offset for each partition"
        )
    try:
        start = _START.validate_python(int(said[0]) if said[0].isdecimal() else said[0])
    except ValidationError as problem:
        raise WrongUse(f"--to {said[0]}: {problem.errors()[0]['msg']}") from problem
    assert isinstance(start, StartTime)
    return start.time
