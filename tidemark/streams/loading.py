"""Reading stream files; an error names file, line, field, and what was expected."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from yaml.constructor import SafeConstructor
from yaml.reader import Reader, ReaderError

from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.schemes.kinds import FOLDER, SchemeWithSchemas
from tidemark.settings import wording
from tidemark.streams.model import Stream

FOLDERS = "TIDEMARK_STREAMS"

# People write stream files by hand. A larger file is another file by mistake.
_MAX_BYTES = 256 * 1024
# Values within each other that PyYAML's own parser takes too.
_DEEPEST = 300
# A place in the file, before what is said of it.
_NAMED = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*): ")
# An error names at most this many problems. Each is looked up in the file, which takes as long as the file is.
_MAX_PROBLEMS = 50

# PyYAML raises its own errors, and those of its parsers of numbers, times and other values (`!!bool x`: KeyError).
_NOT_YAML = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError)
_NO_KEY = (
    "a {} stands where a key is expected; text with braces or brackets, like '{{{{ x }}}}', has to stand in quotes"
)


_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
# As everybody reads a number: with ten digits, and none of them a nought in front.
_PLAIN_NUMBER = re.compile(
    r"[+-]?(?:0|[1-9][0-9]*|(?=\.[0-9]))(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|[+-]?\.(?:inf|nan)",
    re.ASCII | re.IGNORECASE,
)
_ODD_NUMBER = (
    " is another number in YAML than it looks like (010 is 8, 1:30 is 90, 1_0 is 10): write the number in plain digits, or "
    "put it in quotes if it is a text"
)


@dataclass(frozen=True)
class StreamFile:
    """A stream, its file, and the SHA-256 of the file's bytes, followed by those of the schema file if there is one."""

    path: Path
    digest: str
    stream: Stream


def load(path: Path) -> StreamFile:
    """Read and check a stream file. Raises InvalidStreamFile with every problem, one line each."""
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise InvalidStreamFile(f"{path}: cannot be read: {problem.strerror}") from problem
    if len(raw) > _MAX_BYTES:
        raise InvalidStreamFile(f"{path}: {len(raw)} bytes; a stream file has at most {_MAX_BYTES}")
    node: yaml.Node | None = None
    try:
        node = _composed(raw)
        wrong_parts = sorted([*_wrong_keys(node), *_odd_numbers(node)], key=lambda part: part[0])
        if wrong := [f"{path}:{line}: {said}" for line, said in wrong_parts]:
            raise InvalidStreamFile("\n".join(_with_more(path, wrong[:_MAX_PROBLEMS], len(wrong))))
        _null_is_a_name(node)
        # From the same nodes: parsing the text again would double the time.
        values = None if node is None else SafeConstructor().construct_document(node)
    except RecursionError as problem:
        raise InvalidStreamFile(
            f"{path}: brackets or lists within each other, deeper than any stream file"
        ) from problem
    except _NOT_YAML as problem:
        line = _line_of_character(raw, problem) or (None if node is None else _line_of_value(node))
        raise InvalidStreamFile(_not_yaml(path, problem, line)) from problem
    if not isinstance(values, dict):
        raise InvalidStreamFile(
            f"{path}:1: expected a map that begins with `stream: NAME`, found {wording.kind_of(values)}"
        )
    try:
        stream = Stream.model_validate(values, context={FOLDER: path.parent})
    except ValidationError as problem:
        errors = wording.errors(problem)
        lines = [_problem(path, node, error) for error in errors[:_MAX_PROBLEMS]]
        raise InvalidStreamFile("\n".join(_with_more(path, lines, len(errors)))) from None
    except Exception as problem:
        # Another package may define the settings: any exception of theirs is a problem of the stream file.
        raise InvalidStreamFile(f"{path}: {type(problem).__name__}: {_one_line(problem)}") from problem
    digest = hashlib.sha256(raw)
    if isinstance(stream.scheme, SchemeWithSchemas):
        # The outcome of a message depends on the schema as well as on the stream file.
        digest.update(stream.scheme.writer.encode())
    return StreamFile(path, digest.hexdigest(), stream)


def _composed(raw: bytes) -> yaml.Node | None:
    """The nodes of a YAML file, by libyaml: it is ten times as fast. What it refuses, PyYAML's own parser says in its words."""
    # No bracket opens more than one level, nor a column of a line. libyaml's wrapper would end the process at great depth.
    deepest = raw.count(b"[") + raw.count(b"{") + max(map(len, raw.splitlines()), default=0)
    if yaml.__with_libyaml__ and deepest < _DEEPEST:
        with suppress(yaml.YAMLError):
            return yaml.compose(raw, Loader=yaml.CSafeLoader)
    return yaml.compose(raw, Loader=yaml.SafeLoader)


