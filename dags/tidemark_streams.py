"""Airflow reads this file. It gives the DAGs of every stream file: ingest, backfill, replay, audit and erase.

Stream files are in `streams/` beside this file, or where TIDEMARK_STREAMS says.

(Airflow ignores files that do not name both `airflow` and `dag`.)
"""

from pathlib import Path

from tidemark.airflow import build_dags
from tidemark.streams.loading import stream_folders

for dag in build_dags(*stream_folders(beside=Path(__file__).parent)):
    globals()[dag.dag_id] = dag
