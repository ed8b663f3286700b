"""The stream file of the DAG tests."""

from __future__ import annotations

import secrets

from services.site import REPOSITORY
from tests.support.servers import WORKER

HOME = REPOSITORY / ".local" / f"test-airflow{WORKER}"
# The example stream with a name, a topic and tables of its own. Its folder stands for dags/ in this Airflow.
STREAM = f"cdn_{secrets.token_hex(3)}"
STREAM_FILE = HOME / "dags" / "streams" / "stream.yaml"
# Where this Airflow sends its events of lineage.
LINEAGE = HOME / "lineage.jsonl"
