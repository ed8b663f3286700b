"""When things happen: the DAGs that Tidemark makes from stream files."""

from tidemark.airflow.factory import build_dags

__all__ = ["build_dags"]
