"""What people write on a command line, as values."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.coordinates import parse_coordinates
from tidemark.errors import WrongUse
from tidemark.planning.skipping import Target
from tidemark.times import read_time


def target(said: Sequence[str]) -> Target:
    """Where a skip goes: `latest`, one time, or coordinates. Raises WrongUse."""
    if any("@" in one for one in said):
        wanted = [coordinate for one in said for coordinate in parse_coordinates(one)]
        offsets = {(one.partition.topic, one.partition.partition): one.offset for one in wanted}
        if len(offsets) < len(wanted):
            raise WrongUse("--to names a partition twice")
        return offsets
    if list(said) == ["latest"]:
        return "latest"
    if len(said) > 1 or said == ["earliest"]:
        raise WrongUse(
            f"--to {' '.join(said)}: expected latest, one time, or topic/partition@offset for each partition"
        )
    return read_time(said[0])
