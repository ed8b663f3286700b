"""Airflow's own simple auth manager, and for some users rights by DAG, which it does not have itself."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

# Of a user, beside the role: the DAGs that may be seen, and those that may also be triggered.
BY_DAG = {"replayer": ({"cdn_logs__ingest", "cdn_logs__replay"}, {"cdn_logs__replay"})}


class RightsByDag(SimpleAuthManager):
    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        if user.username in BY_DAG and details is not None and details.id is not None:
            seen, triggered = BY_DAG[user.username]
            if details.id not in (seen if method == "GET" else triggered):
                return False
        return bool(super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details))
