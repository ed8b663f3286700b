"""How often Airflow has tried a task."""

from __future__ import annotations

from demo.airflow import Airflow


def tries(airflow: Airflow, dag: str, run: str, task: str) -> int:
    """Of a mapped task, the most that one of its lanes was tried."""
    _, found = airflow.call("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
    return max(int(one["try_number"]) for one in found["task_instances"] if one["task_id"] == task)
