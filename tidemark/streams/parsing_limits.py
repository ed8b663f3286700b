"""Airflow's limits for one DAG file, and how near the DAGs of many stream files come to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.offsets.counting import number_of

# Airflow serialises the DAGs after they were built, and checks them: about as many times as long, as measured.
SERIALISED = 1.0
# The share of a limit from which on a folder is near it. A machine may be twice as busy tomorrow.
NEAR = 0.4
# The time of building the DAGs of one stream on a usual machine, in seconds; docs/many-streams.md has it.
OF_A_STREAM = 0.03


@dataclass(frozen=True)
class ParsingLimits:
    """Seconds that Airflow's settings allow: to build a file's DAGs, and for all that is done with a file."""

    to_import: float = 30.0
    to_process: float = 50.0

    @classmethod
    def of_environment(cls, env: Mapping[str, str] = os.environ) -> ParsingLimits:
        """The limits in the environment; a value that is no number is Airflow's own affair."""
        limits = []
        for name, usual in (
            ("AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT", cls.to_import),
            ("AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT", cls.to_process),
        ):
            try:
                limits.append(float(env.get(name, "")))
            except ValueError:
                limits.append(usual)
        return cls(*limits)


def near_limits(seconds: float, limits: ParsingLimits) -> str | None:
    """How near the building of some DAGs, in seconds, comes to Airflow's limits for a file, in words; None if it does not."""
    whole = seconds * (1 + SERIALISED)
    for took, most, key in (
        (seconds, limits.to_import, "[core] dagbag_import_timeout"),
        (whole, limits.to_process, "[dag_processor] dag_file_processor_timeout"),
    ):
        if took >= NEAR * most > 0:
            return f"{took:.1f} of the {most:g} s that {key} allows"
    return None


def warning(files: int, seconds: float, limits: ParsingLimits, *, where: str = "", about: str = "take") -> str | None:
    """The warning and its remedy if the DAGs of some stream files come near a limit, or None."""
    said = near_limits(seconds, limits)
    if said is None:
        return None
    dags = f"The DAGs of {number_of(files, 'stream file')}"
    return (
        f"{where}{dags} {about} {said}. Beyond that, Airflow drops the DAGs of all of them: divide "
        "them among several DAG files, with build_dags(..., shard=(1, 2)) and (2, 2), or raise the limit"
    )
