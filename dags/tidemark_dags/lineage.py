"""Lineage events of OpenLineage: what a run's windows have read and written, with their ranges and counts.

Needs Airflow's provider `openlineage`, which sends an event when a task ends. Without the provider, or where it is disabled,
nothing here does anything.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidemark_dags.connections import open_here
from tidemark_dags.spark_job import SparkJob
from tidemark_dags.steps import run_name

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidemark.views.lineage import Lineage

log = logging.getLogger(__name__)

FACET = "tidemark_windows"


class LineageOfWindows(SparkJob):
    """The job of a run's windows. Its event names topics, tables and folders, and has the facet `tidemark_windows`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lineage: Lineage | None = None

    def execute(self, context: Context) -> int:  # type: ignore[override]
        try:
            return super().execute(context)
        finally:
            # Also of a job that has failed: what it has committed counts.
            if _sends_events():
                self.lineage = self._committed(run_name(context))

    def _committed(self, run: str) -> Lineage | None:
        from tidemark.views.lineage import lineage

        # As they were rendered for this run.
        arguments = [str(one) for one in self.application_args or ()]
        file, lane = (arguments[arguments.index(name) + 1] for name in ("--stream-file", "--lane"))
        then = [one.removeprefix("--then=") for one in arguments if one.startswith("--then=")]
        try:
            return lineage(open_here(file), [one for one in (lane, *then) if one], run)
        except Exception:
            # A window does not fail because nobody learns of it.
            log.exception("no lineage of this run")
            return None

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """What the provider asks for when the task has ended, also after a failure."""
        return None if self.lineage is None else _as_openlineage(self.lineage)


def _sends_events() -> bool:
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


def _as_openlineage(found: Lineage) -> Any:
    from airflow.providers.openlineage.extractors.base import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset, output_statistics_output_dataset

    from tidemark_dags.lineage_facet import WindowsRunFacet

    read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    return OperatorLineage(
        inputs=[
            InputDataset(one.namespace, one.name, inputFacets={"inputStatistics": read(rowCount=one.rows)})
            for one in found.inputs
        ],
        outputs=[
            OutputDataset(
                one.namespace,
                one.name,
                outputFacets={} if one.rows is None else {"outputStatistics": written(rowCount=one.rows)},
            )
            for one in found.outputs
        ],
        run_facets={FACET: WindowsRunFacet(**found.windows)},
    )
