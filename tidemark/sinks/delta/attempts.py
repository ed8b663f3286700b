"""What attempts write for a Delta table: folders as those of the sink `parquet`, beside the table and never within it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyarrow import fs

from tidemark.clients.lake import beside
from tidemark.sinks.parquet import files, folders


def attempt_folder(base: str, lane: str, seq: int, generation: int) -> str:
    return files.attempt_folder(beside(base), lane, seq, generation)


def is_beside(base: str, folder: str) -> bool:
    """Whether an attempt's folder is one of these. Attempts of earlier versions of Tidemark wrote into the table itself."""
    return folder.startswith(f"{beside(base)}/")


def published(base: str, file: str) -> str | None:
    """The name in the table of a file that an attempt has written beside it; None for a file of the table itself."""
    if not is_beside(base, file):
        return None
    folder, _, name = file.rpartition("/")
    return f"{base}/_generation={folder.rpartition('=')[2]}/{name}"


def written(base: str) -> Mapping[int, list[str]]:
    """The files that attempts have written and that are not in the table yet, by generation."""
    return {one.generation: paths for one, paths in files.by_attempt(beside(base)).items()}


def remove(folder: str) -> None:
    """Remove an attempt's folder, and that of its window where it is empty now: each listing would go through all of them."""
    files.delete(folder)
    with folders.opened(folder.rpartition("/")[0]) as (filesystem, path):
        # A bucket has no folders. One that is not empty is another attempt's too.
        if isinstance(filesystem, fs.LocalFileSystem):
            with suppress(OSError):
                Path(path).rmdir()
