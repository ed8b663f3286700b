"""Airflow reads this file: the DAGs of every stream file in `streams/`; ingest, backfill, replay and audit for each.

(Airflow passes over files that do not name both `airflow` and `dag`.)
"""

from pathlib import Path

from tidemark_dags import build_dags

for dag in build_dags(Path(__file__).parent / "streams"):
    globals()[dag.dag_id] = dag
