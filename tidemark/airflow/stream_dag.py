"""Settings that all DAGs of a stream share: name, tags, owner, access, retries, queue and callbacks, as its file says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from tidemark.airflow.callbacks import Callback
from tidemark.airflow.page_links import RunPageLink, stream_address
from tidemark.streams.model import Stream

_RUN_PAGE = RunPageLink()
# Of each kind of DAG, the page on which people ask for the same, or see what came of it.
PAGES = {
    "ingest": ("its dead letters", "/dead-letters"),
    "backfill": ("plan a backfill", "/plan?kind=backfill"),
    "replay": ("plan a replay", "/plan?kind=replay"),
    "audit": ("its audits", "/audits"),
    "erase": ("plan an erasure", "/plan?kind=erase"),
}


@contextmanager
def stream_dag(
    stream: Stream,
    kind: str,
    *,
    doc: str | None,
    params: Mapping[str, Param] | None = None,
    task_defaults: dict[str, Any] | None = None,
    by_clock: bool = False,
    **settings: Any,
) -> Iterator[DAG]:
    """The DAG `STREAM__KIND`, for its tasks. `params`, `task_defaults` and `settings` are what only this kind of DAG has.

    In `doc`, NAME stands for the stream. `by_clock`: runs begin at set times, without anybody's asking.
    """
    with DAG(
        dag_id=f"{stream.name}__{kind}",
        doc_md=(doc or "").replace("NAME", stream.name),
        catchup=False,
        tags=sorted({"tidemark", stream.name, *stream.tags}),
        access_control={
            role: {resource: set(actions) for resource, actions in given.items()}
            for role, given in stream.access_control.items()
        }
        or None,
        on_failure_callback=_callback("on_failure", stream.on_failure),
        on_success_callback=_callback("on_success", stream.on_success),
        default_args={
            "retries": stream.engine.retries,
            "retry_delay": timedelta(seconds=stream.engine.retry_delay_seconds),
            **({"owner": stream.owner} if stream.owner else {}),
            **({"queue": stream.engine.queue} if stream.engine.queue else {}),
            **(task_defaults or {}),
        },
        # Airflow makes DAGs paused, and takes runs of paused ones without ever beginning them. What runs by a clock begins
        # when a person says so; what people ask for is there to be asked.
        is_paused_upon_creation=None if by_clock else False,
        # The file that Airflow reads registers the DAGs: all of a stream, or none.
        auto_register=False,
        **settings,
    ) as dag:
        yield dag
    _lead_to_the_pages(dag, stream.name, kind)
    # Each task that is made later would have a copy, which Airflow checks, stores and shows: that is most of what a DAG costs.
    # A task's run takes its DAG's.
    dag.params = params  # type: ignore[assignment]


def _lead_to_the_pages(dag: DAG, stream: str, kind: str) -> None:
    """Explains each task and links the pages, in the DAG's document; and a button of each task to the run's page."""
    said = []
    for operator in dag.topological_sort():  # type: ignore[no-untyped-call]
        first = (operator.doc_md or "").strip().partition("\n\n")[0].replace("\n", " ")
        said.append(f"- `{operator.task_id}`: {first}")
        if not any(isinstance(link, RunPageLink) for link in operator.operator_extra_links):
            operator.operator_extra_links = (*operator.operator_extra_links, _RUN_PAGE)
    pages = f"[{stream} in Tidemark]({stream_address(stream)}) · [{PAGES[kind][0]}]({stream_address(stream, PAGES[kind][1])})"
    dag.doc_md = "\n".join([dag.doc_md or "", "", *said, "", pages])


def _callback(key: str, name: str | None) -> Callback | None:
    return None if name is None else Callback(key, name)
