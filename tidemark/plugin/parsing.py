"""How long Airflow's DAG processor takes for the DAG files of the streams, as it has noted itself."""

from __future__ import annotations

from collections.abc import Collection

from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import func, select

from tidemark.streams.parsing_limits import SERIALISED, ParsingLimits, warning


def near_limits(streams: Collection[str]) -> list[str]:
    """The DAG files of these streams that come near Airflow's limits, each with what to do."""
    wanted = (
        select(DagModel.fileloc, func.max(DagModel.last_parse_duration), func.count())
        .where(DagModel.dag_id.in_([f"{name}__ingest" for name in streams]), DagModel.is_stale.is_(False))
        .group_by(DagModel.fileloc)
        .order_by(DagModel.fileloc)
    )
    limits = ParsingLimits(
        conf.getfloat("core", "dagbag_import_timeout", fallback=ParsingLimits.to_import),
        conf.getfloat("dag_processor", "dag_file_processor_timeout", fallback=ParsingLimits.to_process),
    )
    with create_session() as session:
        files = list(session.execute(wanted))
    # The whole time is noted: building the DAGs is its first part.
    said = [
        warning(number, seconds / (1 + SERIALISED), limits, where=f"{file}: ", about="took")
        for file, seconds, number in files
        if seconds is not None
    ]
    return [one for one in said if one is not None]
