"""The identity of a message, and how people write it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidemark.errors import WrongUse
from tidemark.offsets.ranges import FIRST_INCARNATION, MAX_OFFSET, OffsetRange, RangeSet, TopicPartition

# Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic).
_TOPIC = r"(?P<topic>[A-Za-z0-9._-]{1,249})(#(?P<incarnation>[1-9]\d{0,8}))?"
_WITH_AT = re.compile(rf"{_TOPIC}/(?P<partition>\d{{1,10}})@(?P<offset>\d{{1,19}})")
_WITH_COMMAS = re.compile(rf"{_TOPIC}\s*,\s*(?P<partition>\d{{1,10}})\s*,\s*(?P<offset>\d{{1,19}})")
_RANGE = re.compile(rf"{_TOPIC}/(?P<partition>\d{{1,10}})@(?P<start>\d{{1,19}})-(?P<until>\d{{1,19}})")
# As mathematics writes a range.
_BRACKETS = re.compile(
    rf"{_TOPIC}/(?P<partition>\d{{1,10}})\s*(?:@\s*)?\[\s*(?P<start>\d{{1,19}})\s*,\s*(?P<until>\d{{1,19}})\s*\)"
)
# The separator of an error's list: a character before the next item. No part repeats, so a line of a million spaces is
# as quick.
_BETWEEN = re.compile(r"[,;\s](?=[A-Za-z0-9._-]+(?:#\d+)?/\d+\s*[@\[])")
# Digits in groups of three, as pages show them: with a space, which may be a narrow one that does not break.
_GROUPS = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f](?=\d{3}(?!\d))")
_DASHES = re.compile(r"@\s*(?P<start>\d{1,19})\s*[\u2012-\u2015]\s*(?P<last>\d{1,19})$")
_MAX_PARTITION = 2**31 - 1

# The first names are those of Tidemark's own files, in which the second may be fields: what messages say of themselves.
_COLUMNS = (("_topic", "_partition", "_offset"), ("topic", "partition", "offset"))
_ARRAY = re.compile(r"\s*\[\s*(?=[\[{\]])")
_SPACE = re.compile(r"\s*")
# And of the incarnation, beside these: then the coordinate has four parts.
_OF_INCARNATION = {"topic": "incarnation", "_topic": "_incarnation"}
# Where # begins a comment, and not the incarnation of a topic: of the first one, or of another one on the line.
_COMMENT = re.compile(r"^\s*[A-Za-z0-9._-]+#\d+(?=[/,])|(?<![^,;\s])[A-Za-z0-9._-]+#\d+(?=/)|(?P<comment>#)")
# Characters of a cell of CSV: the message of a megabyte that Kafka takes, in base64, and more.
_MAX_OF_A_CELL = 4_000_000
# How much of a wrong line or name an error shows, and how many names.
_MAX_SHOWN, _MAX_NAMED = 100, 20


@dataclass(frozen=True, order=True, slots=True)
class Coordinate:
    """(topic, partition, offset), with the topic's incarnation inside the partition."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    def as_range(self) -> OffsetRange:
        return OffsetRange(self.partition, self.offset, self.offset + 1)


@dataclass(frozen=True)
class NamedOffsets:
    """Offsets as people name them: `open` in three parts, whose incarnation the ledger fills in, and `exact` in four."""

    open: RangeSet = field(default_factory=RangeSet)
    exact: RangeSet = field(default_factory=RangeSet)

    def __bool__(self) -> bool:
        return bool(self.open or self.exact)

    def __or__(self, other: NamedOffsets) -> NamedOffsets:
        return NamedOffsets(self.open | other.open, self.exact | other.exact)

    def ranges(self) -> Iterator[tuple[str, OffsetRange]]:
        """All ranges, each after its partition as it was named: with or without an incarnation."""
        yield from ((str(range_.partition), range_) for range_ in self.open)
        yield from ((exactly(range_.partition), range_) for range_ in self.exact)


