"""Starting a Spark job from a task: the provider's operator, with its exit codes, connections and master checked."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark import errors
from tidemark.airflow.connections import exported, from_airflow
from tidemark.airflow.steps import keep_answer
from tidemark.errors import ConnectionMissing, WrongUse
from tidemark.submit.command import (
    PYTHONS,
    check_machine,
    engine_command,
    job_environment,
    job_script,
    refused,
    settings_of,
    warm_engine,
)
from tidemark.submit.ivy_lines import without_ivy
from tidemark.submit.same_code import ASKING, asking_code

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidemark.streams.model import Stream


class SparkJobFailed(AirflowException):
    """Raised when a job failed in a way that a retry may mend: a server is away, or processing failed."""


class SparkJobRefused(AirflowFailException):
    """Raised when a job failed in a way that a retry cannot mend. Airflow does not retry the task."""


def of_stream(stream: Stream) -> dict[str, Any]:
    """The arguments of a stream's job. Plain values: Airflow stores those of a mapped task with the DAG."""
    return {
        "conn_id": stream.engine.spark,
        "conf": dict(stream.engine.conf),
        "name": f"tidemark {stream.name}",
        "connections": sorted(stream.connections()),
        "expected_master": stream.engine.master,
        "sinks": sorted({sink.type for sink in stream.sinks}),
        "dead_letters": stream.dead_letters.type,
    }


class SparkJob(SparkSubmitOperator):
    """Submit one of Tidemark's jobs for a stream.

    :param connections: the connections that the job needs.
    :param sinks: the types of the stream's sinks, whose packages this machine needs.
    :param dead_letters: the type of the store of its dead letters.
    :param expected_master: the only accepted master; None for any that was configured.
    :param accepted: exit codes that are not a failure; the task returns the code.
    """

    def __init__(
        self,
        *,
        connections: Sequence[str],
        sinks: Sequence[str] = (),
        dead_letters: str | None = None,
        expected_master: str | None = None,
        accepted: Sequence[int] = (0,),
        **kwargs: Any,
    ) -> None:
        super().__init__(application=str(job_script()), **kwargs)
        self.accepted = tuple(accepted)
        self.connections = list(connections)
        self.sinks = list(sinks)
        self.dead_letters = dead_letters
        self.expected_master = expected_master

    @property
    def what(self) -> str:
        """The job, for errors."""
        return "the job"

    @property
    def remedy(self) -> str:
        """The advice for a person once Airflow tries no more, as the end of an error."""
        return ""

    def execute(self, context: Context) -> int:  # type: ignore[override]
        try:
            return self._run_job(context)
        except (SparkJobFailed, SparkJobRefused) as problem:
            keep_answer(context, str(problem))
            raise

    def _run_job(self, context: Context) -> int:
        self._hook = self._get_hook()
        self._check_master()
        try:
            check_machine(self.sinks, self.dead_letters)
        except WrongUse as problem:
            raise SparkJobRefused(str(problem)) from problem
        self._take_warm_engine()
        hook: Any = self._hook
        follow = hook._process_spark_submit_log  # noqa: SLF001
        hook._process_spark_submit_log = lambda lines: follow(without_ivy(lines))  # noqa: SLF001
        self._hook._env = {ASKING: asking_code(), **(self._hook._env or {})}
        try:
            with exported(self.connections):
                super().execute(context)
        except WrongUse as problem:
            # A connection that is gone, or what stands in for it on one machine.
            raise SparkJobRefused(str(problem)) from problem
        except AirflowException:
            process = self._hook._submit_sp
            code = process.returncode if process is not None else None
            if code is None:
                raise
            if code in self.accepted:
                return int(code)
            outcome = errors.EXIT_CODES.get(code, errors.EXIT_CODES[errors.EXIT_INTERNAL])
            said = self._last_line()
            excepted = any(said.startswith(f"tidemark: {one.__name__}:") for one in outcome.but)
            kind = SparkJobFailed if outcome.retried and not excepted else SparkJobRefused
            remedy = self.remedy if kind is SparkJobFailed else ""
            # The job's own sentence comes first: it is what a person looks for.
            sentence = (
                f"{said.removeprefix('tidemark: ')} ({self.what} ended with code {code}: {outcome.meaning}){remedy}"
            )
            self.log.error("%s", sentence)
            raise kind(sentence) from None
        return errors.EXIT_DONE

    def _check_master(self) -> None:
        """Refuse a master that was not configured: the provider falls back to YARN when a connection does not parse."""
        connection = self._hook._connection if self._hook else {}
        master = connection.get("master")
        if master == "yarn" and self.expected_master != "yarn":
            raise SparkJobRefused(
                f"the Spark connection {self._conn_id} gives master yarn, which is also what a missing or unreadable "
                "connection gives. If YARN is meant, write `master: yarn` under `engine` in the stream file; otherwise "
                'correct the connection, as JSON: {"conn_type": "spark", "host": "local[2]"}'
            )
        conf = self.conf or {}
        if refusal := refused(str(self._conn_id), master, connection.get("deploy_mode"), self.expected_master, conf):
            raise SparkJobRefused(refusal)

    def _take_warm_engine(self) -> None:
        """Start the job in the warm engine of the Spark connection, if it has one, where the provider starts spark-submit."""
        try:
            connection = from_airflow(str(self._conn_id))
        except ConnectionMissing:
            # The provider takes YARN then, which the stream file has to expect.
            return
        try:
            if more := settings_of(connection):
                self.conf = {**more, **(self.conf or {})}
                self._hook = self._get_hook()
            engine = warm_engine(connection)
            if engine is None:
                return
            command = engine_command(connection, engine, self.conf or {})
        except WrongUse as problem:
            raise SparkJobRefused(str(problem)) from problem

        def build(application: str) -> list[str]:
            words = [*command, application, *(self.application_args or ())]
            self.log.info("Warm engine cmd: %s", shlex.join(words))
            return words

        hook: Any = self._hook
        hook._build_spark_submit_command = build
        hook._env = {name: job_environment()[name] for name in PYTHONS}

    def _last_line(self) -> str:
        lines = list(self._hook._last_submit_log_lines) if self._hook else []
        said = [line for line in lines if line.startswith("tidemark:")]
        return (said or lines or ["(it printed nothing)"])[-1]
