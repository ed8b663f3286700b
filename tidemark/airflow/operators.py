"""Operators and sensors for DAGs of one's own.

An operator runs one of a stream's DAGs with a request, and waits for it: approval, retries, claims and pages are those of
any other run. A sensor looks at what a stream has committed. Nothing here holds a worker slot while it waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from hashlib import sha256
from http import HTTPStatus
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseSensorOperator, XComArg
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRuntimeError

from tidemark.airflow.steps import airflow_errors
from tidemark.airflow.triggers import CompleteTrigger, WindowsTrigger
from tidemark.airflow.waiting import complete, windows_there
from tidemark.runs.requests.forms import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest, checked

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import BaseModel

    from tidemark.runs.live.open_stream import OpenStream

# A run takes at least the time in which Spark starts.
_LOOK_SECONDS = 5
# A try again goes on with the run that is there: under the same name it finds its window, its lanes and its request.
_RUN = "{{ dag.dag_id }}__{{ ti.task_id }}__{{ run_id }}"
# Airflow keeps names of runs of up to 250 characters.
_MAX_OF_A_NAME = 220


class _RunOfStream(TriggerDagRunOperator):
    """Run a stream's DAG, wait until it has ended, and give the result of its task `_answers`. Fails when the run fails.

    :param stream: the stream's name; its DAGs are in this Airflow.
    :param request: fields of the DAG's form, by name (docs/params.md). Texts are templates.
    """

    _of_stream: ClassVar[str]
    _request: ClassVar[type[BackfillRequest | ReplayRequest | AuditRequest | EraseRequest] | None] = None
    _answers: ClassVar[str]

    def __init__(self, *, stream: str, poke_interval: int = _LOOK_SECONDS, **kwargs: Any) -> None:
        known = () if self._request is None else self._request.model_fields
        asked = {name: kwargs.pop(name) for name in tuple(kwargs) if name in known}
        if "dry_run" in known:
            # A form begins with a dry run. A DAG says what it means.
            asked.setdefault("dry_run", False)
        if self._request is not None and not any("{{" in str(value) for value in asked.values()):
            checked(self._request, asked, asked)
        super().__init__(
            trigger_dag_id=f"{stream}__{self._of_stream}",
            trigger_run_id=_RUN,
            conf=asked,
            reset_dag_run=True,
            wait_for_completion=True,
            deferrable=True,
            poke_interval=poke_interval,
            # A run of a paused DAG would never end.
            fail_when_dag_is_paused=True,
            **kwargs,
        )

    def execute(self, context: Context) -> None:
        self.trigger_run_id = run_for(str(self.trigger_run_id), context["ti"].map_index, self.conf)
        try:
            super().execute(context)
        except AirflowRuntimeError as problem:
            if (problem.error.detail or {}).get("status_code") != HTTPStatus.NOT_FOUND:
                raise
            # A later try may find it.
            stream = self.trigger_dag_id.rpartition("__")[0]
            raise AirflowException(
                f"this Airflow has no DAG {self.trigger_dag_id}: it has read no stream file that is valid and describes the "
                f"stream {stream}. The page Tidemark, and DAGs called FILE__invalid, say what is wrong with a file"
            ) from None

    def execute_complete(self, context: Context, event: tuple[str, dict[str, Any]]) -> Any:
        super().execute_complete(context, event)
        (run,) = event[1]["run_ids"]
        return context["ti"].xcom_pull(task_ids=self._answers, dag_id=self.trigger_dag_id, run_id=run)


def run_for(name: str, map_index: int | None, request: object) -> str:
    """The name of the run for a request. Airflow never changes the request of a run that is there.

    So another request, as of another one of a task's mapped instances, or of a later try, has a run of its own: else it would
    wait for that run, and give its result as the answer.
    """
    asked = json.dumps([name, map_index, request], sort_keys=True, default=str)
    mapped = f"__{map_index}" if map_index is not None and map_index >= 0 else ""
    return f"{name[:_MAX_OF_A_NAME]}{mapped}__{sha256(asked.encode()).hexdigest()[:8]}"


def _taking(request: type[BaseModel]) -> Any:
    """An `__init__` that names the fields of a form: Airflow maps an operator by none that it does not name."""

    def made(self: _RunOfStream, **kwargs: Any) -> None:
        _RunOfStream.__init__(self, **kwargs)

    fields = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in request.model_fields]
    this, others = Parameter("self", Parameter.POSITIONAL_ONLY), Parameter("kwargs", Parameter.VAR_KEYWORD)
    made.__signature__ = Signature([this, *fields, others])  # type: ignore[attr-defined]
    return made


class IngestOperator(_RunOfStream):
    """Read what is new, as the schedule does. Returns the committed windows; None when nothing was new."""

    _of_stream, _answers = "ingest", "publish"


class BackfillOperator(_RunOfStream):
    """Read offsets that no window has read. Returns the windows, and the answer to each offset."""

    _of_stream, _answers, _request = "backfill", "publish", BackfillRequest
    __init__ = _taking(BackfillRequest)


class ReplayOperator(_RunOfStream):
    """Read again what windows have read. Returns the windows, and the answer to each offset."""

    _of_stream, _answers, _request = "replay", "publish", ReplayRequest
    __init__ = _taking(ReplayRequest)


class AuditOperator(_RunOfStream):
    """Compare what should be in the results with what is there. Returns the report, and fails when anything is wrong."""

    _of_stream, _answers, _request = "audit", "report", AuditRequest
    __init__ = _taking(AuditRequest)


class EraseOperator(_RunOfStream):
    """Remove the results of messages for good. Returns what was erased and what remains."""

    _of_stream, _answers, _request = "erase", "publish", EraseRequest
    __init__ = _taking(EraseRequest)


class _SensorOfStream(BaseSensorOperator):
    """Looks at the stream of a file every minute, in the triggerer. Without `deferrable`, in a worker slot at each look.

    :param stream_file: the stream's file, as an absolute path. The triggerer reads it too.
    """

    _trigger: ClassVar[type[WindowsTrigger | CompleteTrigger]]
    _asked: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        *,
        stream_file: str | Path,
        deferrable: bool = True,
        mode: str = "reschedule",
        poke_interval: float = 60,
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, poke_interval=poke_interval, **kwargs)
        self.stream_file = str(stream_file)
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        if not self.poke(context):
            given = {name: getattr(self, name) for name in self._asked}
            # What several instances of a task have given is no list yet.
            asked = {name: one if isinstance(one, str) else list(one) for name, one in given.items()}
            self.defer(
                trigger=self._trigger(self.stream_file, self.poke_interval, **asked),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout),
            )
        return None

    def execute_complete(self, context: Context, event: dict[str, Any]) -> None:
        if "error" in event:
            raise (AirflowException if event["retried"] else AirflowFailException)(event["error"])

    def poke(self, context: Context) -> bool:
        from tidemark.airflow.connections import open_here

        with airflow_errors():
            there, said = self._is_there(open_here(self.stream_file))
        self.log.info("%s", said)
        return there

    def _is_there(self, opened: OpenStream) -> tuple[bool, str]:
        raise NotImplementedError


class WindowsSensor(_SensorOfStream):
    """Waits until committed windows have read all of some offsets.

    :param ranges: half-open ranges, `topic/partition@from-until`; templates, or what another task gives.
    """

    template_fields: Sequence[str] = ("ranges",)
    _trigger, _asked = WindowsTrigger, ("ranges",)

    def __init__(self, *, ranges: str | Iterable[str] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ranges: Any = ranges if isinstance(ranges, str | XComArg) else list(ranges)

    def _is_there(self, opened: OpenStream) -> tuple[bool, str]:
        return windows_there(opened, self.ranges)


class CompleteSensor(_SensorOfStream):
    """Waits until a span of event time is complete, as `tidemark complete` says it.

    :param since: the beginning, in ISO 8601 with a zone; a template.
    :param until: the end, which is not part of it; a template.
    """

    template_fields: Sequence[str] = ("since", "until")
    _trigger, _asked = CompleteTrigger, ("since", "until")

    def __init__(self, *, since: str, until: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.since, self.until = since, until

    def _is_there(self, opened: OpenStream) -> tuple[bool, str]:
        return complete(opened, self.since, self.until)
