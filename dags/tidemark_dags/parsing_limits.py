"""What Airflow allows one DAG file: a log says when a folder comes near it, while all its DAGs are still there."""

from __future__ import annotations

import logging

from airflow.configuration import conf

log = logging.getLogger(__name__)

# Airflow serialises the DAGs after they were built, and checks them: about as many times as long, as measured.
SERIALISED = 1.0
# The share of a limit from which on a folder is near it. A machine may be twice as busy tomorrow.
NEAR = 0.4


def near_limits(seconds: float, to_import: float, to_process: float) -> str | None:
    """How near the building of some DAGs, in seconds, comes to Airflow's limits for a file, in words; None if it does not."""
    whole = seconds * (1 + SERIALISED)
    for took, most, key in (
        (seconds, to_import, "[core] dagbag_import_timeout"),
        (whole, to_process, "[dag_processor] dag_file_processor_timeout"),
    ):
        if took >= NEAR * most > 0:
            return f"{took:.1f} of the {most:g} s that {key} allows"
    return None


def warn_near_limits(files: int, seconds: float) -> None:
    """Log a warning where the DAGs of a folder take so long that Airflow may soon drop all of them."""
    to_import = conf.getfloat("core", "dagbag_import_timeout", fallback=30.0)
    to_process = conf.getfloat("dag_processor", "dag_file_processor_timeout", fallback=50.0)
    if (said := near_limits(seconds, to_import, to_process)) is not None:
        log.warning(
            "The DAGs of %s stream files take %s. Beyond that, Airflow drops the DAGs of all of them: divide them among "
            "several DAG files, with build_dags(..., shard=(1, 2)) and (2, 2), or raise the limit.",
            files,
            said,
        )
