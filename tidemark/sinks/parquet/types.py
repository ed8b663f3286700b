"""The types that the fields of a Parquet sink's files have. No file is written whose field has a narrower or another type.

    BASE/_tidemark_fields/FIELD.TYPE

Spark reads all files of a sink with one type for each field, and fails at a file that has another one. The names of files
are the notes: nothing is ever changed in them, so programs may add theirs at the same time. TYPE is a word, or for
decimals `decimal_12_2`. The type of an array, map or struct is in its note, and TYPE is `nested_` with its digest.

    BASE/_tidemark_fields/FIELD.was_OLDER

A field may have had another name: the note says which, and readers take its column where a file lacks the field's own.

A field may become wider, where the digests of its values stay what they are. It then has several notes. All files are read
with the widest of them, and new ones are written with it, even where the stream file names a narrower one again.

Where no file has a row yet, as after a window of dead letters alone, nothing holds a field to its type: a stream file with
another one replaces the notes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import fs

from tidemark.errors import Conflict, WrongUse
from tidemark.settings.own_names import is_own
from tidemark.sinks.parquet import folders
from tidemark.types.fields import NESTED, FieldType, is_nested, joined, of_arrow, text_of, type_of
from tidemark.types.renamed_fields import NEVER, Names, both

T = TypeVar("T")

_NOTES, _WAS = "_tidemark_fields", "was_"


def keep(base: str, fields: Mapping[str, FieldType], was: Names = NEVER) -> None:
    """Note the types of fields whose files are about to be written. Raises WrongUse as `check` does, and notes nothing."""
    known = unless_without_rows([base], lambda: _checked(base, fields, was), None)
    with folders.opened(base) as (filesystem, path):
        if known is None:
            folders.remove(filesystem, f"{path}/{_NOTES}")
            known = {}
        filesystem.create_dir(f"{path}/{_NOTES}", recursive=True)
        # First of all: no file has the new name before.
        for name, before in was.items():
            for old in (one for one in before if one in known):
                filesystem.open_output_stream(f"{path}/{_NOTES}/{name}.{_WAS}{old}").close()
        for name, kind in {**known, **_widened(known, fields)}.items():
            note = f"{path}/{_NOTES}/{name}.{_word(kind)}"
            if filesystem.get_file_info(note).type == fs.FileType.NotFound:
                with filesystem.open_output_stream(note) as file:
                    file.write(kind.encode() if is_nested(kind) else b"")


def names_of(base: str, was: Names = NEVER) -> Names:
    """The older names of fields: those that are noted, and those that a stream file says in `was`."""
    with folders.opened(base) as (filesystem, path):
        return both(_names(_notes(filesystem, path)), was)


def _notes(filesystem: fs.FileSystem, path: str) -> list[tuple[str, str]]:
    """The paths of the notes, each with its field and what it says."""
    infos = filesystem.get_file_info(fs.FileSelector(f"{path}/{_NOTES}", allow_not_found=True))
    return [(one.path, posixpath.basename(one.path)) for one in infos]


def _names(notes: list[tuple[str, str]]) -> Names:
    names: dict[str, list[str]] = {}
    for name, _, word in (note.rpartition(".") for _, note in notes):
        if word.startswith(_WAS):
            names.setdefault(name, []).append(word.removeprefix(_WAS))
    return names


def check(base: str, fields: Mapping[str, FieldType], was: Names = NEVER) -> dict[str, str]:
    """The types of all fields that the files have; of one with another name now, of all its names together.

    Raises WrongUse for a field that now has another type, or a name that differs in case alone: Spark takes the two for one.
    So it does for a name that files have for another field. What no file has a row of is not asked: then there are no types.
    """
    return unless_without_rows([base], lambda: _checked(base, fields, was), {})


def _checked(base: str, fields: Mapping[str, FieldType], was: Names) -> dict[str, str]:
    with folders.opened(base) as (filesystem, path):
        notes = _notes(filesystem, path)
        known: dict[str, FieldType] = {}
        for name, kind in (_noted(filesystem, one) for one, note in notes if f".{_WAS}" not in note):
            known[name] = joined(known.get(name, kind), kind) or kind
        known = known or _of_newest(filesystem, path)
    renamed = _names(notes)
    _check_names(base, fields, known, renamed, was)
    for name, before in both(renamed, was).items():
        for kind in (known[old] for old in before if old in known):
            known[name] = joined(known.get(name, kind), kind) or kind
    refuse_other_case(f"{base} has the field", known, fields, "for Spark both are one column", "folder")
    for name, kind in fields.items():
        if joined(known.get(name, kind), kind) is None:
            raise other_type(f"{base} has the field {name}", known[name], kind, "folder")
    return known


def _check_names(
    base: str, fields: Mapping[str, FieldType], known: Mapping[str, str], noted: Names, was: Names
) -> None:
    for name, before in noted.items():
        if reused := [old for old in before if old in fields]:
            raise WrongUse(
                f"{base} has under the name {reused[0]} what is now {name}, and the stream file has another field {reused[0]}: "
                f"give that field another name, or name another folder"
            )
    for name, before in was.items():
        if name in known and (two := [old for old in before if old in known and old not in noted.get(name, ())]):
            raise WrongUse(
                f"{base} has files with the field {name} and files with the field {two[0]}, which may have been two: it is too "
                "late to say that one was the other. Leave `was` out, or name another folder"
            )


def as_stored(base: str, fields: Mapping[str, FieldType], was: Names = NEVER) -> dict[str, FieldType]:
    """The fields with the types that files have, or get. Raises WrongUse as `check` does."""
    return _widened(check(base, fields, was), fields)


def check_unchanged(base: str, written: Mapping[str, FieldType], was: Names = NEVER) -> None:
    """After an attempt has written: whether the fields still have its types. Raises Conflict."""
    with columns_unchanged(base):
        _checked(base, written, was)


@contextmanager
def columns_unchanged(place: object) -> Iterator[None]:
    """A check within this compares what an attempt has written with the columns of its place. Raises Conflict.

    Before a place has rows, a run with another stream file may change them.
    """
    try:
        yield
    except WrongUse as problem:
        raise Conflict(
            f"a run with another stream file has changed the columns of {place}, which had no rows, while this attempt wrote: "
            f"{problem}. Run it again"
        ) from problem


def unless_without_rows(bases: Collection[str], check: Callable[[], T], otherwise: T) -> T:
    """What a check of columns gives. Where it raises WrongUse, but no file below some folders has a row: `otherwise`.

    Files without rows are those of windows of dead letters alone, whose types nobody depends on.
    """
    try:
        return check()
    except WrongUse:
        if any(map(_has_rows, bases)):
            raise
        return otherwise


def _has_rows(base: str) -> bool:
    """Whether a file below a folder has a row, whoever has written it. One that cannot be read, as a kill leaves it, may."""
    with folders.opened(base) as (filesystem, path):
        for one in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
            # The checkpoints of a Delta table have no rows of it.
            if one.is_file and one.path.endswith(".parquet") and "/_delta_log/" not in one.path:
                try:
                    with filesystem.open_input_file(one.path) as file:
                        rows = pq.read_metadata(file).num_rows
                except pa.ArrowInvalid:
                    return True
                if rows:
                    return True
    return False


def _widened(known: Mapping[str, FieldType], fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
    return {name: joined(known.get(name, kind), kind) or kind for name, kind in fields.items()}


def other_type(has: str, old: object, new: FieldType, another: str, why: str = "") -> WrongUse:
    """For a field that files or a table have (`has`) as another type. `another`: what to name instead of theirs."""
    # Such a field was stored as text by earlier versions.
    was_text = str(old) == "string" and type_of(new).name in ("decimal", "date", "timestamp_ntz", *NESTED)
    hint = "; with the scheme json, `as_text` goes on with its text" if was_text else ""
    return WrongUse(
        f"{has} as {old}, and the stream file now has it as {new}{why}: name another {another}, or give the field another "
        f"name{hint}"
    )


def refuse_other_case(has: str, there: Collection[str], wanted: Iterable[str], why: str, another: str) -> None:
    """Raises WrongUse for a name that differs in case alone from one that files or a table have (`has`)."""
    names = {name.lower(): name for name in there}
    for name in wanted:
        if name not in there and (old := names.get(name.lower())) is not None:
            raise WrongUse(
                f"{has} {old}, and the stream file now names it {name}: {why}. Keep the name {old}, or name another {another}"
            )


def refuse_other_name(where: object, there: Collection[str], was: Names, why: str, another: str) -> None:
    """Raises WrongUse for a column of a table that is to have another name. `another`: what to name instead of the table's."""
    for name, before in was.items():
        if old := [one for one in before if one in there]:
            raise WrongUse(
                f"{where} has the column {old[0]}, and the stream file says that it is now {name}: {why}. Name another "
                f"{another}, and fill it by a replay, or let a transform go on with the name {old[0]}"
            )


