"""Finding the stream that somebody names on a command line."""

from __future__ import annotations

from pathlib import Path

from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.streams.loading import FOLDERS, load, stream_files, stream_folders
from tidemark.streams.opened import OpenStream, open_stream


def folders() -> list[Path]:
    """Where streams are looked for by name: what TIDEMARK_STREAMS says, or `dags/streams` below the present folder."""
    return stream_folders(beside=Path("dags"))


def opened(stream: str) -> OpenStream:
    """The stream of a file, or the one of this name. Raises WrongUse naming those that there are."""
    if stream.endswith((".yaml", ".yml")):
        return open_stream(Path(stream))
    known, invalid = {}, []
    for path in stream_files(*folders()):
        try:
            known[load(path).stream.stream] = path
        except InvalidStreamFile:
            invalid.append(str(path))
    if stream not in known:
        where = ", ".join(map(str, folders()))
        raise WrongUse(
            f"no stream is called {stream!r} in {where}; there are: {', '.join(sorted(known)) or 'none'}. "
            f"Name a stream file, or set {FOLDERS}." + (f" Not valid: {', '.join(invalid)}." if invalid else "")
        )
    return open_stream(known[stream])
