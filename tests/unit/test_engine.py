"""What `engine.conf` may say: Spark's settings, and no secret, since lists of processes and pages show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stream_text import MINIMAL
from tidemark.clients.secrets import is_secret
from tidemark.errors import InvalidStreamFile
from tidemark.streams.engine import Engine
from tidemark.streams.loading import load

CANARY = "canary-2f6c"


def loaded(tmp_path: Path, conf: dict[str, Any]) -> Any:
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL + yaml.safe_dump({"engine": {"conf": conf}}))
    return load(path).stream.engine.conf


@pytest.mark.covers("Q5")
@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3a.bucket.lake.secret.key",
        "spark.hadoop.fs.s3a.server-side-encryption.key",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.lake.key",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.authenticate.secret",
        "spark.ssl.keyPassword",
        "spark.ssl.trustStorePassword",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.AWS_ACCESS_KEY_ID",
        "spark.yarn.appMasterEnv.DB_PASSWD",
        "spark.hadoop.javax.jdo.option.ConnectionPassword",
        "spark.mine.apiKey",
        "spark.mine.client_secret",
        "spark.mine.JAAS",
    ],
)
def test_a_secret_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        InvalidStreamFile, match=r"orders.yaml:\d+: engine.conf: .* holds a secret, .* a connection"
    ) as no:
        loaded(tmp_path, {"spark.executor.memory": "2g", name: CANARY})
    assert name in str(no.value)
    assert CANARY not in str(no.value)


@pytest.mark.covers("Q5")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.driver.extraJavaOptions", f"-Xmx1g -Djavax.net.ssl.trustStorePassword={CANARY}"),
        ("spark.executor.defaultJavaOptions", f"-Dfs.s3a.secret.key={CANARY}"),
        ("spark.hadoop.fs.s3a.proxy.host", f"http://me:{CANARY}@proxy:3128"),
        ("spark.jars.repositories", f"https://me:{CANARY}@maven.example.com/repo"),
    ],
)
def test_a_secret_within_a_value_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InvalidStreamFile, match="holds a secret") as refused:
        loaded(tmp_path, {name: value})
    assert name in str(refused.value)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.fs.s3a.endpoint", "https://minio:9000"),
        ("spark.hadoop.fs.s3a.path.style.access", "true"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "software.amazon.awssdk.auth.credentials.InstanceProfile"),
        ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://hdfs/user/tidemark/s3.jceks"),
        ("spark.security.credentials.hbase.enabled", "false"),
        ("spark.security.credentials.renewalRatio", "0.75"),
        ("spark.kerberos.renewal.credentials", "ccache"),
        ("spark.kerberos.keytab", "/etc/tidemark.keytab"),
        ("spark.authenticate.secret.file", "/etc/spark/secret"),
        ("spark.kubernetes.authenticate.driver.oauthTokenFile", "/var/run/secrets/token"),
        ("spark.yarn.access.hadoopFileSystems", "hdfs://name:8020"),
        ("spark.driver.extraJavaOptions", "-Xss8m -Djava.security.auth.login.config=/etc/jaas.conf -Dkey=value"),
        ("spark.jars.repositories", "https://maven.example.com/repo"),
        ("spark.jars.packages", "org.apache.hadoop:hadoop-aws:3.4.1"),
        ("spark.submit.deployMode", "client"),
        ("spark.submit.pyFiles", "/opt/jobs/shop.zip"),
    ],
)
def test_a_setting_that_is_no_secret_is_taken(tmp_path: Path, name: str, value: str) -> None:
    assert loaded(tmp_path, {name: value}) == {name: value}


@pytest.mark.parametrize("mode", ["cluster", "Cluster", " cluster ", "remote"])
def test_another_deploy_mode_is_refused(tmp_path: Path, mode: str) -> None:
    with pytest.raises(InvalidStreamFile, match=r"spark.submit.deployMode is .*; expected client, or leave it out"):
        loaded(tmp_path, {"spark.submit.deployMode": mode})


@given(
    st.sampled_from(["secret", "password", "passwd", "token", "credential", "access.key", "apiKey", "private_key"]),
    st.text("abc._-", max_size=8),
    st.text("xyz._-", max_size=8),
    st.booleans(),
)
def test_no_value_under_such_a_name_is_taken(word: str, before: str, after: str, upper: bool) -> None:
    """Whatever stands around the word, in whatever case."""
    name = f"spark.{before}{word.upper() if upper else word}{after}"
    assert is_secret(name)
    with pytest.raises(ValueError, match="holds a secret") as refused:
        Engine(conf={name: CANARY})
    assert CANARY not in refused.value.errors()[0]["msg"]  # type: ignore[attr-defined]
