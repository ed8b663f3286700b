"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Stream = Annotated[str, typer.Argument(help="a stream's name, or its file")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
Html = Annotated[Path | None, typer.Option("--html", help="also write the report into this file, as a page of its own")]
RunName = Annotated[str, typer.Option("--run", help="the name of the run; to go on with a failed run, its name")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="the job's log on standard error, also at a terminal")]
TakeOver = Annotated[bool, typer.Option("--take-over", help="take the window although its holder seems alive")]

From = Annotated[
    list[str] | None,
    typer.Option("--from", help="the first offset to read of a partition, topic/partition@offset; may be repeated"),
]
Until = Annotated[
    list[str] | None,
    typer.Option("--until", help="the first offset not to read, topic/partition@offset; may be repeated"),
]
Records = Annotated[
    list[str] | None,
    typer.Option(
        help="topic/partition@offset, or @FILE: one a line, or CSV, JSON or Parquet with topic, partition and offset; "
        "may be repeated"
    ),
]
RecordsFile = Annotated[
    str,
    typer.Option(
        help="a file of any size below the folder TIDEMARK_SELECTIONS: CSV, JSON lines or Parquet with the columns topic, "
        "partition and offset, or a folder of Parquet; or hbase:TABLE, a table that record_tables of the stream file names"
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(help="topic/partition@from-until, or @FILE with one a line; may be repeated"),
]
OfWindow = Annotated[
    str,
    typer.Option(
        "--window",
        help="what windows have read: LANE, LANE/NUMBER, or the name of the run that committed them; `ledger show --closed` "
        "lists the lanes",
    ),
]
Since = Annotated[
    str, typer.Option(help="from the first message at or after this time, like 2026-11-21T07:00:00Z, per partition")
]
UntilTime = Annotated[
    str, typer.Option(help="up to the first message at or after this time; to the end where there is none")
]
IfNone = Annotated[
    str, typer.Option(help="where no message is at or after --since: fail, or end to take nothing of that partition")
]
OrderName = Annotated[
    str, typer.Option("--order", help="which offsets of a partition to read first: oldest, or newest")
]
Rate = Annotated[
    int | None,
    typer.Option(help="the most records a second, on average; overrides `limits.max_records_per_second` for this run"),
]
Lanes = Annotated[
    int,
    typer.Option(
        "--lanes",
        help="divide the offsets among so many lanes, 1 to 8. They work at the same time, each in a Spark job",
    ),
]
IntoSinks = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        help="write this sink alone, and leave the others and the dead letters as they are; may be repeated. A backfill needs "
        "--mode reprocess for it",
    ),
]
Selection = Annotated[str, typer.Option(help="an audit's findings, by the digest that its report names")]
Reason = Annotated[str, typer.Option(help="why; it is kept in the ledger")]
ApprovedBy = Annotated[
    str,
    typer.Option(
        help="the second person who has approved it, where `limits.approve_above` asks for one; kept in the ledger"
    ),
]
PlanDigest = Annotated[
    str,
    typer.Option(
        "--plan", help="the digest that a dry run gave: refuse to read or replace anything else than it has shown"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only show what would be read")]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare",
        help="before anything is committed, show what will be the same, changed, new and gone; it runs a Spark job",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="refuse all if any of the offsets cannot be read")]
