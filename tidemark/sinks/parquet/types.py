"""The types that the fields of a Parquet sink's files have. No file is written whose field has another type than before.

    BASE/_tidemark_fields/FIELD.TYPE

Spark reads all files of a sink with one type for each field, and fails at a file that has another one. The names of files
are the notes: nothing is ever changed in them, so programs may add theirs at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.errors import WrongUse
from tidemark.functions.types import FieldType
from tidemark.sinks.parquet import folders

_NOTES = "_tidemark_fields"


def keep(base: str, fields: Mapping[str, FieldType]) -> None:
    """Note the types of fields whose files are about to be written. Raises WrongUse as `check` does, and notes nothing."""
    known = check(base, fields)
    with folders.opened(base) as (filesystem, path):
        filesystem.create_dir(f"{path}/{_NOTES}", recursive=True)
        for name, kind in {**known, **fields}.items():
            note = f"{path}/{_NOTES}/{name}.{kind}"
            if filesystem.get_file_info(note).type == fs.FileType.NotFound:
                with filesystem.open_output_stream(note):
                    pass


def check(base: str, fields: Mapping[str, FieldType]) -> dict[str, str]:
    """The types of all fields that the files have.

    Raises WrongUse for a field that now has another type, or a name that differs in case alone: Spark takes the two for one.
    """
    with folders.opened(base) as (filesystem, path):
        found = filesystem.get_file_info(fs.FileSelector(f"{path}/{_NOTES}", allow_not_found=True))
        names = [one.base_name.rpartition(".") for one in found]
        known = {name: kind for name, _, kind in names} if names else _of_newest(filesystem, path)
    in_small = {name.lower(): name for name in known}
    for name, kind in fields.items():
        if name not in known and (old := in_small.get(name.lower())) is not None:
            raise WrongUse(
                f"{base} has the field {old}, and the stream file now names it {name}: for Spark both are one column. Keep "
                f"the name {old}, or name another folder"
            )
        if known.get(name, kind) != kind:
            raise WrongUse(
                f"{base} has the field {name} as {known[name]}, and the stream file now has it as {kind}: name another "
                "folder, or give the field another name"
            )
    return known


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


def _kind(of: pa.DataType) -> str:
    for holds, kind in (
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "double"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_binary, "binary"),
    ):
        if holds(of):
            return kind
    return "string"
