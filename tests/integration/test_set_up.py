"""What a machine lacks is named before the work, with code 2 and the remedy: it is no server that does not answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from services import jars
from services.site import Site
from tests.support.live_streams import LiveStream, Make
from tests.support.submitted import WINDOW_JOB, Submitted
from tidemark.errors import EXIT_WRONG_USE


def connectors(site: Site) -> list[Path]:
    return sorted((site.jars / jars.folder_of("spark")).glob("*.jar"))


def refused(live: LiveStream, folder: Path, class_path: list[Path]) -> str:
    """What a job says that finds these jars beside Spark; it ends with code 2."""
    live.produce(3)
    run = live.new_run()
    arguments = live.job_arguments(run, live.pin(run).seq)
    conf = {"spark.jars": ",".join(map(str, class_path))}
    job = Submitted(live.site, folder / "job.log", WINDOW_JOB, *arguments, conf=conf)
    try:
        assert job.wait() == EXIT_WRONG_USE, job.output[-3000:]
    finally:
        job.end()
    assert live.opened.ledger.committed() == []
    (said,) = (line for line in job.output.splitlines() if line.startswith("tidemark: "))
    return said


def test_a_missing_connector_is_named_before_the_work(make: Make, site: Site, tmp_path: Path) -> None:
    live = make()
    said = refused(live, tmp_path, [jar for jar in connectors(site) if "kafka" not in jar.name])
    assert said.startswith(
        "tidemark: WrongUse: Spark's class path lacks Spark's Kafka connector (org.apache.spark.sql."
    )
    assert f"spark.jars.packages = org.apache.spark:spark-sql-kafka-0-10_2.13:{jars.spark_version()}," in said


@pytest.mark.full
@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ("kafka-clients", "lacks Kafka's client (org.apache.kafka.clients.consumer.KafkaConsumer)"),
        ("commons-pool2", "lacks commons-pool2, which keeps Kafka's consumers"),
        ("spark-token-provider", "lacks the connector's token provider"),
    ],
)
def test_each_part_of_the_connector_is_named(make: Make, site: Site, tmp_path: Path, lacks: str, said: str) -> None:
    assert said in refused(make(), tmp_path, [jar for jar in connectors(site) if not jar.name.startswith(lacks)])


@pytest.mark.full
def test_avro_needs_its_package_and_says_which(make: Make, site: Site, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    scheme = {"type": "avro", "schema_file": "order.avsc", "fields": {"id": "integer"}}
    live = make(scheme=scheme, checks=[], transform=None)
    said = refused(live, tmp_path, [jar for jar in connectors(site) if "avro" not in jar.name])
    assert "Spark's class path lacks Spark's Avro package" in said
    assert f",org.apache.spark:spark-avro_2.13:{jars.spark_version()}" in said


@pytest.mark.full
def test_a_connector_of_another_spark_does_not_fit(make: Make, site: Site, tmp_path: Path) -> None:
    version = jars.spark_version()
    of_another = []
    for jar in connectors(site):
        if jar.name.startswith("spark-sql-kafka"):
            jar = Path(shutil.copy(jar, tmp_path / jar.name.replace(version, "3.5.1")))
        of_another.append(jar)
    said = refused(make(), tmp_path, of_another)
    assert f"Spark {version} has spark-sql-kafka-0-10_2.13 of version 3.5 on its class path, whose classes" in said
