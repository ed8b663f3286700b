"""Finding the stream that a command line names."""

from __future__ import annotations

from pathlib import Path

from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.runs.open_stream import OpenStream, open_stream
from tidemark.streams.loading import FOLDERS, load, stream_files, stream_folders


def folders() -> list[Path]:
    """The folders to search for a stream's name: those in TIDEMARK_STREAMS, or `dags/streams` below the current folder."""
    return stream_folders(beside=Path("dags"))


def opened(stream: str) -> OpenStream:
    """The stream of a file, or the stream of this name. Raises WrongUse naming the known streams."""
    if stream.endswith((".yaml", ".yml")):
        return open_stream(Path(stream))
    known, invalid = {}, []
    for path in stream_files(*folders()):
        try:
            known[load(path).stream.name] = path
        except InvalidStreamFile:
            invalid.append(str(path))
    if stream not in known:
        where = ", ".join(map(str, folders()))
        raise WrongUse(
            f"no stream is called {stream!r} in {where}; there are: {', '.join(sorted(known)) or 'none'}. "
            f"Name a stream file, or set {FOLDERS}." + (f" Not valid: {', '.join(invalid)}." if invalid else "")
        )
    return open_stream(known[stream])
