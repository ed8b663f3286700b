"""A progress bar for a run, per partition, from the ledger and from the reports of Spark's tasks."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from demo.airflow import Airflow
from tidemark.ledger.records import Pending
from tidemark.runs.live.open_stream import OpenStream


class Watch:
    """Follows a run of a DAG and shows how far its window is."""

    def __init__(self, console: Console, airflow: Airflow, opened: OpenStream) -> None:
        self._console = console
        self._airflow = airflow
        self._opened = opened

    def run(self, dag: str, run: str, lane: str = "ingest") -> str:
        """Show the run until it ends, and give its state."""
        columns = (TextColumn("  {task.description:18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[step]}"), console=self._console) as progress:
            bars: dict[str, TaskID] = {}

            def look() -> None:
                found = self._opened.ledger.head(lane)
                pending = found.head.pending if found else None
                if pending is not None:
                    self._show(progress, bars, pending, lane)

            state = self._airflow.wait(dag, run, look)
            for bar in bars.values():
                total = progress.tasks[bar].total
                progress.update(bar, completed=total if state == "success" else None, step=state)
        return state

    def _show(self, progress: Progress, bars: dict[str, TaskID], pending: Pending, lane: str) -> None:
        for one in pending.window.ranges:
            name = str(one.at)
            if name not in bars:
                bars[name] = progress.add_task(name, total=one.until - one.start, step="pinned")
        beat = self._opened.ledger.last_beat(lane)
        mine = beat is not None and pending.attempt is not None and beat.generation == pending.attempt.generation
        if beat is None or not mine:
            return
        for name, bar in bars.items():
            progress.update(bar, completed=beat.done.get(name, 0), step=beat.step)
