"""How often Airflow has tried a task."""

from __future__ import annotations

from demo.airflow import Airflow


def tries(airflow: Airflow, dag: str, run: str, task: str) -> int:
    _, found = airflow.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}")
    return int(found["try_number"])
