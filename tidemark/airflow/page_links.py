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
    return stream_address(stream, f"/audit?run={quote(run, safe='')}")


def stream_address(stream: str, of_stream: str = "") -> str:
    """The address of the page of a stream, or of one of its pages, such as `/audits`."""
    return f"{base()}/tidemark/streams/{quote(stream)}{of_stream}"


def base() -> str:
    base: str = conf.get("api", "base_url", fallback="")
    return base.rstrip("/")


class AuditPageLink(BaseOperatorLink):
    """A button of the task `report`, which opens the report as a page."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return page_address(ti_key.dag_id.removesuffix(AUDIT), f"{ti_key.dag_id}/{ti_key.run_id}")


class RunPageLink(BaseOperatorLink):
    """A button of each task, which opens the page of the run: its windows, and how far it is."""

    name = "Offsets"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return f"{base()}/tidemark/run?{urlencode({'dag_id': ti_key.dag_id, 'run_id': ti_key.run_id})}"


class WindowLink(BaseOperatorLink):
    """A button of the task `process`, which opens the page of the first window that it works on."""

    name = "Window"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        words = [str(one) for one in getattr(operator, "application_args", None) or ()]
        if "--seq" not in words:
            # Of several lanes, each job pins its own.
            return RunPageLink().get_link(operator, ti_key=ti_key)
        lane, seq = (words[words.index(name) + 1] for name in ("--lane", "--seq"))
        return stream_address(ti_key.dag_id.rpartition("__")[0], f"/windows/{quote(lane)}/{quote(seq)}")