def in_four_parts(at: Coordinate) -> str:
    """A coordinate with its incarnation, also the first one, which `str` leaves out."""
    return f"{exactly(at.partition)}@{at.offset}"


def exactly(at: TopicPartition) -> str:
    """A partition with its incarnation, also the first one, which `str` leaves out."""
    return f"{at.topic}#{at.incarnation}/{at.partition}"


def parse_records(text: str, where: str = "") -> NamedOffsets:
    """Coordinates as `parse_coordinates` reads them, of which each may have its incarnation, as `topic#2/partition@offset`."""
    with _standing(where):
        return _named(_matched(_said_in(text), (_WITH_AT, _WITH_COMMAS), "offset"))


def parse_coordinates(text: str, where: str = "") -> list[Coordinate]:
    """Coordinates as lines, CSV or JSON; the text itself shows which.

    Lines: `topic/partition@offset` or `topic,partition,offset`; empty lines and `#` comments are skipped. CSV: the first line
    names the columns topic, partition and offset, among others. JSON: an array, or one value a line; each is an object with
    these names, or `["topic", partition, offset]`.

    They have three parts; a caller that knows the ledger adds the incarnation. Raises WrongUse naming the line,
    and `where` it stands: a field, an option, or a file.
    """
    matches = []
    with _standing(where):
        for partition, start, _, exact in _matched(_said_in(text), (_WITH_AT, _WITH_COMMAS), "offset"):
            if exact:
                raise WrongUse(
                    f"{Coordinate(partition, start)}: leave the incarnation out here; the newest one is meant"
                )
            matches.append(Coordinate(partition, start))
    return matches


def parse_ranges(text: str, where: str = "") -> NamedOffsets:
    """Half-open ranges, one per line: `topic/partition@from-until`, or with an incarnation.

    What Tidemark itself shows is understood too: `topic/partition [from, until)`, a coordinate, which is one offset, several
    on a line with commas, and digits in groups. Raises WrongUse naming the line, and `where` it stands.
    """
    with _standing(where):
        return _named(_matched(_of_lines(text), (_RANGE, _BRACKETS, _WITH_AT), "from-until"))


def _named(match: _Matched) -> NamedOffsets:
    parts: dict[bool, list[OffsetRange]] = {False: [], True: []}
    for partition, start, until, exact in match:
        parts[exact].append(OffsetRange(partition, start, until))
    return NamedOffsets(RangeSet(parts[False]), RangeSet(parts[True]))


@contextmanager
def _standing(where: str) -> Iterator[None]:
    try:
        yield
    except WrongUse as problem:
        raise WrongUse(f"{where}: {problem}" if where else str(problem)) from problem


def columns(there: Iterable[str]) -> tuple[str, ...] | None:
    """The names of topic, partition and offset among some columns, and that of the incarnation, if there is one.

    None unless the first three are there.
    """
    present = set(there)
    names = next((names for names in _COLUMNS if present.issuperset(names)), None)
    return names and (*names, *present.intersection([_OF_INCARNATION[names[0]]]))


def columns_of(place: str, there: Sequence[str]) -> tuple[str, ...]:
    """The same of a table. Raises WrongUse, with the place, for one without them, and where one of them stands twice."""
    names = columns(there)
    if names is None:
        some = ", ".join(_plain(name) for name in there[:_MAX_NAMED])
        more = f" and {len(there) - _MAX_NAMED} more" if len(there) > _MAX_NAMED else ""
        raise WrongUse(f"{place}: expected the columns topic, partition and offset; it has {some or 'none'}{more}")
    if (twice := repeated_name(names, there)) is not None:
        raise WrongUse(f"{place}: the column {twice} stands there twice")
    return names


def _plain(name: str) -> str:
    """The name of a column for an error, on one line and not too long, whatever characters it has."""
    shown = name if name.isprintable() else repr(name)[1:-1]
    return shown[:_MAX_SHOWN] + ("..." if len(shown) > _MAX_SHOWN else "")


