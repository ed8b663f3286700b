"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Stream = Annotated[str, typer.Argument(help="a stream's name, or its file")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
Html = Annotated[
    Path | None, typer.Option("--html", help="also write the report to this file, as a self-contained page")
]
RunName = Annotated[str, typer.Option("--run", help="the name of the run; to continue a failed run, its name")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="the job's log on standard error, even at a terminal")]
TakeOver = Annotated[bool, typer.Option("--take-over", help="take the window even if its holder seems alive")]

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
UntilTime = Annotated[str, typer.Option(help="up to the first message at or after this time; without one, to the end")]
IfNone = Annotated[
    str, typer.Option(help="if no message is at or after --since: fail, or end to read nothing of that partition")
]
Reason = Annotated[str, typer.Option(help="the reason, which the ledger stores")]
ApprovedBy = Annotated[
    str,
    typer.Option(help="the person who has approved it, if `limits.approve_above` requires one; stored in the ledger"),
]
