"""Options that name coordinates, ranges and times: each is read by itself, so that an error names its option or its file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from tidemark.errors import WrongUse
from tidemark.offsets.coordinate_files import lines_of
from tidemark.offsets.coordinates import Coordinate, parse_coordinates, parse_ranges, parse_records
from tidemark.offsets.times import read_time

# The options for a time beside those that take coordinates.
_FOR_TIMES = {"--from": "--since", "--until": "--until-time"}


def coordinates(option: str, given: list[str] | None) -> list[Coordinate]:
    """The coordinates that the values of an option name. Raises WrongUse naming the option or the file, and the line."""
    for text in given or ():
        if _is_time(text):
            into = _FOR_TIMES[option]
            raise WrongUse(f"{option}: {text!r} is a time; expected topic/partition@offset. Times go into {into}")
    return [coordinate for where, text in _texts(option, given) for coordinate in parse_coordinates(text, where)]


def time_of(option: str, text: str) -> datetime:
    """The time that an option names. Raises WrongUse naming the option."""
    try:
        return read_time(text)
    except WrongUse as problem:
        raise WrongUse(f"{option}: {problem}") from None


def _is_time(text: str) -> bool:
    try:
        return bool(datetime.fromisoformat(text))
    except ValueError:
        return False


def records(given: list[str] | None) -> str:
    """The coordinates of `--records` for a request, one a line. Raises WrongUse."""
    parsed = (parse_records(text, where) for where, text in _texts("--records", given))
    return "\n".join(
        f"{at}@{offset}"
        for named in parsed
        for at, range_ in named.ranges()
        for offset in range(range_.start, range_.until)
    )


def ranges(given: list[str] | None) -> str:
    """The ranges of `--ranges` for a request, one a line. Raises WrongUse."""
    parsed = (parse_ranges(text, where) for where, text in _texts("--ranges", given))
    return "\n".join(f"{at}@{range_.start}-{range_.until}" for named in parsed for at, range_ in named.ranges())


def _texts(option: str, given: list[str] | None) -> Iterator[tuple[str, str]]:
    """Each value of an option and where it stands: `@FILE` stands for a file's lines."""
    for text in given or ():
        yield (text[1:], lines_of(Path(text[1:]))) if text.startswith("@") else (option, text)
