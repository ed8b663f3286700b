"""The plugin: a page in Airflow's navigation, a tab of each run, and the notes of runs."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tidemark.plugin.notes import RunListener

PREFIX = "/tidemark"
ICON = f"{PREFIX.lstrip('/')}/files/0/icon.svg"


class TidemarkPlugin(AirflowPlugin):
    """Adds the page `Tidemark` and the tab `Offsets` to Airflow, for people who are logged in."""

    name = "tidemark"
    external_views = [  # noqa: RUF012 (Airflow's own contract)
        {
            "name": "Tidemark",
            # Relative: Airflow may be served below a path.
            "href": f"{PREFIX.lstrip('/')}/",
            "url_route": "tidemark",
            "destination": "nav",
            "nav_top_level": True,
            "icon": ICON,
        },
        {
            "name": "Offsets",
            "href": f"{PREFIX.lstrip('/')}/run?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "url_route": "tidemark_offsets",
            "destination": "dag_run",
            "icon": ICON,
        },
    ]

    listeners = [RunListener()]  # noqa: RUF012 (Airflow's own contract)

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:  # noqa: ARG003 (Airflow's contract)
        """Build the app when the plugin is loaded, not when this file is imported: workers import it too."""
        from tidemark.plugin.app import build_app

        cls.fastapi_apps = [{"app": build_app(), "url_prefix": PREFIX, "name": "Tidemark"}]
