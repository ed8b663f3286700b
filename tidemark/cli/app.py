"""`tidemark`: the commands. Each ends with the exit code that ./docs/exit-codes.md explains."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from inspect import cleandoc
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from tidemark.cli import many_streams, plans, stream_lookup
from tidemark.cli.commands import (
    audit,
    backups,
    compact,
    complete,
    engine,
    erase,
    fields,
    init,
    ledger,
    messages,
    migrate,
    offsets,
    replay,
    results,
    run,
    steer,
    windows,
)
from tidemark.cli.flags import CommandOfFlags, GroupOfFlags
from tidemark.cli.options import From, IfNone, Json, Since, Stream, Until, UntilTime
from tidemark.cli.output import data, error, line
from tidemark.cli.programs import Interrupted
from tidemark.clients.environment import from_environment
from tidemark.errors import EXIT_INTERNAL, DiskFull, InvalidStreamFile, TidemarkError, Unreachable, WrongUse
from tidemark.ledger.book import now_ms
from tidemark.ledger.covered import unread_now
from tidemark.ledger.records import INGEST
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.times import in_words
from tidemark.planning.checking import check_topics
from tidemark.runs.live.kafka_now import known_now
from tidemark.runs.live.one_machine import check_one_machine
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.windows import ingest
from tidemark.runs.windows.lanes import code_version
from tidemark.schemes.kinds import JsonScheme, RegexScheme
from tidemark.sinks.dead_letters.kinds import KINDS as DEAD_LETTER_KINDS
from tidemark.sinks.kinds import kind_of
from tidemark.streams.folders import problems_among
from tidemark.streams.loading import StreamFile, load, stream_files
from tidemark.streams.model import Stream as StreamModel
from tidemark.streams.parsing_limits import OF_A_STREAM, ParsingLimits, warning
from tidemark.submit.java_regexes import refused_by_java
from tidemark.views.overview import Overview, overview, transactions_shown
from tidemark.views.state_words import StreamState
from tidemark.views.states import reasons_of
from tidemark.views.stream_line import StreamLine, line_of
from tidemark.views.triage import StreamFilter, StreamNow, counted, in_order
from tidemark.views.values import as_plain

app = typer.Typer(
    cls=GroupOfFlags,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
streams = typer.Typer(help="Stream files.", no_args_is_help=True)
# The groups of commands, in the order of `--help`.
LOOK, RUN, REPLAY, PROVE, SET_UP, REPAIR = "Look", "Run", "Replay", "Prove", "Set up", "Repair"


def _version(asked: bool) -> None:
    if asked:
        line(code_version())
        raise typer.Exit


@app.callback()
def tidemark(
    version: Annotated[
        bool, typer.Option("--version", help="show the version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Kafka topics become tables in bounded batches. These commands run the batches, and show their results."""


