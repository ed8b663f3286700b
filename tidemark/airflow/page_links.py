"""Links from tasks to Tidemark's pages, which the plugin serves."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

AUDIT = "__audit"


def page_address(stream: str, run: str) -> str:
    """The address of the page of a run's report. Whoever may see the stream may open it."""
    return f"{_base()}/tidemark/streams/{quote(stream)}/audit?run={quote(run, safe='')}"


def _base() -> str:
    base: str = conf.get("api", "base_url", fallback="")
    return base.rstrip("/")


class AuditPageLink(BaseOperatorLink):
    """A button of the task `report`, which opens the report as a page."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return page_address(ti_key.dag_id.removesuffix(AUDIT), f"{ti_key.dag_id}/{ti_key.run_id}")


class RunPageLink(BaseOperatorLink):
    """A button of the task `process`, which opens the page of the run: its windows, and how far it is."""

    name = "Offsets"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return f"{_base()}/tidemark/run?{urlencode({'dag_id': ti_key.dag_id, 'run_id': ti_key.run_id})}"