def stream_folders(beside: Path) -> list[Path]:
    """The folders of stream files: those of TIDEMARK_STREAMS (with `:` between), or `streams` beside the DAGs."""
    return _named() or [beside / "streams"]


def _named() -> list[Path]:
    return [Path(folder) for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]


def stream_files(*folders: Path) -> list[Path]:
    """The stream files of some folders, by name; a missing folder has none, and a hidden file is none.

    Raises WrongUse for a folder that is kept from us, and for a missing one that TIDEMARK_STREAMS names.
    """
    return [path for folder in folders for path in _files_of(folder)]


def _files_of(folder: Path) -> list[Path]:
    try:
        if not folder.is_dir():
            if folder in _named():
                raise WrongUse(
                    f"{FOLDERS} names the folder {folder}, which is not there: mount its disk, make it, or leave it out"
                )
            return []
        there = sorted(folder.iterdir())
        # Programs write drafts of files beside them, with a dot before the name.
        named = [path for path in there if path.suffix in (".yaml", ".yml") and not path.name.startswith(".")]
        return [path for path in named if path.is_file()]
    except OSError as problem:
        raise WrongUse(
            f"the folder of stream files {folder} cannot be read: {problem.strerror}. Let this user read it, or name others in "
            f"{FOLDERS}"
        ) from problem


def name_in(path: Path) -> str | None:
    """The stream's name as a file says it, to find one file among hundreds; nothing else of the file is checked.

    None where the file does not say it plainly, or cannot be read so far.
    """
    try:
        with path.open("rb") as file:
            # One event after the other: the name mostly stands first.
            return _name(yaml.parse(file.read(_MAX_BYTES), Loader=yaml.SafeLoader))
    except (OSError, *_NOT_YAML):
        return None


def _name(events: Iterator[yaml.Event]) -> str | None:
    depth, at_key, named = 0, True, False
    for event in events:
        begins, ends = isinstance(event, yaml.CollectionStartEvent), isinstance(event, yaml.CollectionEndEvent)
        if depth == 1 and named:
            return event.value if isinstance(event, yaml.ScalarEvent) else None
        if depth == 1 and not ends:
            # In a map, keys and values take turns.
            named = at_key and isinstance(event, yaml.ScalarEvent) and event.value == "stream"
            at_key = not at_key
        if begins and depth == 0 and not isinstance(event, yaml.MappingStartEvent):
            return None
        depth += begins - ends
    return None


def _with_more(path: Path, lines: list[str], number: int) -> list[str]:
    more = number - len(lines)
    return [*lines, f"{path}: and {number_of(more, 'more problem')}"] if more else lines


def _problem(path: Path, node: yaml.Node | None, error: ErrorDetails) -> str:
    place, said = error["loc"], wording.describe_error(error, Stream)
    if not place and (named := _NAMED.match(said)) and named[1].partition(".")[0] in Stream.model_fields:
        # A rule about several parts of the file says first which of them it is of.
        place = tuple(int(part) if part.isdecimal() else part for part in named[1].split("."))
        said = said[named.end() :]
    line, known = _line_of(node, place)
    name = ".".join(str(part) for part in known if part != "[key]") or "the file"
    key = "a key: " if known[-1:] == ["[key]"] else ""
    return f"{path}:{line}: {_printable(name)}: {key}{_printable(said)}"


def _line_of(node: yaml.Node | None, place: Sequence[int | str]) -> tuple[int, list[int | str]]:
    """The line of the deepest part of `place` in the file. Parts that only the model has are skipped."""
    line = node.start_mark.line + 1 if node else 1
    known: list[int | str] = []
    for part in place:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    line, node = key.start_mark.line + 1, value
                    known.append(part)
                    break
            else:
                # A word that chooses what stands here may be its only key too.
                if part == place[-1] and known[-1:] != [part]:
                    known.append(part)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
            known.append(part)
    return line, known


def _null_is_a_name(node: yaml.Node | None) -> None:
    """Make the key `null` a text, as it is in JSON: YAML takes it for nothing."""
    seen: set[int] = set()
    waiting = [] if node is None else [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, yaml.SequenceNode):
            waiting += one.value
        elif isinstance(one, yaml.MappingNode):
            for key, value in one.value:
                if isinstance(key, yaml.ScalarNode) and key.value == "null":
                    key.tag = "tag:yaml.org,2002:str"
                waiting.append(value)


