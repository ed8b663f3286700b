"""The types that the fields of a Parquet sink's files have. No file is written whose field has a narrower or another type.

    BASE/_tidemark_fields/FIELD.TYPE

Spark reads all files of a sink with one type for each field, and fails at a file that has another one. The names of files
are the notes: nothing is ever changed in them, so programs may add theirs at the same time. TYPE is a word, or for
decimals `decimal_12_2`. The type of an array, map or struct is in its note, and TYPE is `nested_` with its digest.

A field may become wider, where the digests of its values stay what they are. It then has several notes. All files are read
with the widest of them, and new ones are written with it, also where the stream file names a narrower one again.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import fs

from tidemark.errors import WrongUse
from tidemark.sinks.parquet import folders
from tidemark.types.fields import NESTED, FieldType, is_nested, joined, of_arrow, text_of, type_of

_NOTES = "_tidemark_fields"


def keep(base: str, fields: Mapping[str, FieldType]) -> None:
    """Note the types of fields whose files are about to be written. Raises WrongUse as `check` does, and notes nothing."""
    known = check(base, fields)
    with folders.opened(base) as (filesystem, path):
        filesystem.create_dir(f"{path}/{_NOTES}", recursive=True)
        for name, kind in {**known, **as_stored(base, fields)}.items():
            note = f"{path}/{_NOTES}/{name}.{_word(kind)}"
            if filesystem.get_file_info(note).type == fs.FileType.NotFound:
                with filesystem.open_output_stream(note) as file:
                    file.write(kind.encode() if is_nested(kind) else b"")


def check(base: str, fields: Mapping[str, FieldType]) -> dict[str, str]:
    """The types of all fields that the files have.

    Raises WrongUse for a field that now has another type, or a name that differs in case alone: Spark takes the two for one.
    """
    with folders.opened(base) as (filesystem, path):
        found = filesystem.get_file_info(fs.FileSelector(f"{path}/{_NOTES}", allow_not_found=True))
        known: dict[str, FieldType] = {}
        for name, kind in (_noted(filesystem, one.path) for one in found):
            known[name] = joined(known.get(name, kind), kind) or kind
        known = known or _of_newest(filesystem, path)
    in_small = {name.lower(): name for name in known}
    for name, kind in fields.items():
        if name not in known and (old := in_small.get(name.lower())) is not None:
            raise WrongUse(
                f"{base} has the field {old}, and the stream file now names it {name}: for Spark both are one column. Keep "
                f"the name {old}, or name another folder"
            )
        if joined(known.get(name, kind), kind) is None:
            raise WrongUse(
                f"{base} has the field {name} as {known[name]}, and the stream file now has it as {kind}: name another "
                f"folder, or give the field another name{hint(known[name], kind)}"
            )
    return known


def as_stored(base: str, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
    """The fields with the types that files have, or get. Raises WrongUse as `check` does."""
    known = check(base, fields)
    return {name: joined(known.get(name, kind), kind) or kind for name, kind in fields.items()}


def hint(old: FieldType, new: FieldType) -> str:
    """What keeps the old type, of a field that earlier versions stored as text."""
    was_text = old == "string" and type_of(new).name in ("decimal", "date", "timestamp_ntz", *NESTED)
    return "; with the scheme json, `as_text` goes on with its text" if was_text else ""


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
            if one.is_file and one.base_name.endswith(".parquet") and one.base_name[0] not in "._":
                with filesystem.open_input_file(one.path) as file:
                    schema = pq.read_schema(file)
                return {field.name: _kind(field.type) for field in schema if field.name[0] != "_"}
    return {}


def _newest_first(filesystem: fs.FileSystem, path: str, depth: int) -> list[str]:
    """A window's folders below a sink's, LANE/NUMBER/GENERATION: of the ingest first, the last ones first."""
    if not depth:
        return [path]
    found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
    inner = [one.path for one in found if one.type == fs.FileType.Directory and "=" in one.base_name]
    inner.sort(key=lambda one: (one.endswith("lane=ingest"), one), reverse=True)
    return [folder for one in inner for folder in _newest_first(filesystem, one, depth - 1)]


def _kind(of: pa.DataType) -> FieldType:
    # The times of older files (INT96) have no zone, and are in UTC.
    return "timestamp" if of == pa.timestamp("ns") else text_of(of_arrow(of))
