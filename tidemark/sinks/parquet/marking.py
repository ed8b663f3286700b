"""Marking a folder for one of several that want it at the same moment.

On this machine's file system it is one step: a link to the finished file, which fails where there is one. A store of objects
has no such step that Arrow knows. There, each says first that it wants the folder, and then looks: who is alone takes it, and
who is not leaves it. Two that look both after both have spoken see each other; so two never take it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress

from pyarrow import fs

from tidemark.errors import Conflict
from tidemark.sinks.parquet import folders


def mark(base: str, name: str, mine: Mapping[str, str]) -> None:
    """Write a file of this name below a folder, which is made, unless there is one: then it stays as it is.

    Raises Conflict while another wants the same folder.
    """
    text = json.dumps(mine).encode()
    with folders.opened(base) as (filesystem, path):
        filesystem.create_dir(path, recursive=True)
        beside = f"{path}/{name.removesuffix('.json')}-{secrets.token_hex(8)}.json"
        with filesystem.open_output_stream(beside) as out:
            out.write(text)
        try:
            if isinstance(filesystem, fs.LocalFileSystem):
                with suppress(FileExistsError):
                    os.link(beside, f"{path}/{name}")
                return
            for other, said in _wanted(filesystem, path, name, beside):
                if said != text:
                    raise Conflict(
                        f"{base}: another stream takes this folder at the same moment. Run again, or name another folder. If "
                        f"no run of another stream is at work, one has died meanwhile: see whose {other} is, and remove it"
                    )
            # Whoever has taken it before has marked it before its wish was gone.
            if filesystem.get_file_info(f"{path}/{name}").type == fs.FileType.NotFound:
                filesystem.move(beside, f"{path}/{name}")
        finally:
            folders.remove(filesystem, beside)


def _wanted(filesystem: fs.FileSystem, path: str, name: str, mine: str) -> Iterator[tuple[str, bytes]]:
    """The files of others who want the folder, with what is in them."""
    begins = f"{name.removesuffix('.json')}-"
    for entry in filesystem.get_file_info(fs.FileSelector(path)):
        if entry.base_name.startswith(begins) and entry.path != mine:
            # It may have been taken away by now.
            with suppress(FileNotFoundError), filesystem.open_input_stream(entry.path) as stored:
                yield entry.path, stored.read()
