"""The plugin: one page, in Airflow's navigation."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/tidemark"


class TidemarkPlugin(AirflowPlugin):
    """Adds the page `Tidemark` to Airflow, for people who are logged in."""

    name = "tidemark"
    external_views = [  # noqa: RUF012 (Airflow's own contract)
        {
            "name": "Tidemark",
            # Relative: Airflow may be served below a path.
            "href": f"{PREFIX.lstrip('/')}/",
            "url_route": "tidemark",
            "destination": "nav",
            "category": "browse",
        }
    ]

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:  # noqa: ARG003 (Airflow's contract)
        """Build the app when the plugin is loaded, not when this file is imported: workers import it too."""
        from tidemark_plugin.app import build_app

        cls.fastapi_apps = [{"app": build_app(), "url_prefix": PREFIX, "name": "Tidemark"}]