@streams.command()
def check(
    files: Annotated[
        list[str] | None, typer.Argument(help="stream files, or names of streams; without any, all of them")
    ] = None,
    *,
    against_ledger: Annotated[
        bool, typer.Option(help="ask the places of the sinks too, whether they take the fields in their types")
    ] = False,
) -> None:
    """Check stream files, and name the errors in each. Packages that their sinks need must be installed.

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
            kind_of(sink.type).without_spark().check_fields(opened, sink)
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


streams.command("add-fields")(fields.add_fields)


@streams.command()
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


def status(
    stream: Annotated[
        str, typer.Argument(help="a stream's name, or its file; without one, all streams in a line each")
    ] = "",
    as_json: Json = False,
) -> None:
    """Position, end, lag and status of each partition, a pending window's end, and when retention may delete what is unread.

    Also shows the worst partition's status with its rule, holes, a raised latency alarm, open transactions that hold an end
    back, and keys of JSON messages that the stream file does not name. Without STREAM it shows all streams, the worst first:
    by state, then by how long the oldest unread message waits.

    Example: tidemark status orders
    """
    if not stream:
        _status_of_all(as_json=as_json)
        return
    opened = stream_lookup.opened(stream)
    overview = _overview(opened)
    columns = ("topic", "partition", "log_start", "position", "end", "lag", "status", "pending", "retention_shown")
    rows = [[getattr(partition, column) for column in columns] for partition in overview.partitions]
    headings = ("topic", "partition", "log start", "position", "end", "lag", "status", "pending until", "retention")
    data(overview, as_json=as_json, rows=rows, columns=headings)
    for reason in reasons_of(line_of(overview)):
        # These two end the command.
        if reason.state not in (StreamState.UNREACHABLE, StreamState.NO_TOPIC):
            error(str(reason))
    for transaction in overview.open_transactions:
        error(transaction.sentence)
    if overview.unknown_fields:
        error(f"keys: {overview.unknown_fields}. To add them: tidemark streams add-fields {stream}")
    if overview.kafka_problem:
        raise Unreachable(f"{overview.kafka_problem}. What is shown is what the ledger knows")
    if missing := tuple(overview.missing_topics):
        # With the exit code of the next plan.
        head = opened.book.head(INGEST)
        read = {at.topic for at in head.head.offsets()} if head is not None else set[str]()
        check_topics(known_now(opened, missing, learn=False), missing, read)


def _overview(opened: OpenStream) -> Overview:
    return overview(opened, unread_now(opened.book), without_kafka=True)


def _status_of_all(*, as_json: bool) -> None:
    """Show all streams of the folders, a line each, the worst first. A stream that cannot be read takes no other with it."""
    paths = stream_files(*stream_lookup.folders())
    looked = many_streams.looked_at(paths, open_stream, _line)
    stream_lookup.say_where(stream.opened for stream in looked if stream.opened is not None)
    ordered = in_order([stream.now for stream in looked], StreamFilter())
    data([_as_plain(stream) for stream in ordered], as_json=as_json, rows=map(_in_words, ordered), columns=_OF_ALL)
    for stream in ordered:
        for reason in stream.reasons:
            error(f"{stream.stream}: {reason}")
    error(", ".join(f"{group.streams} {group.state}" for group in counted(ordered)) or stream_lookup.none_here())
    if codes := [stream.problem.exit_code for stream in looked if stream.problem is not None]:
        # The first one's code: each has printed its remedy.
        raise typer.Exit(codes[0])


_OF_ALL = ("stream", "state", "lag", "for", "dead letters", "owner")


def _line(opened: OpenStream) -> StreamLine:
    return line_of(_overview(opened))


def _as_plain(stream: StreamNow) -> dict[str, object]:
    """The stream's line with its state and what is wrong, or why there is no line."""
    reasons = [as_plain(reason) for reason in stream.reasons]
    if stream.line is None:
        return {"stream": stream.stream, "state": stream.state, "problem": stream.problem, "reasons": reasons}
    return {**as_plain(stream.line), "state": stream.state, "reasons": reasons}


def _in_words(stream: StreamNow) -> list[object]:
    line, owner = stream.line, stream.owner or ""
    if line is None:
        return [stream.stream, stream.state, "", "", "", owner]
    waits = "" if not line.lag or line.unread_since is None else in_words(now_ms() - line.unread_since)
    return [stream.stream, stream.state, "" if line.lag is None else line.lag, waits, line.dead_letters, owner]


