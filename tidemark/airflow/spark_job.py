"""Starting a Spark job from a task: the provider's hook, with exit codes, connections and master checked.

The provider is imported when a job starts. Its import takes a second, in the process that reads all DAG files too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tidemark import errors
from tidemark.airflow.connections import exported, from_airflow
from tidemark.airflow.steps import drawn_once, keep_answer
from tidemark.errors import ConnectionMissing, WrongUse
from tidemark.submit.command import (
    PYTHONS,
    TASK,
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
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
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


class SparkJob(BaseOperator):
    """Submit one of Tidemark's jobs for a stream, in client mode.

    :param conn_id: the Spark connection.
    :param conf: Spark's settings.
    :param name: the name of the application in Spark.
    :param application_args: the arguments of the job: a list of texts, or what another task gives.
    :param connections: the connections that the job needs.
    :param sinks: the types of the stream's sinks, whose packages this machine needs.
    :param dead_letters: the type of the store of its dead letters.
    :param expected_master: the only accepted master; None for any that was configured.
    :param accepted: exit codes that are not a failure; the task returns the code.
    """

    template_fields: Sequence[str] = ("application_args", "conf", "name")

    def __init__(
        self,
        *,
        conn_id: str,
        conf: Mapping[str, str],
        name: str,
        connections: Sequence[str],
        application_args: Any = (),
        sinks: Sequence[str] = (),
        dead_letters: str | None = None,
        expected_master: str | None = None,
        accepted: Sequence[int] = (0,),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.conf = dict(conf)
        self.name = name
        self.application = str(job_script())
        self.application_args: Any = application_args
        self._hook: SparkSubmitHook | None = None
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

    def execute(self, context: Context) -> int:
        try:
            return self._run_job(context)
        except (SparkJobFailed, SparkJobRefused) as problem:
            keep_answer(context, str(problem))
            raise

    def on_kill(self) -> None:
        if self._hook is not None:
            self._hook.on_kill()

    def _run_job(self, context: Context) -> int:
        self.conf = _with_lineage(self.conf, context)
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
        self._hook._env = {ASKING: asking_code(), TASK: drawn_once(context), **(self._hook._env or {})}
        try:
            with exported(self.connections):
                self._hook.submit(self.application)
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

    def _get_hook(self) -> SparkSubmitHook:
        from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

        return SparkSubmitHook(
            conf=self.conf, conn_id=self.conn_id, name=self.name, application_args=self.application_args
        )

    def _check_master(self) -> None:
        """Refuse a master that was not configured: the provider falls back to YARN when a connection does not parse."""
        connection = self._hook._connection if self._hook else {}
        master = connection.get("master")
        if master == "yarn" and self.expected_master != "yarn":
            raise SparkJobRefused(
                f"the Spark connection {self.conn_id} gives master yarn, which is also what a missing or unreadable "
                "connection gives. If YARN is meant, write `master: yarn` under `engine` in the stream file; otherwise "
                'correct the connection, as JSON: {"conn_type": "spark", "host": "local[2]"}'
            )
        conf = self.conf
        if refusal := refused(self.conn_id, master, connection.get("deploy_mode"), self.expected_master, conf):
            raise SparkJobRefused(refusal)

    def _take_warm_engine(self) -> None:
        """Start the job in the warm engine of the Spark connection, if it has one, where the provider starts spark-submit."""
        try:
            connection = from_airflow(self.conn_id)
        except ConnectionMissing:
            # The provider takes YARN then, which the stream file has to expect.
            return
        try:
            if more := settings_of(connection):
                self.conf = {**more, **self.conf}
                self._hook = self._get_hook()
            engine = warm_engine(connection)
            if engine is None:
                return
            command = engine_command(connection, engine, self.conf)
        except WrongUse as problem:
            raise SparkJobRefused(str(problem)) from problem

        def build(application: str) -> list[str]:
            words = [*command, application, *self.application_args]
            self.log.info("Warm engine cmd: %s", shlex.join(words))
            return words

        hook: Any = self._hook
        hook._build_spark_submit_command = build
        hook._env = {name: job_environment()[name] for name in PYTHONS}

    def _last_line(self) -> str:
        lines = list(self._hook._last_submit_log_lines) if self._hook else []
        said = [line for line in lines if line.startswith("tidemark:")]
        return (said or lines or ["(it printed nothing)"])[-1]


def _with_lineage(conf: Mapping[str, str], context: Context) -> dict[str, str]:
    """Spark's settings with what Airflow's settings `[openlineage] spark_inject_*` add to them, as for any Spark job."""
    from airflow.sdk.configuration import conf as airflow

    found: dict[str, Any] = dict(conf)
    for what in ("parent_job", "transport"):
        if airflow.getboolean("openlineage", f"spark_inject_{what}_info", fallback=False):
            from airflow.providers.common.compat.openlineage.utils import spark

            found = getattr(spark, f"inject_{what}_information_into_spark_properties")(found, context)
    return found
