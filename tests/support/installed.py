"""Runs in a Python with Tidemark's wheel installed, and writes as JSON what it finds there.

python -I installed.py FOLDER_OF_STREAM_FILES RESULT
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

PACKAGES = ("tidemark", "tidemark_spark", "tidemark_dags", "tidemark_plugin")


def found(streams: Path) -> dict[str, object]:
    from airflow.plugins_manager import AirflowPlugin

    from tidemark_dags import build_dags

    plugins = {entry.name: entry.load() for entry in entry_points(group="airflow.plugins")}
    dags = build_dags(streams)
    return {
        "packages": {name: import_module(name).__file__ for name in PACKAGES},
        "plugins": [name for name, plugin in plugins.items() if issubclass(plugin, AirflowPlugin)],
        "dags": [dag.dag_id for dag in dags],
        "scripts": [task.application for dag in dags for task in dag.tasks if hasattr(task, "application")],
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(found(Path(sys.argv[1]))))