def plan(
    stream: Stream,
    from_: From = None,
    until: Until = None,
    since: Since = "",
    until_time: UntilTime = "",
    if_none: IfNone = "fail",
    as_json: Json = False,
) -> None:
    """Show the offsets that the next ingest would read, or that lie between bounds: ranges, tasks, an estimate. Pins nothing.

    Also shows the offsets that a policy would jump over, and the open transactions that hold an end back.

    Example: tidemark plan orders
    """
    opened = stream_lookup.opened(stream)
    if from_ or until or since or until_time:
        plans.show_within(opened, from_, until, since, until_time, if_none, as_json=as_json)
        return
    window, pinned = ingest.preview(opened)
    held = transactions_shown(ingest.open_transactions(opened), opened.book.clock())
    ranges = window.ranges if window else ()
    planned = plans.work(opened, window.hull() if window else RangeSet())
    gaps = window.gaps if window else ()
    value = {
        "window": window.seq if window else None,
        "pinned": pinned,
        "offsets": sum(range_.until - range_.start for range_ in ranges),
        "ranges": [
            {"partition": str(range_.at), "from": str(range_.start), "until": str(range_.until)} for range_ in ranges
        ],
        "gaps": [{"range": str(gap.as_range()), "kind": gap.kind.value, "policy": gap.policy} for gap in gaps],
        "open_transactions": held,
        **planned,
    }
    rows = [(range_.at, range_.start, range_.until, range_.until - range_.start) for range_ in ranges]
    data(value, as_json=as_json, rows=rows, columns=("partition", "from", "until", "offsets"))
    if planned["tasks"] and not as_json:
        plans.show_work(planned)
    for gap in gaps:
        error(f"{gap.kind.value}: {gap.as_range()} ({gap.policy})")
    for range_ in held:
        error(range_.sentence)
    if window is None:
        error("nothing is new")
    elif pinned:
        error(f"window {window.seq} is pinned already, and will be read as it is")


def paragraphs(text: str) -> str:
    """A docstring whose paragraphs are lines: a terminal breaks them where it is full, and not where the source does."""
    return "\n\n".join(" ".join(one.split()) for one in cleandoc(text).split("\n\n"))


_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    LOOK: (
        status,
        plan,
        offsets.offsets,
        results.results,
        results.show,
        messages.messages,
        windows.window,
        windows.dead_letters,
        complete.complete,
    ),
    RUN: (run.run, steer.pause, steer.resume, steer.cancel),
    REPLAY: (replay.replay, replay.backfill, erase.erase),
    PROVE: (audit.audit, audit.report),
    SET_UP: (init.init,),
    REPAIR: (compact.compact,),
}
for group, commands in _GROUPS.items():
    for command in commands:
        app.command(command.__name__.replace("_", "-"), rich_help_panel=group)(command)
app.add_typer(streams, name="streams", rich_help_panel=SET_UP)
app.add_typer(engine.app, name="engine", rich_help_panel=SET_UP)
for command in (backups.backup, backups.restore, backups.rebuild, migrate.import_, migrate.export):
    ledger.app.command(command.__name__.rstrip("_"))(command)
app.add_typer(ledger.app, name="ledger", rich_help_panel=REPAIR)
for group_ in (app, streams, engine.app, ledger.app):
    for known in group_.registered_commands:
        known.help = paragraphs(known.callback.__doc__ or "")
        known.cls = CommandOfFlags


def main() -> None:
    """The program. An error ends it with its own exit code, in one line on standard error."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    try:
        try:
            # What a script in front of it has been called as.
            app(prog_name=os.environ.get("TIDEMARK_CALLED_AS"))
        finally:
            sys.stdout.flush()
    except TidemarkError as problem:
        error(f"tidemark: {type(problem).__name__}: {problem}")
        sys.exit(problem.exit_code)
    except Interrupted as problem:
        error(f"tidemark: {problem}. What was not committed does not count.")
        # The exit code that shells give for a program that a signal has ended.
        sys.exit(128 + problem.number)
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
            _say_that_it_is_not_whole(DiskFull.of(problem.filename or "what this command prints to"))
        traceback.print_exc()
        sys.exit(EXIT_INTERNAL)


def _say_that_it_is_not_whole(problem: DiskFull) -> NoReturn:
    # Python tries at its end to write the rest.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        error(f"tidemark: DiskFull: {problem}. What was printed is not whole")
    sys.exit(problem.exit_code)


def _interrupted(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)
