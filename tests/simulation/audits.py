"""Whole audits with their repairs as actors: all is the product's but the comparison of rows, which Spark does else."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.simulation.actors import current
from tests.simulation.kafka import Message, Place
from tests.simulation.work import HBASE, LETTERS, ROWS, tally
from tidemark.audit.levels import Level
from tidemark.audit.report import PlaceReport
from tidemark.cli import audit_job
from tidemark.cli.commands import audit as audit_command
from tidemark.errors import EXIT_DIFFERENCES, EXIT_DONE
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import selecting
from tidemark.sinks.hbase.table import result_table
from tidemark.sinks.reading import hbase_rows

if TYPE_CHECKING:
    from tidemark.ledger.ledger import Ledger

STREAM = "orders"
# The sinks whose rows are compared; None: the dead letters.
COMPARED = ("hbase", None)
# More audits than any program has.
_ALL = 1_000
# Contents of a row: key and number.
Contents = tuple[int, int]


def audit(run: str, repair: str) -> None:
    """The command."""
    audit_command.audit(STREAM, run_name=run, level="full", repair=repair, yes=True, as_json=True, reason="a bug")


def contents(opened: OpenStream, ledger: Ledger, sink: str | None) -> dict[Place, Contents]:
    """Key and number of each row that counts, or of each dead letter, as the product's reader gives them."""
    table = result_table(opened.connections, HBASE, LETTERS if sink is None else ROWS)
    names = ("key", "value") if sink is None else ("id", "number")
    found: dict[Place, Contents] = {}
    for row in hbase_rows(ledger, table, sink):
        key, number = (int(row.fields.get(name, b"-1")) for name in names)
        found[row.place.partition, row.place.offset] = key, number
    return found


@dataclass
class _Expected:
    """What messages should have become, as the job computes it with Spark."""

    messages: Mapping[Place, Message]
    tallies: tuple[Any, ...]
    blocks: tuple[()] = ()
    unchanged: int = 0

    def close(self) -> None: ...

    def of(self, sink: str | None) -> dict[Place, Contents]:
        return {at: (one.key, one.number) for at, one in self.messages.items() if one.bad == (sink is None)}


def _expected(_: None, opened: OpenStream, readable: RangeSet, *__: object, **___: object) -> _Expected:
    from tests.simulation.work import as_parsed
    from tests.simulation.world import now

    found = as_parsed(now().kafka.read(readable, opened.stream.source.isolation)) if readable else {}
    return _Expected(found, tuple(tally(found, at) for at in readable.partitions))


def _places(audit: Any, rows: _Expected, *_: object) -> Iterator[Any]:
    from tidemark.spark.audit.deleted_messages import BlockComparison
    from tidemark.spark.audit.differences import AuditedPlace

    for sink in COMPARED:
        offsets = audit.in_kafka
        wanted = rows.of(sink)
        while True:
            found = contents(audit.opened, audit.opened.ledger, sink)
            # Of a compacted topic, rows count only where their message is left.
            here = {at for at in rows.messages if at in offsets}
            missing = {at for at in here & wanted.keys() if at not in found}
            extra = {at for at in here & found.keys() if at not in wanted}
            other = {at for at in here & found.keys() & wanted.keys() if found[at] != wanted[at]}
            differing = missing | extra | other
            # As `_compare_steadily`.
            if not differing or not (changed := audit.changed() & offsets):
                break
            offsets -= changed
        report = PlaceReport(
            name="dead letters" if sink is None else sink,
            expected=len(here & wanted.keys()),
            found=len(here & found.keys()),
            missing=len(missing),
            different=len(other),
            extra=len(extra),
            twice=0,
            debris=0,
        )
        findings = RangeSet(OffsetRange(at, offset, offset + 1) for at, offset in differing)
        yield AuditedPlace(report, findings, BlockComparison(RangeSet(), (), RangeSet()))


def _job(opened_here: Callable[[], OpenStream], patched: ExitStack) -> Callable[..., Any]:
    """The job, whose modules need Spark's; they are imported when somebody audits."""
    from tidemark.spark.jobs import audit as job

    if vars(job)["stream_session"] is not _no_session:
        nothing = SimpleNamespace(problems=(), compared=RangeSet())
        for name, other in {
            "stream_session": _no_session,
            "Steps": lambda *_: _steps(),
            "rows_at_a_time": lambda *_: nullcontext(),
            "rows_of_table": lambda *_: None,
            "read_beforehand": lambda *_: None,
            "unchanged": lambda *_: (),
            "audits_by_sums": lambda _: False,
            "forgotten_blocks": lambda *_: nothing,
            "expected_rows": _expected,
            "gap_reports": lambda *_: (),
            "_places": _places,
        }.items():
            patched.enter_context(patch.object(job, name, other))
    return job.audit


def _no_session(*_: object) -> None: ...


def _steps() -> AbstractContextManager[Any]:
    return nullcontext(SimpleNamespace(begin=lambda *_: None, watch=lambda _: None))


def _submit(
    opened_here: Callable[[], OpenStream],
    patched: ExitStack,
    _: OpenStream,
    script: str,
    given: Sequence[str],
    **__: Any,
) -> Any:
    """As `jobs/audit.py` reads its arguments."""
    from tests.simulation.oracle import check
    from tests.simulation.world import now

    parser = ArgumentParser()
    for name in ("--stream-file", "--run", "--level", "--selection"):
        parser.add_argument(name, default="")
    options = parser.parse_args(given)
    opened = opened_here()
    within = selecting.stored_selection(opened, options.selection) if options.selection else None
    judge = now().audits()
    report = _job(opened_here, patched)(opened, options.run, within, Level(options.level))
    judge(report, within)
    named = opened.ledger.newest_audits(_ALL)
    check(
        any(one.run == options.run for one in named), f"the audit {options.run} has ended, and is not among all audits"
    )
    last = opened.ledger.last_audit()
    check(last in named, f"the last audit is {last}, which is not among all audits")
    return SimpleNamespace(code=EXIT_DONE if report.clean else EXIT_DIFFERENCES, log="")


def _named_for_its_audit() -> str:
    request = getattr(current(), "request", None)
    assert request is not None
    return str(request.run)


@contextmanager
def audited(opened_here: Callable[[], OpenStream]) -> Iterator[None]:
    """While the block runs, the command audits the simulated world."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(audit_job, "submit", partial(_submit, opened_here, stack)))
        stack.enter_context(patch.object(audit_command, "new_run", _named_for_its_audit))
        yield
