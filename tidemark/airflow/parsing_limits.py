"""A log says when the DAGs of a folder come near what Airflow allows one DAG file, while all of them are still there."""

from __future__ import annotations

import logging

from airflow.configuration import conf

from tidemark.streams.parsing_limits import ParsingLimits, warning

log = logging.getLogger(__name__)


def warn_near_limits(files: int, seconds: float) -> None:
    """Log a warning where the DAGs of a folder take so long that Airflow may soon drop all of them."""
    limits = ParsingLimits(
        conf.getfloat("core", "dagbag_import_timeout", fallback=ParsingLimits.to_import),
        conf.getfloat("dag_processor", "dag_file_processor_timeout", fallback=ParsingLimits.to_process),
    )
    if (said := warning(files, seconds, limits)) is not None:
        log.warning("%s.", said)