# Each form gives the number of a line, and what it says of a coordinate.
_Said = Iterator[tuple[int, str]]
# Partition, first offset and until, and whether the incarnation was said.
_Matched = Iterator[tuple[TopicPartition, int, int, bool]]


def _said_in(text: str) -> _Said:
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith(("[", "{")):
        return _of_json(text)
    return _of_csv(text) if _names_columns(text) else _of_lines(text)


def _of_lines(text: str) -> _Said:
    for number, line in enumerate(text.splitlines(), start=1):
        comments = (found.start() for found in _COMMENT.finditer(line) if found["comment"])
        if words := line[: next(comments, None)].strip():
            *before, last = _BETWEEN.split(words)
            said = [*(line.rstrip(" \t,;") for line in before), last]
            yield from ((number, _GROUPS.sub("", line)) for line in said if line)


def _names_columns(text: str) -> bool:
    """Whether the first line is the header of a table. A topic may be called topic, so numbers are no header."""
    first = text.lstrip().partition("\n")[0].strip()
    cells = {cell.strip().strip('"') for cell in first.split(",")}
    return any(names[0] in cells for names in _COLUMNS) and not _WITH_COMMAS.fullmatch(first)


def rows_of_csv(lines: Iterable[str]) -> Any:
    """A reader of CSV whose cells may be as long as messages.

    Only a line feed and a carriage return end a line, as for whoever writes CSV. Were other separators in a message's text
    to end one too, what follows them could name other messages.
    """
    # Of all readers of this program.
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_OF_A_CELL))
    return csv.reader(lines, skipinitialspace=True)


def _of_csv(text: str) -> _Said:
    rows = rows_of_csv(io.StringIO(text, newline=""))
    try:
        header = next([cell.strip() for cell in row] for row in rows if row)
        places = [header.index(name) for name in columns_of(f"line {rows.line_num}", header)]
        for row in rows:
            if row and len(row) <= max(places):
                raise WrongUse(f"line {rows.line_num}: has fewer columns than the first line, which names them")
            if row:
                yield rows.line_num, in_parts(row[place] for place in places)
    except csv.Error as problem:
        raise WrongUse(f"line {rows.line_num}: not CSV: {problem}") from problem


def _of_json(text: str) -> _Said:
    for line, value in _values(text):
        named = columns(value) if isinstance(value, dict) else None
        parts = [value[name] for name in named[:3]] if named else value
        plain = (
            isinstance(parts, list) and len(parts) == 3 and all(isinstance(part, str | int | float) for part in parts)
        )
        if not plain or not isinstance(parts[0], str):
            raise WrongUse(
                f"line {line}: {_shown(_as_json(value))} is not a coordinate; expected "
                '{"topic": "logs", "partition": 3, "offset": 17} or ["logs", 3, 17]'
            )
        yield line, in_parts(value[name] for name in named) if named else in_parts(parts)


def in_parts(cells: Iterable[object]) -> str:
    """A coordinate as people write it, of its topic, partition, offset, and maybe its incarnation; None stands for no cell."""
    topic, partition, offset, *numbered = ("" if cell is None else str(cell).strip() for cell in cells)
    return f"{topic}{f'#{numbered[0]}' if any(numbered) else ''},{partition},{offset}"


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        return "a value of many brackets within each other"


def repeated_name(names: Sequence[str], there: Sequence[str]) -> str | None:
    """The first of some names that stands twice among others: nobody knows which one is meant."""
    return next((name for name in names if there.count(name) > 1), None)


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, for `object_pairs_hook`. Raises ValueError for one of the columns' names that stands there twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        there = [name for name, _ in pairs]
        ours = [*(name for names in _COLUMNS for name in names), *_OF_INCARNATION.values()]
        if (twice := repeated_name(ours, there)) is not None:
            raise ValueError(f"the key {twice} stands there twice")
    return fields


