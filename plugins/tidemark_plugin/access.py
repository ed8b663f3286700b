"""Who may see what. The only place that knows Airflow's security module, which is not among its public interfaces."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import get_user

__all__ = ["get_user", "may_see"]


def may_see(user: Any, dag_id: str) -> bool:
    """Whether a person may see a DAG, and so the stream that it belongs to."""
    manager = get_auth_manager()
    return bool(manager.is_authorized_dag(method="GET", details=DagDetails(id=dag_id), user=user))
