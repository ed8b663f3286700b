"""The real Airflow, with its scheduler and workers, for all tests here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from demo.airflow import Airflow
from demo.cdn_lines import produce
from services import control
from services.site import REPOSITORY, Site
from tests.playground import Kafka
from tests.unit.test_stream_files import MINIMAL

EVIL = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="session")
def airflow(site: Site, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Airflow with the example stream, one whose words are hostile, and a file that is none; one window ingested."""
    folder = tmp_path_factory.mktemp("streams")
    shutil.copy(REPOSITORY / "dags" / "streams" / "cdn_logs.yaml", folder)
    (folder / "evil.yaml").write_text(MINIMAL.replace("stream: orders", f"stream: evil\ndescription: '{EVIL}'"))
    (folder / "broken.yaml").write_text("stream: [")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_STREAMS", str(folder))
        # For the loss of a worker: a task that gives no sign of life is missed after five minutes otherwise.
        patch.setenv("AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT", "30")
        patch.setenv("AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL", "5")
        control.up(site, control.AIRFLOW)
    for topic in {"cdn-logs", "cdn-logs-normalised"} - set(kafka.admin.list_topics()):
        kafka.create(topic, 4)
    produce(site.address("kafka"), "cdn-logs", 500, first=50_000)
    found = Airflow(site)
    found.wait_for_dag("cdn_logs__ingest")
    yield found
    control.down(site, control.AIRFLOW)
