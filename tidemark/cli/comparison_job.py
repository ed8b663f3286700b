"""The changes of a replay: `tidemark replay --compare`, and `tidemark report` for the run of a replay."""

from __future__ import annotations

from tidemark.audit.comparison import ReplayComparison
from tidemark.cli.output import data, error, line
from tidemark.cli.progress import job_progress
from tidemark.cli.submitting import submit
from tidemark.errors import ProcessingFailed
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.comparisons import find_comparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows.chosen_sinks import Sinks
from tidemark.submit.command import COMPARE_JOB

_PLACE = ("name", "before", "after", "same", "changed", "new", "gone")


def compared(
    opened: OpenStream, run: str, offsets: RangeSet, sinks: Sinks = None, *, verbose: bool
) -> ReplayComparison:
    """Compare what a replay of some offsets, into some sinks alone, will change. Commits nothing. Raises ProcessingFailed."""
    selection = opened.ledger.store_selection(offsets).digest
    arguments = ["--stream-file", str(opened.file.path), "--run", run, "--selection", selection]
    arguments += ["--sinks", ",".join(sinks)] if sinks is not None else []
    began = opened.ledger.clock()
    ended = submit(
        opened,
        COMPARE_JOB,
        arguments,
        look=lambda: job_progress(opened.ledger.last_progress(), run, began),
        verbose=verbose,
    )
    comparison = find_comparison(opened, run)
    if comparison is None or comparison.at < began:
        raise ProcessingFailed(f"the Spark job has left no comparison. Its log is {ended.log}.")
    error(f"The comparison is kept: tidemark report {opened.stream.name} {run}")
    return comparison


def show_comparison(comparison: ReplayComparison) -> None:
    """Counts as a table, and the first examples of each kind. No values: they may be personal data."""
    rows = [[getattr(place, name) for name in _PLACE] for place in comparison.places]
    data(None, as_json=False, rows=rows, columns=_PLACE)
    for said in comparison.lines():
        line(said)
