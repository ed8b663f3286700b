"""`tidemark init`: a first stream file, drafted from the messages of a topic."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from tidemark.cli import stream_lookup
from tidemark.cli.output import error, line, table
from tidemark.clients import on_one_machine
from tidemark.clients.environment import from_environment
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.schema_registry import SchemaRegistry, registry_endpoint
from tidemark.drafts import drafting
from tidemark.drafts.recognising import format_of_messages
from tidemark.drafts.sampling import newest
from tidemark.errors import ConnectionMissing, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.settings import wording
from tidemark.settings.parts import Name, Topic
from tidemark.streams.loading import FOLDERS, load, name_in, stream_files
from tidemark.streams.model import Stream

_SHOWN = 5


def init(
    stream: Annotated[
        str, typer.Argument(help="the new stream's name; without it, only create the folder for this machine")
    ] = "",
    topic: Annotated[str, typer.Option(help="the topic to read; otherwise the one with the stream's name")] = "",
    kafka: Annotated[str, typer.Option(help="the connection of Kafka")] = "kafka_default",
    registry: Annotated[str, typer.Option(help="the connection of a schema registry, for Avro and Protobuf")] = "",
    messages: Annotated[int, typer.Option(help="how many messages to look at", min=1, max=100_000)] = 1_000,
    only_show: Annotated[bool, typer.Option("--dry-run", help="print the file, and write nothing")] = False,
) -> None:
    """Look at a topic's newest messages, and write a stream file that reads them. Never replaces a file.

    Results go to a Delta table. Without the connections sql_default and lake_default, ledger and results are on this
    machine alone, below TIDEMARK_HOME (~/.tidemark).

    Example: tidemark init orders --topic orders
    """
    if not stream:
        if only_show:
            raise WrongUse("--dry-run shows a stream file: name the stream")
        _keep_here()
        line(f"on this machine alone: {on_one_machine.home()}")
        return
    _check(Name, stream, "stream")
    _check(Topic, topic or stream, "topic")
    target = _folder() / f"{stream}.yaml"
    # The folder of the file may not be there yet.
    there = stream_files(*filter(Path.is_dir, stream_lookup.folders()))
    if known := [path for path in there if path == target or name_in(path) == stream]:
        raise WrongUse(f"{known[0]} describes {stream} already, and is not replaced: choose another name, or remove it")
    text = _drafted(stream, topic or stream, kafka, registry, messages)
    if only_show:
        for text_line in text.splitlines():
            line(text_line)
        return
    _keep_here()
    _write(target, text)
    error(f"wrote {target}")
    said = on_one_machine.describe_stand_ins(("sql_default", "lake_default"), from_environment)
    if said is not None:
        error(said)
    error(f"next: tidemark run {shlex.quote(stream)}")


def _check(kind: Any, name: str, what: str) -> None:
    """Raises WrongUse for what cannot be the name of a stream or topic."""
    try:
        TypeAdapter(kind).validate_python(name)
    except ValidationError as problem:
        (error,) = wording.errors(problem)
        raise WrongUse(f"{name!r} cannot be the name of a {what}: {wording.describe_error(error, Stream)}") from None


def _keep_here() -> None:
    """Begin a ledger and a lake on this machine, where a connection for one of them is missing."""
    for name in (on_one_machine.SQL, on_one_machine.LAKE):
        try:
            from_environment(name)
        except ConnectionMissing:
            if on_one_machine.begun():
                # It says why it cannot stand in.
                raise
            on_one_machine.begin()
            error(f"a new ledger and new results begin below {on_one_machine.home()}")
            from_environment(name)


def _folder() -> Path:
    """The folder of a new stream file: the first of TIDEMARK_STREAMS, `dags/streams` if it exists, or else the one for
    this machine.
    """
    first = stream_lookup.folders()[0]
    if os.environ.get(FOLDERS) or first.is_dir():
        return first
    return on_one_machine.streams_folder()


def _drafted(stream: str, topic: str, kafka: str, registry: str, messages: int) -> str:
    log = KafkaLog(kafka_endpoint(from_environment(kafka)))
    seen = newest(log, topic, messages)
    known = (registry, SchemaRegistry(registry_endpoint(from_environment(registry)))) if registry else None
    format_ = format_of_messages(seen, known)
    made = drafting.outcome(format_, seen)
    error(f"looked at {number_of(len(seen), 'message')} of {topic}: {format_.what}")
    rows = [(column.name, column.type, column.values, column.example) for column in format_.columns]
    if rows:
        table(rows, ("field", "type", "values", "as in"), sys.stderr)
    error(f"{made.rows} of them would be rows, {number_of(len(made.dead), 'dead letter')}")
    for message, why in made.dead[:_SHOWN]:
        error(f"  {message.at}: {why}")
    if len(made.dead) > _SHOWN:
        error(f"  and {len(made.dead) - _SHOWN} more")
    for note in (*drafting.doubts(made), *format_.notes):
        error(f"note: {note}")
    return drafting.text_of(stream, topic, kafka, format_, made, datetime.now(UTC).date())


def _write(target: Path, text: str) -> None:
    """The whole file or none, and never over another one. Raises WrongUse."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".draft-") as folder:
            draft = Path(folder) / target.name
            draft.write_text(text, encoding="utf-8")
            # As `tidemark streams check` reads it.
            load(draft)
            os.link(draft, target)
    except FileExistsError:
        raise WrongUse(f"{target} is there already, and is not replaced") from None
    except OSError as problem:
        raise WrongUse(f"{target} cannot be written: {problem.strerror}") from problem
