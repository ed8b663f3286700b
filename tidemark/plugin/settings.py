"""The page's settings: section `[tidemark]` of Airflow's configuration, or `AIRFLOW__TIDEMARK__...` in the environment."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """Seconds, except `page_threads`: how many threads ask the servers that streams share."""

    # How long one question to HBase, ZooKeeper or Kafka may take. These servers answer in milliseconds.
    page_question_seconds: float = 3.0
    # How long a person waits for a stream, which takes several questions.
    page_wait_seconds: float = 5.0
    # How old an answer may be. The page of each viewer asks again every five seconds.
    page_cache_seconds: float = 3.0
    # When a server that did not answer is asked again.
    page_retry_seconds: float = 15.0
    page_threads: int = 3
    # How long a plan may take, or another long question. Then it is given up.
    page_long_seconds: float = 120.0


def from_airflow() -> Settings:
    """Raises AirflowConfigException for a value that is no number."""
    from airflow.configuration import conf

    given = Settings()
    values = {}
    for field in fields(Settings):
        default = getattr(given, field.name)
        read = conf.getint if isinstance(default, int) else conf.getfloat
        values[field.name] = read("tidemark", field.name, fallback=default)
    return Settings(**values)  # type: ignore[arg-type]
