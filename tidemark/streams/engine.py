"""The keys of the engine in a stream file: how Airflow starts the Spark jobs, and with which of Spark's settings."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from tidemark.clients.secrets import SENSITIVE, is_secret
from tidemark.settings.parts import ConnectionName, Part, Text

# JVM options and similar values contain names and values: -Djavax.net.ssl.trustStorePassword=...
_WITHIN = re.compile(rf"[\s-][^\s=]*(?:{SENSITIVE[4:]})[^\s=]*=", re.IGNORECASE)
_LOGIN_IN_ADDRESS = re.compile(r"://[^/\s@]*:[^/\s@]+@")
_DEPLOY_MODE = "spark.submit.deployMode"
# The setting by which Spark prints how many tasks of its stages are done.
STAGES = "spark.ui.showConsoleProgress"


def shown_to_people(conf: dict[str, str]) -> dict[str, str]:
    """Settings of Spark that may stand on a command line. Raises ValueError for others."""
    for name, value in conf.items():
        if name == _DEPLOY_MODE and value.strip().lower() != "client":
            raise ValueError(
                f"{name} is {value}; expected client, or leave it out: Tidemark's jobs run in client mode, so that their "
                "connections need not stand on a command line"
            )
        # The error leaves out the value, because people see the error too.
        if is_secret(name) or _WITHIN.search(f" {value}") or _LOGIN_IN_ADDRESS.search(value):
            raise ValueError(
                f"{name} holds a secret, and what stands here is shown in lists of processes and on pages; put it into a "
                "connection: settings of a file system (fs.*) into `hadoop` among the extras of the connection that a sink "
                "names in `files`; what only Spark's own programs use into spark-defaults.conf, readable for its owner alone"
            )
    return conf


PoolName = Annotated[Text, Field(min_length=1, max_length=256)]


class Engine(Part):
    """How Airflow runs the Spark jobs. With `master`, any other resolved master is refused."""

    spark: ConnectionName = Field(default="spark_default", description="The Spark connection, which sets the master.")
    master: Text | None = Field(
        default=None,
        description="The master that the connection must have; Tidemark refuses any other. For YARN, write `yarn` here, "
        "because Airflow's provider also returns `yarn` for a connection that it cannot read.",
    )
    conf: Annotated[dict[Text, Text], AfterValidator(shown_to_people)] = Field(
        default_factory=dict,
        description="Spark settings. Put secrets into [connections](engines.md#settings-of-a-file-system) instead. The only "
        "deploy mode is `client`.",
    )
    pool: Annotated[PoolName, Field(description="Airflow pool for the Spark tasks of the ingest.")] = "default_pool"
    replay_pool: PoolName | None = Field(
        default=None,
        description="Airflow pool for the Spark tasks of replays, backfills and audits; by default that of `pool`. With "
        "their own pool, they never delay an ingest.",
    )
    queue: PoolName | None = Field(
        default=None,
        description="The queue of all tasks, for executors with queues, such as Celery's; by default Airflow's default queue.",
    )
    retries: Annotated[
        int, Field(ge=0, le=100, description="The number of retries of every task. A retry reads the pinned window.")
    ] = 3
    # At most a week for the delay, and 31 days for the time-out. Longer is a mistake, and Airflow cannot add any number.
    retry_delay_seconds: Annotated[
        int, Field(ge=1, le=604_800, description="The wait before a retry, at most a week.")
    ] = 60
    timeout_minutes: Annotated[
        int, Field(ge=1, le=44_640, description="The time-out of the ingest's Spark task, at most 31 days.")
    ] = 50
    replay_timeout_minutes: Annotated[
        int,
        Field(
            ge=1,
            le=44_640,
            description="The time-out of the Spark tasks of replays, backfills, audits and erasures, at most 31 days. An "
            "audit starts over with each try, so it must finish within this time.",
        ),
    ] = 1_440

    @property
    def pool_on_request(self) -> str:
        """The pool of the DAGs that people trigger: replay, backfill and audit."""
        return self.replay_pool or self.pool