def _values(text: str) -> Iterator[tuple[int, Any]]:
    """The values of an array, or those that follow each other, with the lines at which they begin."""
    decoder, array = json.JSONDecoder(object_pairs_hook=each_once), _ARRAY.match(text)
    before, line, at = 0, 1, array.end() if array else _after_space(text, 0)
    more = True
    while True:
        line, before = line + text.count("\n", before, at), at
        if array and text[at : at + 1] == "]":
            if rest := text[at + 1 :].strip():
                raise WrongUse(f"line {line}: expected nothing after the array, found {_shown(rest)}")
            return
        if at == len(text) and not array:
            return
        if not more:
            raise WrongUse(f"line {line}: expected a comma or the end of the array, found {_shown(text[at:])}")
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as problem:
            said = problem.msg if isinstance(problem, json.JSONDecodeError) else problem
            raise WrongUse(f"line {line}: {_shown(text[at:])} is not JSON: {said}") from problem
        yield line, value
        at = _after_space(text, end)
        if array:
            more = text[at : at + 1] == ","
            at = _after_space(text, at + 1) if more else at


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


# Where records are pasted from a table whose header has other names, or other separators.
_HEADER = (
    ". It looks like the header of a table: name its columns topic, partition and offset, or _topic, _partition and _offset, "
    "with commas between"
)


def _is_header(words: str) -> bool:
    said = words.lower()
    return sum(name in said for name in _COLUMNS[1]) > 1 and not any(word.isdigit() for word in words)


def _in_another_form(words: str, last: str) -> str | None:
    """The form to write instead of one that has two readings or belongs to another field."""
    if (dash := _DASHES.search(words)) is not None and last != "offset":
        at, start, end = words[: dash.start()], dash["start"], int(dash["last"])
        return (
            f"has a dash that may include {end}, or not: write {at}@{start}-{end} for the offsets below {end}, "
            f"or {at}@{start}-{end + 1} with {end}"
        )
    if last == "offset" and (_RANGE.fullmatch(words) or _BRACKETS.fullmatch(words)):
        return "is a range, and one offset is expected here: a range stands in ranges"
    return None


def _shown(text: str) -> str:
    first = text.partition("\n")[0]
    return repr(first[:_MAX_SHOWN] + ("..." if len(first) > _MAX_SHOWN else ""))


def _matched(said: _Said, forms: Iterable[re.Pattern[str]], last: str) -> _Matched:
    for number, words in said:
        match = next((whole for form in forms if (whole := form.fullmatch(words))), None)
        if match is None:
            if instead := _in_another_form(words, last):
                raise WrongUse(f"line {number}: {_shown(words)} {instead}")
            raise WrongUse(
                f"line {number}: {_shown(words)} is not a coordinate; expected topic/partition@{last}, for example "
                f"logs/3@17{'-20' if last != 'offset' else ''}{_HEADER if _is_header(words) else ''}"
            )
        parts = match.groupdict()
        start = int(parts.get("offset") or parts["start"])
        until = int(parts.get("until") or start + 1)
        if int(parts["partition"]) > _MAX_PARTITION or start >= MAX_OFFSET or until > MAX_OFFSET:
            raise WrongUse(
                f"line {number}: {_shown(words)} is beyond Kafka's numbers (partition 2^31-1, offset 2^63-2)"
            )
        if until < start:
            raise WrongUse(f"line {number}: {_shown(words)}: from {start} until {until} runs backwards")
        if parts["topic"] in (".", ".."):
            raise WrongUse(f"line {number}: {parts['topic']!r} is not a topic name")
        incarnation = parts["incarnation"]
        at = TopicPartition(parts["topic"], int(parts["partition"]), int(incarnation or FIRST_INCARNATION))
        yield at, start, until, incarnation is not None
