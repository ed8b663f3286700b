"""Where the page of an audit's report is: in Tidemark's plugin, and a link of the task that has the report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

AUDIT = "__audit"


def page_address(stream: str, run: str) -> str:
    """The address of the page of a run's report. Whoever may see the stream may open it."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/tidemark/streams/{quote(stream)}/audit?run={quote(run, safe='')}"


class AuditPageLink(BaseOperatorLink):
    """A button of the task `report`, which opens the report as a page."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return page_address(ti_key.dag_id.removesuffix(AUDIT), f"{ti_key.dag_id}/{ti_key.run_id}")
