"""`tidemark streams`: whether stream files can be used, what they make of messages, and what editors know of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli import samples, stream_lookup
from tidemark.cli.options import Json
from tidemark.cli.output import data, error, line
from tidemark.clients.environment import from_environment
from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.runs.live.one_machine import check_one_machine
from tidemark.runs.live.open_stream import open_stream
from tidemark.schemes.kinds import JsonScheme, RegexScheme
from tidemark.sinks.dead_letters.kinds import KINDS as DEAD_LETTER_KINDS
from tidemark.sinks.kinds import kind_of
from tidemark.streams.folders import problems_among
from tidemark.streams.loading import StreamFile, load, stream_files
from tidemark.streams.model import Stream as StreamModel
from tidemark.streams.parsing_limits import OF_A_STREAM, ParsingLimits, warning
from tidemark.submit.java_regexes import refused_by_java


def check(
    files: Annotated[
        list[str] | None, typer.Argument(help="stream files, or names of streams; without any, all of them")
    ] = None,
    *,
    against_ledger: Annotated[
        bool, typer.Option(help="also check whether the existing tables and folders accept the fields and types")
    ] = False,
) -> None:
    """Check stream files, and report the errors in each. The packages that their sinks need must be installed.

    Also finds two streams of a folder that have one name, or write to one table or folder, and a folder with so many
    streams that Airflow may drop their DAGs. If Java is here, it checks the regular expressions. If the
    connections are known here, it also checks whether a file of SQLite works with Spark. With `--against-ledger`, it says
    before a deployment what a run would refuse: a field that a table or folder has in another type or under another name.

    Example: tidemark streams check dags/streams/orders.yaml
    """
    bad = 0
    good = []
    named = [stream_lookup.file_of(file) for file in files or ()]
    paths = list(dict.fromkeys(named or stream_files(*stream_lookup.folders())))
    for path in paths:
        try:
            file = _checked(path, against_ledger=against_ledger)
            good.append(file)
            line(f"{path}: stream {file.stream.name}")
        except InvalidStreamFile as problem:
            bad += 1
            for said in str(problem).splitlines():
                error(said)
        except WrongUse as problem:
            bad += 1
            error(f"{path}: {problem}")
    meeting = set()
    for path, other, said in problems_among([*good, *_beside(paths)]):
        if not {path, other}.isdisjoint(paths):
            meeting.add(path)
            error(f"{path}: {said}")
    for said in _many_of_a_folder(paths):
        error(f"warning: {said}")
    if bad or meeting:
        raise WrongUse(f"{number_of(bad + len(meeting), 'stream file')} cannot be used")


def _checked(path: Path, *, against_ledger: bool) -> StreamFile:
    """Raises WrongUse for what a run would refuse; with `against_ledger`, for fields that a sink has in other types too."""
    file = load(path)
    for sink in file.stream.sinks:
        kind_of(sink.type).check_packages()
    DEAD_LETTER_KINDS[file.stream.dead_letters.type].check_packages()
    check_one_machine(file.stream, from_environment)
    if isinstance(scheme := file.stream.scheme, RegexScheme):
        _check_by_java(path, [one.regex for one in scheme.patterns])
    if isinstance(scheme, JsonScheme) and scheme.wire_format is not None:
        error(
            f"note: {path}: scheme.wire_format: the registry's JSON schemas are not asked for; the types of this file alone, "
            "and its checks, say which values are valid"
        )
    if against_ledger:
        opened = open_stream(path)
        for sink in opened.stream.sinks:
            kind_of(sink.type).make_admin().check_fields(opened, sink)
    return file


def _check_by_java(path: Path, regexes: list[str]) -> None:
    """Raises WrongUse for a regular expression that a run would refuse."""
    refused = refused_by_java(regexes)
    if refused is None:
        error(
            f"warning: {path}: scheme.patterns was not checked by Java, which or whose Spark is not here; a run checks it"
        )
    for number, why in (refused or {}).items():
        raise WrongUse(f"scheme.patterns.{number}.regex: Java cannot read it: {why}")


def try_(
    stream: Annotated[str, typer.Argument(help="a stream file, or the name of a stream")],
    *,
    messages: Annotated[
        Path, typer.Option(help="a file with a message in each line, or a folder with a message in each file")
    ],
    limit: Annotated[int, typer.Option(min=1, help="show at most this many rows")] = 20,
    as_json: Json = False,
) -> None:
    """Try a stream on messages in files: show its rows, and its dead letters with their reasons.

    For a stream file under test, in an editor or in CI. It asks neither Kafka nor the ledger, and writes to no sink: Spark
    runs on this machine. Scheme, checks, transform and functions work as in a window.

    Example: tidemark streams try dags/streams/orders.yaml --messages samples.txt
    """
    path = stream_lookup.file_of(stream)
    found = samples.tried(load(path).stream, path, messages)
    if as_json:
        data(found, as_json=True)
        return
    fields = found["fields"]
    rows = [[row["message"], *(row["fields"].get(name) for name in fields)] for row in found["rows"][:limit]]
    if rows:
        data(found, as_json=False, rows=rows, columns=("message", *fields))
    if dead := [[one["message"], one["reason"], one.get("detail")] for one in found["dead_letters"][:limit]]:
        data(found, as_json=False, rows=dead, columns=("dead letter", "reason", "detail"))
    counted = number_of(len(found["rows"]), "row"), number_of(len(found["dead_letters"]), "dead letter")
    line(f"{number_of(found['messages'], 'message')}: {', '.join(counted)}, {len(found['skipped'])} skipped")


def schema() -> None:
    """Print the JSON schema of stream files, for editors that complete and check YAML.

    It knows every key and form. Only `tidemark streams check` finds parts of a file that contradict each other.

    Example: tidemark streams schema
    """
    data(StreamModel.model_json_schema(), as_json=True)


def _many_of_a_folder(paths: Iterable[Path]) -> Iterator[str]:
    """The folders of some stream files with too many, so that Airflow may drop their DAGs, if one DAG file builds them all."""
    for folder in dict.fromkeys(path.parent for path in paths):
        number, where = len(stream_files(folder)), f"{folder}: "
        about = "in one DAG file would take about"
        if said := warning(number, number * OF_A_STREAM, ParsingLimits.of_environment(), where=where, about=about):
            yield said


def _beside(paths: Sequence[Path]) -> Iterator[StreamFile]:
    """The stream files in the folders of some, without these. Their own errors are not reported here."""
    checked = {path.resolve() for path in paths}
    for path in stream_files(*dict.fromkeys(path.parent for path in paths)):
        if path.resolve() not in checked:
            with suppress(InvalidStreamFile):
                yield load(path)