def _wrong_keys(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """The line of each invalid key, and why. PyYAML lets the last of two equal keys win; here the second is an error."""
    # An alias is the same node object as its anchor. Visit each node once, since a node may contain itself.
    known: set[int] = set()
    left = [node]
    while left:
        one = left.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        if isinstance(one, yaml.SequenceNode):
            left += reversed(one.value)
        elif isinstance(one, yaml.MappingNode):
            seen = set()
            for key, _ in one.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    yield line, _NO_KEY.format("map" if isinstance(key, yaml.MappingNode) else "list")
                elif key.value in seen:
                    yield line, f"{_printable(key.value)}: the key stands here a second time"
                else:
                    seen.add(key.value)
            left += [value for _, value in reversed(one.value)]


def _odd_numbers(node: yaml.Node | None) -> Iterator[tuple[int, str]]:
    """The line of each number that YAML 1.1 takes for another one than it looks like, and what it is: 010 is 8, 1:30 is 90."""
    known: set[int] = set()
    left: list[tuple[str, yaml.Node]] = [] if node is None else [("", node)]
    while left:
        at, one = left.pop()
        if id(one) in known:
            continue
        known.add(id(one))
        if isinstance(one, yaml.SequenceNode):
            left += [(f"{at}.{number}", part) for number, part in enumerate(one.value)]
        elif isinstance(one, yaml.MappingNode):
            for key, value in one.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else ""
                left += [(f"{at}.{name}", key), (f"{at}.{name}", value)]
        elif _is_odd_number(one):
            yield one.start_mark.line + 1, _printable(f"{at[1:] or 'the file'}: {one.value}{_ODD_NUMBER}")


def _is_odd_number(node: yaml.Node) -> bool:
    is_number = isinstance(node, yaml.ScalarNode) and not node.style and node.tag in _NUMBERS
    return is_number and not _PLAIN_NUMBER.fullmatch(node.value)


def _printable(text: str) -> str:
    """A key or value of the file for an error message: on one line, whatever characters it has."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _line_of_character(raw: bytes, problem: Exception) -> int | None:
    """The line of the first character that YAML does not allow, or of the first bytes that are no text."""
    if not isinstance(problem, ReaderError):
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError as wrong:
        return raw.count(b"\n", 0, wrong.start) + 1
    character = Reader.NON_PRINTABLE.search(text)
    return None if character is None else text.count("\n", 0, character.start()) + 1


def _line_of_value(node: yaml.Node) -> int | None:
    """The line of the first value that looks like a time, or another value of YAML, but is not."""
    left, seen = [node], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, yaml.ScalarNode):
            try:
                SafeConstructor().construct_object(one)
            except _NOT_YAML:
                return one.start_mark.line + 1
        elif isinstance(one, yaml.MappingNode):
            left += [part for pair in reversed(one.value) for part in reversed(pair)]
        elif isinstance(one, yaml.SequenceNode):
            left += reversed(one.value)
    return None


def _not_yaml(path: Path, problem: Exception, line: int | None) -> str:
    """Where the text is no YAML, and the usual reason for it."""
    mark: yaml.Mark | None = getattr(problem, "problem_mark", None) or getattr(problem, "context_mark", None)
    line = mark.line + 1 if mark is not None else line
    where = str(path) if line is None else f"{path}:{line}"
    if isinstance(problem, ReaderError) and problem.encoding == "unicode":
        return f"{where}: not YAML: the character U+{problem.character:04X} stands here, which no stream file may have"
    if not isinstance(problem, yaml.YAMLError):
        return f"{where}: not YAML: a value is not what its form or its tag says (as 2026-13-01 is no day): put it in quotes"
    said = getattr(problem, "problem", None) or _one_line(problem)
    if "'\\t'" in said:
        why = ". YAML indents with spaces, never with tabs"
    elif "expected <block end>" in said:
        why = ". Keys of one map, and entries of one list, begin in the same column"
    elif "mapping values are not allowed" in said:
        why = ". A text with a colon and a space in it has to stand in quotes"
    elif "undefined alias" in said or "cannot start any token" in said:
        why = ". A text that begins with *, &, %, @ or ` has to stand in quotes"
    else:
        why = ""
    return f"{where}: not YAML: {_printable(said)}{why}"


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())
