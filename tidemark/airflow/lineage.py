"""Lineage events of OpenLineage: what a run's windows have read and written, with their ranges and counts.

Needs Airflow's provider `openlineage`, which sends an event when a task ends. Without the provider, or where it is disabled,
nothing here does anything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidemark.airflow.connections import open_here
from tidemark.airflow.page_links import RunPageLink, WindowLink
from tidemark.airflow.spark_job import SparkJob
from tidemark.airflow.steps import run_name
from tidemark.ledger.records import INGEST

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidemark.views.lineage import Lineage

log = logging.getLogger(__name__)

FACET = "tidemark_windows"


class LineageOfWindows(SparkJob):
    """The job of a run's windows. Its event names topics, tables and folders, and has the facet `tidemark_windows`."""

    operator_extra_links = (RunPageLink(), WindowLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lineage: Lineage | None = None

    def execute(self, context: Context) -> int:
        try:
            return super().execute(context)
        finally:
            # Also of a job that has failed: what it has committed counts.
            if _sends_events():
                self.lineage = self._committed(run_name(context))

    @property
    def lane(self) -> str:
        """The lane that the job works on, as it was rendered for this run."""
        return self._argument("--lane")

    @property
    def what(self) -> str:
        return f"the job of the lane {self.lane}"

    @property
    def remedy(self) -> str:
        if self.lane == INGEST:
            return ""
        return ". To read what is left of this lane, clear this task. Other lanes of the run go on without it"

    def _argument(self, name: str) -> str:
        arguments = [str(arg) for arg in self.application_args or ()]
        return arguments[arguments.index(name) + 1]

    def _committed(self, run: str) -> Lineage | None:
        from tidemark.views.lineage import lineage

        then = [
            str(arg).removeprefix("--then=") for arg in self.application_args or () if str(arg).startswith("--then=")
        ]
        try:
            return lineage(open_here(self._argument("--stream-file")), [self.lane, *then], run)
        except Exception:
            # A window does not fail because nobody learns of it.
            log.exception("no lineage of this run")
            return None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The provider asks for this when the task has ended, even after a failure."""
        return None if self.lineage is None else _as_openlineage(self.lineage)


def _sends_events() -> bool:
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


def _as_openlineage(lineage: Lineage) -> Any:
    from airflow.providers.openlineage.extractors.base import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset, output_statistics_output_dataset

    from tidemark.airflow.lineage_facet import WindowsRunFacet
    from tidemark.views.values import as_plain

    read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    return OperatorLineage(
        inputs=[
            InputDataset(source.namespace, source.name, inputFacets={"inputStatistics": read(rowCount=source.rows)})
            for source in lineage.inputs
        ],
        outputs=[
            OutputDataset(
                output.namespace,
                output.name,
                outputFacets={} if output.rows is None else {"outputStatistics": written(rowCount=output.rows)},
            )
            for output in lineage.outputs
        ],
        run_facets={FACET: WindowsRunFacet(**as_plain(lineage.windows))},
    )