def _word(kind: FieldType) -> str:
    """A type in the name of a file."""
    if is_nested(kind):
        return f"nested_{xxhash.xxh64_hexdigest(kind.encode())}"
    return "_".join(re.findall(r"\w+", kind)) if "(" in kind else kind


def _noted(filesystem: fs.FileSystem, path: str) -> tuple[str, FieldType]:
    """The field and the type that a note says."""
    name, _, word = posixpath.basename(path).rpartition(".")
    if word.startswith("nested_"):
        with filesystem.open_input_file(path) as file:
            return name, file.read().decode()
    return name, re.sub(r"decimal_(\d+)_(\d+)", r"decimal(\1,\2)", word)


def _of_newest(filesystem: fs.FileSystem, path: str) -> dict[str, str]:
    """As a file of an earlier version has them, which made no notes; empty if there is no file."""
    for selected in _newest_first(filesystem, path, 3):
        files = filesystem.get_file_info(fs.FileSelector(selected, recursive=True))
        for one in files:
            if folders.is_read(one):
                with filesystem.open_input_file(one.path) as file:
                    schema = pq.read_schema(file)
                return {field.name: _kind(field.type) for field in schema if not is_own(field.name)}
    return {}


def _newest_first(filesystem: fs.FileSystem, path: str, depth: int) -> list[str]:
    """A window's folders below a sink's, LANE/NUMBER/GENERATION: of the ingest first, the last ones first."""
    if not depth:
        return [path]
    infos = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    inner = [one.path for one in infos if one.type == fs.FileType.Directory and "=" in one.base_name]
    inner.sort(key=lambda below: (below.endswith("lane=ingest"), below), reverse=True)
    return [folder for below in inner for folder in _newest_first(filesystem, below, depth - 1)]


def _kind(of: pa.DataType) -> FieldType:
    # The times of older files (INT96) have no zone, and are in UTC.
    return "timestamp" if of == pa.timestamp("ns") else text_of(of_arrow(of))
