"""`tidemark streams add-fields`: keys that messages have by now, taken into the stream file."""

from __future__ import annotations

import difflib
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.options import Stream
from tidemark.cli.output import data, error, line
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.drafts.adding import with_fields
from tidemark.drafts.columns import VARIANT, Column
from tidemark.drafts.json_objects import unnamed
from tidemark.drafts.sampling import newest
from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.runs.live.kafka_now import topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import JsonScheme
from tidemark.streams.loading import load
from tidemark.streams.model import Stream as Described
from tidemark.types.ddl import Member


@changes()
def add_fields(
    stream: Stream,
    asking: Confirmation,
    messages: Annotated[int, typer.Option(help="how many messages to look at", min=1, max=100_000)] = 1_000,
) -> None:
    """Look at the newest messages for keys that the stream file does not name, and add them to its fields.

    For the scheme `json`. Shows the change, and asks. All other lines of the file stay, with their comments. Older rows
    have null in a new field, until they are replayed.

    Example: tidemark streams add-fields orders
    """
    opened = stream_lookup.opened(stream)
    scheme = opened.stream.scheme
    others = (opened.stream.explode, opened.stream.decompress)
    if not isinstance(scheme, JsonScheme) or scheme.wire_format is not None or any(others):
        raise WrongUse("only messages that are one JSON object each, of the scheme json, have keys to add")
    values = _values(opened, messages)
    lacking = unnamed(values, scheme.keys, scheme.fields)
    rows = [(one.name, key, "of several types" if one.type == VARIANT else one.type, one.values, one.example)
            for key, one in lacking.items()]  # fmt: skip
    error(f"looked at {number_of(len(values), 'message')}")
    if not rows:
        error("the stream file names each key that one message of a hundred has")
        return
    data(None, as_json=False, rows=rows, columns=("field", "from", "type", "values", "as in"))
    if mixed := [key for key, one in lacking.items() if one.type == VARIANT]:
        error(f"note: no one type fits these, or what is in them; add them by hand: {', '.join(mixed)}")
    added = {key: one for key, one in lacking.items() if one.type != VARIANT}
    if scheme.ddl is not None and (renamed := [key for key, one in added.items() if key != one.name]):
        error(
            f"note: a `schema` has no other name (`from`) for a key; write `fields` to add these: {', '.join(renamed)}"
        )
        added = {key: one for key, one in added.items() if key == one.name}
    if added:
        _add(opened, added, len(values), asking)


def _values(opened: OpenStream, messages: int) -> list[bytes]:
    """The newest values of the topics that have messages, about as many of each. Raises WrongUse where none has one."""
    logs = opened.log.topics(topics_now(opened), READ_COMMITTED)
    topics = [name for name, log in logs.items() if any(one.end > one.start for one in log.partitions.values())]
    if not topics:
        raise WrongUse("the stream's topics have no messages: produce some, or write the fields by hand")
    seen = [message for topic in topics for message in newest(opened.log, topic, -(-messages // len(topics)))]
    return [message.value for message in seen if message.value is not None]


def _add(opened: OpenStream, added: Mapping[str, Column], looked_at: int, asking: Confirmation) -> None:
    path = opened.file.path
    before = path.read_bytes()
    text = before.decode()
    said = f"added on {datetime.now(UTC).date()}, from {number_of(looked_at, 'message')}"
    changed = with_fields(text, added, said)
    _check(path, changed, opened.stream, {one.name: key for key, one in added.items()})
    for one in difflib.unified_diff(text.splitlines(), changed.splitlines(), str(path), str(path), lineterm="", n=1):
        line(one)
    if opened.stream.transform is not None:
        error("note: results have what the transform gives; add the new fields there too")
    if not asking.agrees(f"add {number_of(len(added), 'field')} to {path}?"):
        return
    if path.read_bytes() != before:
        raise WrongUse(f"{path} was changed meanwhile, and was left as it is: look again")
    _replace(path, changed)
    error(f"wrote {path}")
    error(f"next: tidemark streams check --against-ledger {shlex.quote(str(path))}")


def _check(path: Path, text: str, before: Described, added: Mapping[str, str]) -> None:
    """Raises WrongUse unless the text is the stream of before with these fields more in its scheme, and nothing else.

    `added`: the name in messages of each.
    """
    # Beside it, since it may name other files.
    with _writable(path), tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=path.suffix) as draft:
        draft.write(text.encode())
        draft.flush()
        try:
            after = load(Path(draft.name)).stream
        except InvalidStreamFile as problem:
            said = str(problem).replace(draft.name, str(path))
            raise WrongUse(f"with the new fields the stream file would not be valid: {said}") from None
    known, sources = _columns(before), [*_sources(before).items()]
    same = _columns(after)[: len(known)] == known and _others(after) == _others(before)
    if not same or [*_sources(after).items()] != [*sources, *added.items()]:
        raise WrongUse(f"{path}: the fields are written in a way that this command does not know; write them by hand")


def _others(stream: Described) -> dict[str, Any]:
    return stream.model_dump(exclude={"scheme": {"given", "ddl"}})


def _columns(stream: Described) -> tuple[Member, ...]:
    return stream.scheme.columns if isinstance(stream.scheme, JsonScheme) else ()


def _sources(stream: Described) -> dict[str, str]:
    return {one.name: stream.scheme.source_of(one.name) for one in _columns(stream)}


def _replace(path: Path, text: str) -> None:
    """All of it or nothing, with the file's owner and rights. `path` may be a link to the file."""
    file = path.resolve()
    with _writable(file), file.open("r+b"), tempfile.TemporaryDirectory(dir=file.parent, prefix=".fields-") as folder:
        draft, known = Path(folder) / file.name, file.stat()
        draft.write_bytes(text.encode())
        if (known.st_uid, known.st_gid) != (draft.stat().st_uid, draft.stat().st_gid):
            os.chown(draft, known.st_uid, known.st_gid)
        draft.chmod(known.st_mode)
        draft.replace(file)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise WrongUse(
            f"{path} was left as it is: {problem.strerror}. The new file is written beside it first, with its owner: let this "
            f"user write it, and in {path.parent}"
        ) from problem
