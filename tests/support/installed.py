"""Runs in a Python with Tidemark's wheel installed, and writes as JSON what it finds there.

python -I installed.py FOLDER_OF_STREAM_FILES RESULT
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points
from pathlib import Path

PROVIDER = "tidemark-replay"


def found(streams: Path) -> dict[str, object]:
    from airflow.plugins_manager import AirflowPlugin
    from airflow.providers_manager import ProvidersManager

    import tidemark
    from tidemark.airflow import build_dags

    plugins = {entry.name: entry.load() for entry in entry_points(group="airflow.plugins")}
    dags = build_dags(streams)
    manager = ProvidersManager()
    return {
        "package": tidemark.__file__,
        "plugins": [name for name, plugin in plugins.items() if issubclass(plugin, AirflowPlugin)],
        "dags": [dag.dag_id for dag in dags],
        # Airflow imports the hook of each type, and leaves out one that it cannot use.
        "types": {
            name: {
                "name": hook.hook_name,
                "fields": [
                    one.field_name
                    for one in manager.connection_form_widgets.values()
                    if one.hook_class_name == hook.hook_class_name
                ],
            }
            for name, hook in manager.hooks.items()
            if hook is not None and hook.package_name == PROVIDER
        },
        "provider": manager.providers[PROVIDER].version,
        "scripts": [task.application for dag in dags for task in dag.tasks if hasattr(task, "application")],
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(found(Path(sys.argv[1]))))
