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
Since = Annotated[
    str, typer.Option(help="from the first message at or after this time, like 2026-11-21T07:00:00Z, per partition")
]
UntilTime = Annotated[
    str, typer.Option(help="up to the first message at or after this time; to the end where there is none")
]
IfNone = Annotated[
    str, typer.Option(help="where no message is at or after --since: fail, or end to take nothing of that partition")
]
Reason = Annotated[str, typer.Option(help="why; it is kept in the ledger")]
ApprovedBy = Annotated[
    str,
    typer.Option(
        help="the second person who has approved it, where `limits.approve_above` asks for one; kept in the ledger"
    ),
]
