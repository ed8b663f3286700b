"""A Kafka with TLS, logins and rules (ACLs), for tests that ask for it. The tests are its administrator."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from services import control
from services.site import Site
from tests.support.live_streams import Kafka, LiveStream
from tests.support.oracle import CDN
from tidemark.clients.connections import Connection, variable
from tidemark.clients.kafka.endpoint import kafka_endpoint

# Characters with a meaning in a JAAS text, a properties file, a URI, SQL or a shell.
ODD = "'\\;=,${x}%s#&<> \""


_TYPES = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
_MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


class SecureKafka(Kafka):
    def __init__(self, site: Site) -> None:
        self.tls = site.folder("tls")
        self.address = site.address("kafka-secure")
        self.certificates_address = site.address("kafka-secure-certificates")
        self.plain_password = (site.folder("kafka-secure") / "plain").read_text()
        super().__init__(kafka_endpoint(Connection("admin", extra=self.by_certificate("admin"))))

    def by_certificate(self, name: str) -> dict[str, Any]:
        """The extras of a connection with a certificate. The servers have made those of `admin` and `client`."""
        own = str(self.tls / f"{name}.pem")
        return {
            "bootstrap.servers": self.certificates_address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.tls / "ca.pem"),
            "ssl.certificate.location": own,
            "ssl.key.location": own,
        }

    def by_login(self, mechanism: str, **more: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "ssl.ca.location": str(self.tls / "ca.pem"),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Create a SCRAM user, or change its password. Gives the extras of a connection for the user."""
        change = UserScramCredentialUpsertion(name, _MECHANISMS[mechanism], password)
        assert self.admin.alter_user_scram_credentials([change]) == {name: None}
        return self.by_login(mechanism, sasl_username=name, sasl_password=password)

    def allow(self, principal: str, *rights: str) -> None:
        """Give a principal rights like `Read topic orders`."""
        created = self.admin.create_acls([_acl(principal, right) for right in rights])
        assert not created["failed"], created

    def revoke(self, principal: str, right: str) -> None:
        acl = _acl(principal, right)
        pattern = acl.resource_pattern
        where = ResourcePatternFilter(pattern.resource_type, pattern.resource_name, ACLResourcePatternType.LITERAL)
        gone = self.admin.delete_acls(
            [ACLFilter(acl.principal, acl.host, acl.operation, ACLPermissionType.ALLOW, where)]
        )
        assert len(gone[0][1]) == 1, gone


def _acl(principal: str, right: str) -> ACL:
    operation, kind, name = right.split(" ")
    pattern = ResourcePattern(_TYPES[kind], name)
    return ACL(principal, "*", ACLOperation[operation.upper()], ACLPermissionType.ALLOW, pattern)


def connect(monkeypatch: pytest.MonkeyPatch, name: str, extra: dict[str, Any]) -> None:
    monkeypatch.setenv(variable(name), json.dumps({"conn_type": "kafka", "extra": extra}))


@pytest.fixture
def secret() -> str:
    """A password for this test alone. The test searches every place where it must not be."""
    return f"canary-{secrets.token_hex(8)}{ODD}"


def marked(secret: str) -> str:
    """The part of a secret that no encoding changes."""
    return secret.removesuffix(ODD)


@contextmanager
def watched(secret: str) -> Iterator[list[str]]:
    """The command lines on which a secret is seen while the block runs."""
    seen: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            for process in psutil.process_iter():
                with suppress(psutil.Error):
                    words = " ".join(process.cmdline())
                    if secret in words:
                        seen.append(words)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="session")
def secure(site: Site) -> Iterator[SecureKafka]:
    control.up(site, ("kafka-secure",), report=lambda line: None)
    found = SecureKafka(site)
    yield found
    found.close()


@pytest.fixture
def secured(
    site: Site, secure: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> LiveStream:
    """A stream on the secure Kafka, with a sink in it. Its user has only the rights that the guide names."""
    made = LiveStream(site, secure, tmp_path, CDN, source={"kafka": "kafka_secure"})
    topic, out, principal = made.topics[0], f"{made.name}-out", f"User:{made.name}"
    secure.create(out, 2)
    secure.allow(principal, f"Read topic {topic}", f"Write topic {out}", f"Read group {made.name}")
    connect(monkeypatch, "kafka_secure", secure.user(made.name, secret))
    sinks = [{"type": "hbase", "table": made.name}, {"type": "kafka", "kafka": "kafka_secure", "topic": out}]
    made.rewrite(source={"kafka": "kafka_secure", "export_group": made.name}, sinks=sinks)
    made.produce(120)
    made.kafka.send([(topic, 0, None, b"garbage"), (topic, 1, None, b"\xff")])
    return made
