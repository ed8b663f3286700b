"""`tidemark`: the commands. Each ends with the exit code that ./docs/operating.md explains."""

from __future__ import annotations

import signal
import sys
import traceback
from contextlib import closing
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from tidemark import runs
from tidemark.cli import auditing, compacting, finding, ledger, offsets, plans, running, selected
from tidemark.cli.options import From, IfNone, Json, Since, Stream, Until, UntilTime
from tidemark.cli.output import data, error, line
from tidemark.cli.programs import Interrupted
from tidemark.cli.result_rows import readable, rows_of
from tidemark.cli.showing import where_is
from tidemark.coordinates import parse_coordinates
from tidemark.errors import EXIT_INTERNAL, InvalidStreamFile, TidemarkError, WrongUse
from tidemark.ranges import RangeSet
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.loading import load, stream_files
from tidemark.views.overview import overview, transactions_shown

app = typer.Typer(
    help="Kafka topics become tables in bounded batches; this runs them, and looks at what is where.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
streams = typer.Typer(help="Stream files.", no_args_is_help=True)
app.add_typer(streams, name="streams")
app.add_typer(ledger.app, name="ledger")
for command in (running.run, selected.backfill, selected.replay, auditing.audit, offsets.offsets, compacting.compact):
    app.command()(command)


@streams.command()
def check(
    files: Annotated[list[Path] | None, typer.Argument(help="stream files; without any, all of them")] = None,
) -> None:
    """Check stream files, and say of each what is wrong with it.

    Example: tidemark streams check dags/streams/orders.yaml
    """
    bad = 0
    for path in files or stream_files(*finding.folders()):
        try:
            line(f"{path}: stream {load(path).stream.stream}")
        except InvalidStreamFile as problem:
            bad += 1
            for said in str(problem).splitlines():
                error(said)
    if bad:
        raise WrongUse(f"{bad} stream files are not valid")


@app.command()
def status(stream: Stream, as_json: Json = False) -> None:
    """Position, end and lag of each partition, how far a pending window goes, and when retention may delete what is unread.

    Example: tidemark status orders
    """
    found = overview(finding.opened(stream))
    columns = ("topic", "partition", "log_start", "position", "end", "lag", "pending", "retention_shown")
    rows = [[one[column] for column in columns] for one in found["partitions"]]
    headings = ("topic", "partition", "log start", "position", "end", "lag", "pending until", "retention")
    data(found, as_json=as_json, rows=rows, columns=headings)
    for topic in found["missing_topics"]:
        error(f"topic {topic} does not exist")
    for said in found["retention_alarms"]:
        error(f"retention: {said}")
    for one in found["open_transactions"]:
        error(one["sentence"])


@app.command()
def plan(
    stream: Stream,
    from_: From = None,
    until: Until = None,
    since: Since = "",
    until_time: UntilTime = "",
    if_none: IfNone = "fail",
    save: Annotated[Path | None, typer.Option(help="write the plan into a new file, for `tidemark run --plan`")] = None,
    compare: Annotated[Path | None, typer.Option(help="say what would be planned otherwise than in this file")] = None,
    as_json: Json = False,
) -> None:
    """What the next ingest would read, or what lies between bounds: ranges, tasks and an estimate. Nothing is pinned.

    Example: tidemark plan orders --save friday.json
    """
    opened = finding.opened(stream)
    bounded = from_ or until or since or until_time
    if sum(map(bool, (bounded, save, compare))) > 1:
        raise WrongUse("bounds, --save and --compare go one at a time; what is saved is the plan of the next ingest")
    if bounded:
        plans.show_within(opened, from_, until, since, until_time, if_none, as_json=as_json)
        return
    if compare is not None:
        plans.compare(opened, compare, as_json=as_json)
        return
    if save is not None:
        plans.save(opened, save)
    window, pinned = runs.preview(opened)
    held = transactions_shown(runs.open_transactions(opened), opened.book.clock())
    ranges = window.ranges if window else ()
    planned = plans.work(opened, window.hull() if window else RangeSet())
    gaps = window.gaps if window else ()
    found = {
        "window": window.seq if window else None,
        "pinned": pinned,
        "offsets": sum(one.until - one.start for one in ranges),
        "ranges": [{"partition": str(one.at), "from": str(one.start), "until": str(one.until)} for one in ranges],
        "gaps": [{"range": str(gap.as_range()), "kind": gap.kind.value, "policy": gap.policy} for gap in gaps],
        "open_transactions": held,
        **planned,
    }
    rows = [(one.at, one.start, one.until, one.until - one.start) for one in ranges]
    data(found, as_json=as_json, rows=rows, columns=("partition", "from", "until", "offsets"))
    if planned["tasks"] and not as_json:
        plans.show_work(planned)
    for gap in gaps:
        error(f"{gap.kind.value}: {gap.as_range()} ({gap.policy})")
    for one in held:
        error(one["sentence"])
    if window is None:
        error("nothing is new")
    elif pinned:
        error(f"window {window.seq} is pinned already, and will be read as it is")


@app.command()
def show(
    stream: Stream, coordinate: Annotated[str, typer.Argument(help="topic/partition@offset")], as_json: Json = False
) -> None:
    """Which windows have read a message, which of them counts, and what is stored of it.

    Example: tidemark show orders orders/3@91234
    """
    wanted = parse_coordinates(coordinate)
    if len(wanted) != 1:
        raise WrongUse(f"{coordinate!r}: expected one coordinate, topic/partition@offset")
    found = where_is(finding.opened(stream), wanted[0])
    if as_json:
        data(found, as_json=True)
        return
    windows = [
        [one["lane"], one["seq"], one["generation"], one["run"], "counts" if one["counts"] else ""]
        for one in found["windows"]
    ]
    data(found, as_json=False, rows=windows, columns=("lane", "window", "generation", "run", ""))
    for row in found["rows"]:
        fields = " ".join(f"{name}={value}" for name, value in row["fields"].items())
        words = ["tombstone", fields] if row["tombstone"] else [fields]
        line(f"{row['place']} index {row['index']}: {' '.join(words).rstrip()}")
    if not found["windows"]:
        line(f"{found['coordinate']} is in no committed window")
    for gap in found["gaps"]:
        line(f"{gap['kind']}: window {gap['seq']} of {gap['lane']} jumped over {gap['range']} ({gap['policy']})")


@app.command()
def results(
    stream: Stream,
    sink: Annotated[str | None, typer.Option(help="a sink by its name; the first one unless named")] = None,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="in their place, the messages that were set aside, with the reason")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="at most so many rows")] = 20,
    as_json: Json = False,
) -> None:
    """Result rows that count: of HBase in the order of their coordinates or keys, of Parquet window by window, of Kafka as
    they stand in the topic.

    Example: tidemark results orders --limit 5
    """
    opened = finding.opened(stream)
    chosen = opened.stream.dead_letters if dead_letters else readable(opened, sink)
    with closing(rows_of(opened, chosen, limit)) as all_rows:
        found = list(islice(all_rows, limit))
    if isinstance(chosen, KafkaSink):
        fields = ["topic", "key", "value"]
        rows = [[one["coordinate"], *(one[name] for name in fields)] for one in found]
    elif isinstance(chosen, HBaseAggregatesSink):
        rows = [[*one["key"].values(), *one["values"].values()] for one in found]
        data(found, as_json=as_json, rows=rows, columns=(*chosen.key, *chosen.values))
        return
    else:
        fields = ["reason", "attempts", "redrives", "key", "value"] if dead_letters else list(opened.stream.fields)
        rows = [[one["coordinate"], *(one["fields"].get(name) for name in fields)] for one in found]
    data(found, as_json=as_json, rows=rows, columns=("coordinate", *fields))


def main() -> None:
    """The program. An error ends it with its own exit code, in one line on standard error."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    try:
        app()
    except TidemarkError as problem:
        error(f"tidemark: {type(problem).__name__}: {problem}")
        sys.exit(problem.exit_code)
    except Interrupted as problem:
        error(f"tidemark: {problem}. What was not committed does not count.")
        # As a shell says of a program that a signal has ended.
        sys.exit(128 + problem.number)
    except Exception:
        traceback.print_exc()
        sys.exit(EXIT_INTERNAL)


def _interrupted(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)
