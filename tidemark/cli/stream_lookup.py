"""Finding the stream that a command line names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tidemark.cli.output import error
from tidemark.clients import on_one_machine
from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.retirement import retirement
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.settings.wording import nearest
from tidemark.streams.loading import FOLDERS, load, name_in, stream_files, stream_folders

# Of the streams of a folder, which may be hundreds.
_MAX_NAMED = 20


def folders() -> list[Path]:
    """The folders to search for a stream's name: those in TIDEMARK_STREAMS, or `dags/streams` below the current folder.

    Then the one in which `tidemark init` writes on one machine.
    """
    alone = [on_one_machine.streams_folder()] if on_one_machine.has_streams() else []
    return [*stream_folders(beside=Path("dags")), *alone]


def none_here() -> str:
    """What to do where the folders have no stream file."""
    return (
        f"there is no stream file in {', '.join(map(str, folders()))}. `tidemark init TOPIC` drafts one from a topic's "
        f"messages; for files in other folders, set {FOLDERS}"
    )


def say_if_retired(ledger: Ledger) -> None:
    """Say that a ledger has moved to another place: its positions may look well for as long as nothing is produced."""
    register = ledger.register()
    if register is not None and (said := retirement(register[1])) is not None:
        error(said)


def opened(stream: str) -> OpenStream:
    """The stream of a file, or the stream of this name. Prints which servers are on this machine alone.

    Raises WrongUse naming the known streams.
    """
    stream_ = open_stream(file_of(stream))
    say_where([stream_])
    return stream_


def say_where(streams: Iterable[OpenStream]) -> None:
    """Say on standard error what of some streams is on this machine alone, each thing once."""
    notes = (on_one_machine.describe_stand_ins(opened.stream.connections(), opened.connections) for opened in streams)
    for said in dict.fromkeys(notes):
        if said is not None:
            error(said)


def file_of(stream: str) -> Path:
    """The stream file that a path or a stream's name means.

    Raises WrongUse naming the known streams, and InvalidStreamFile where the file of that name cannot be used.
    """
    if stream.endswith((".yaml", ".yml")):
        return Path(stream)
    known: dict[str, Path] = {}
    invalid, meant = [], None
    for path in stream_files(*folders()):
        try:
            known.setdefault(load(path).stream.name, path)
        except InvalidStreamFile as problem:
            invalid.append(str(path))
            if stream in (name_in(path), path.stem):
                meant = meant or problem
    if stream not in known:
        if meant is not None:
            raise meant
        where = ", ".join(map(str, dict.fromkeys(folders())))
        raise WrongUse(
            f"no stream is called {stream!r}{nearest(stream, known)} in {where}; there are: "
            f"{_some(sorted(known)) or 'none'}. "
            f"Name a stream file, or set {FOLDERS}." + (f" Not valid: {_some(invalid)}." if invalid else "")
        )
    return known[stream]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
