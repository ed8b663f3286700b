"""A Kafka with TLS, logins and rules for who may what, and one Airflow connection for all of Tidemark's clients."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from services import control
from services.site import Site
from tests.support import tokens
from tests.support.live_streams import LiveStream
from tests.support.secure import SecureKafka, connect, marked, watched
from tests.support.sink_topics import written
from tests.support.waiting import running_threads
from tidemark.clients.connections import Connection
from tidemark.clients.kafka import admission
from tidemark.clients.kafka.clients import token_urls
from tidemark.clients.kafka.consuming import consumer_of
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.sending import Sender
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.clients.zookeeper import ZooKeeper, _client, zookeeper_endpoint
from tidemark.errors import AuthenticationFailed, NotAuthorized, Unreachable
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.compare import compare
from tidemark.spark.rows.reading import read_offsets
from tidemark.spark.runtime.session import open_session


def stored(live: LiveStream) -> dict[Any, Any]:
    return live.independent.hbase().by_place()


@contextmanager
def with_tokens(secure: SecureKafka, secret: str) -> Iterator[dict[str, Any]]:
    """The extras of a connection whose client gets its tokens from an endpoint over HTTPS."""
    served = tokens.serving({"robot": secret}, secure.tls / "broker.pem", signed_with=secure.tls / "tokens.pem")
    with served as endpoint:
        yield {
            "bootstrap.servers": secure.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "robot",
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.scope": "kafka",
            "ssl.ca.location": str(secure.tls / "ca.pem"),
            "https.ca.location": str(secure.tls / "ca.pem"),
        }


@contextmanager
def by(secure: SecureKafka, how: str, secret: str) -> Iterator[tuple[dict[str, Any], str]]:
    if how == "OAUTHBEARER":
        with with_tokens(secure, secret) as extra:
            yield extra, "User:robot"
    elif how == "certificate":
        yield secure.by_certificate("client"), "User:CN=client"
    elif how == "PLAIN":
        yield secure.by_login("PLAIN", sasl_username="plain", sasl_password=secure.plain_password), "User:plain"
    else:
        yield secure.user("odd=name,x", secret, how), "User:odd=name,x"


@pytest.mark.covers("Q1")
@pytest.mark.parametrize("how", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "certificate", "OAUTHBEARER"])
def test_planning_spark_and_writer_by_each_mechanism(
    spark: SparkSession, secure: SecureKafka, secret: str, how: str
) -> None:
    topic = f"by-{secrets.token_hex(4)}"
    secure.create(topic, 2)
    at = [TopicPartition(topic, number) for number in (0, 1)]
    with by(secure, how, secret) as (extra, principal):
        endpoint = kafka_endpoint(Connection("k", extra=extra))
        log = KafkaLog(endpoint)
        with pytest.raises(NotAuthorized, match=f"lacks the right Read on topic {topic}"):
            log.topics([topic], READ_COMMITTED)
        secure.allow(principal, f"Read topic {topic}", f"Write topic {topic}")
        as_client = type(secure).__mro__[1](endpoint)
        as_client.send((topic, number % 2, None, b"x%d" % number) for number in range(10))
        as_client.close()
        ends = {number: one.end for number, one in log.topics([topic], READ_COMMITTED)[topic].partitions.items()}
        assert ends == {0: 5, 1: 5}
        assert open_session("tests", token_urls=token_urls(endpoint)) is spark
        wanted = RangeSet(OffsetRange(one, 0, 5) for one in at)
        values = {
            bytes(row["_value"]) for row in read_offsets(spark, endpoint, READ_COMMITTED, wanted, {topic: 1}).collect()
        }
        assert values == {b"x%d" % number for number in range(10)}


@pytest.mark.covers("Q1", "Q3")
def test_java_gets_tokens_from_the_address_of_the_connection_alone(
    spark: SparkSession, secure: SecureKafka, secret: str
) -> None:
    topic = f"by-{secrets.token_hex(4)}"
    secure.create(topic, 1)
    with with_tokens(secure, secret) as extra:
        secure.allow("User:robot", f"Read topic {topic}")
        endpoint = kafka_endpoint(Connection("k", extra=extra))
        open_session("tests", token_urls=["https://elsewhere/token"])
        wanted = RangeSet([OffsetRange(TopicPartition(topic, 0), 0, 1)])
        with pytest.raises(Exception, match=r"is not allowed|Failed to (construct|create)"):
            read_offsets(spark, endpoint, READ_COMMITTED, wanted, {topic: 1}).collect()


@pytest.mark.covers("Q1", "Q5")
def test_who_is_not_let_in_is_told_so(secure: SecureKafka, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and with one attempt; the message names user and mechanism, and not the password."""
    right = secure.user("someone", "right")
    wrong = {**right, "sasl.password": secret}
    no_authority = {name: value for name, value in right.items() if name != "ssl.ca.location"}
    no_certificate = {**secure.by_certificate("client"), "ssl.certificate.location": "", "ssl.key.location": ""}
    cases = [
        (wrong, "does not let in User:someone by SCRAM-SHA-512: .*invalid credentials"),
        ({**wrong, "sasl.mechanism": "PLAIN"}, "does not let in User:someone by PLAIN: .*Invalid username or password"),
        (no_authority, "shows a certificate that is not trusted: .*Give its authority as ssl.ca.location"),
        (
            {**right, "bootstrap.servers": right["bootstrap.servers"].replace("127.0.0.1", "localhost")},
            "Hostname mismatch",
        ),
        (no_certificate, "ends the TLS connection, in which we showed no certificate"),
    ]
    for extra, said in cases:
        with pytest.raises(AuthenticationFailed, match=said) as caught:
            KafkaLog(kafka_endpoint(Connection("k", extra=extra))).names()
        assert secret not in str(caught.value)


@pytest.mark.full
@pytest.mark.covers("Q1", "Q5")
def test_a_login_that_became_wrong_is_tried_once_by_each_client(
    secure: SecureKafka, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The library tries again until its time is up: 20 seconds. Its thread ends, too."""
    name = f"once-{secrets.token_hex(4)}"
    endpoint = kafka_endpoint(Connection("k", extra=secure.user(name, secret)))
    log = KafkaLog(endpoint)
    log.names()
    secure.user(name, "another password")
    # Those of other tests may end meanwhile.
    before = running_threads()

    def consumed() -> None:
        with consumer_of(endpoint):
            pass

    for client in (log.names, consumed, lambda: Sender(endpoint)):
        # As for a process that was let in before the password was changed.
        admission._let_in.add(endpoint)
        caplog.clear()
        with pytest.raises(AuthenticationFailed, match=f"does not let in User:{name} by SCRAM-SHA-512"):
            client()
        tries = [one for one in caplog.messages if one.startswith("Bootstrap connection to ")]
        assert len(tries) == 1
        assert running_threads() <= before


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.covers("Q1", "Q5")
def test_all_that_people_do_with_a_stream(
    secured: LiveStream, secret: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Ingest with a sink in Kafka, the export of its positions, replay, redrive, audit; the password is seen nowhere."""
    live = secured
    topic, canary = live.topics[0], marked(secret)
    with watched(canary) as command_lines, caplog.at_level(logging.DEBUG):
        (first,) = live.ingest()
        assert stored(live) == live.expected().rows
        assert len(live.expected().dead) == 2
        assert len(list(written(live, f"{live.name}-out"))) == len(live.expected().rows)
        assert live.opened.log.group_offsets(live.name) == live.positions()

        (replayed,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (2, 7), (20, 21)))
        assert [tally.read.number for tally in replayed.tallies if tally.read.number] == [6]
        garbage = redrive(live.opened, DeadLetterFilter("matches no pattern")).ranges
        assert f"{topic}/0 [" in str(next(iter(garbage)))
        (redriven,) = live.select(LaneKind.REPLAY, garbage)
        assert sum(tally.invalid.number for tally in redriven.tallies) == garbage.count()
        report = audit(live.opened, "audit")
        assert report.clean, report.sentence()
        # Whoever writes a topic need not have the right to read it. Then the audit says that it has not compared it.
        assert report.not_compared == ("kafka",)
        assert report.sentence().endswith("debris 0; not compared: kafka")
        assert f"lacks the right Read on topic {live.name}-out" in caplog.text
        selection = live.opened.ledger.store_selection(garbage)
        said = compare(live.opened, live.new_run(), selection.digest)
        assert said.not_compared == ("kafka (kafka)",)
        assert [one.differences for one in said.places] == [0, 0]
        assert stored(live) == live.expected().rows
    assert len({one.attempt.generation for one in (first, replayed, redriven)}) == 3
    assert command_lines == []
    assert canary not in caplog.text + "".join(capfd.readouterr())
    assert [key for key, value in live.opened.ledger.store.scan(()) if canary.encode() in value] == []


@pytest.mark.full
@pytest.mark.usefixtures("spark")
@pytest.mark.covers("Q1")
def test_a_missing_right_is_an_error_that_names_it(secured: LiveStream, secure: SecureKafka) -> None:
    """Before the plan, between plan and read, in the sink, in the export; each time nothing of the ledger changes."""
    live = secured
    topic, out, principal = live.topics[0], f"{live.name}-out", f"User:{live.name}"

    def lacks(right: str, on: str) -> str:
        return f"{principal} lacks the right {right} on {on}"

    secure.revoke(principal, f"Read topic {topic}")
    with pytest.raises(NotAuthorized, match=lacks("Read", f"topic {topic}")):
        live.pin("first")
    secure.allow(principal, f"Read topic {topic}")
    seq = live.pin("first").seq
    pinned = dict(live.opened.ledger.store.scan(("head",)))

    secure.revoke(principal, f"Write topic {out}")
    with pytest.raises(NotAuthorized, match=lacks("Write", f"topic {out}")):
        live.ingest("first")
    assert dict(live.opened.ledger.store.scan(("head",))) == pinned
    secure.allow(principal, f"Write topic {out}")

    secure.revoke(principal, f"Read topic {topic}")
    with pytest.raises(NotAuthorized, match=lacks("Read", f"topic {topic}")):
        processed(live, seq)
    assert live.head().last is None
    secure.allow(principal, f"Read topic {topic}")

    secure.revoke(principal, f"Read group {live.name}")
    with pytest.raises(NotAuthorized, match=lacks("Read", f"group {live.name}")):
        live.opened.log.commit_group(live.name, {topic: {0: 1}})
    secure.allow(principal, f"Read group {live.name}")
    processed(live, seq)
    assert stored(live) == live.expected().rows


def processed(live: LiveStream, seq: int) -> None:
    from tidemark.spark.jobs.window import process_windows

    process_windows(live.opened, INGEST, seq, "first")


@pytest.mark.usefixtures("spark")
@pytest.mark.covers("F27")
def test_a_login_that_is_changed_between_plan_and_read(
    secured: LiveStream, secure: SecureKafka, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = secured
    seq = live.pin("first").seq
    secure.user(live.name, "another password")
    with pytest.raises(AuthenticationFailed, match=f"does not let in User:{live.name} by SCRAM-SHA-512") as caught:
        processed(live, seq)
    assert secret not in str(caught.value)
    assert (live.head().last, live.head().seq) == (None, seq - 1)
    connect(monkeypatch, "kafka_secure", secure.user(live.name, secret))
    processed(live, seq)
    assert stored(live) == live.expected().rows


@pytest.mark.full
@pytest.mark.covers("Q1")
def test_zookeeper_with_tls(site: Site, tmp_path: Path) -> None:
    """Its certificate is checked, and so is ours."""
    control.up(site, ("zookeeper-secure",), report=lambda line: None)
    tls = site.folder("tls")
    own = str(tls / "client.pem")
    extra = {"use_ssl": True, "ca": str(tls / "ca.pem"), "certfile": own, "keyfile": own}
    connection = Connection("z", "127.0.0.1", site.port("zookeeper-secure"), "me", "pw", extra)
    zookeeper = ZooKeeper(zookeeper_endpoint(connection))
    zookeeper.repeated("write", lambda client: client.ensure_path_async("/over-tls"))
    assert zookeeper.repeated("read", lambda client: client.get_children_async("/over-tls")) == []
    trusting = {name: extra[name] for name in ("use_ssl", "ca")}
    # Who is not known to us, to whom we are not known, and who has another name.
    for host, unsafe in (("127.0.0.1", {"use_ssl": True}), ("127.0.0.1", trusting), ("localhost", extra)):
        other = Connection("z", host, site.port("zookeeper-secure"), "me", "pw", unsafe)
        endpoint = zookeeper_endpoint(other)
        with pytest.raises(Unreachable):
            ZooKeeper(endpoint, timeout_seconds=2, patience=0).repeated(
                "read", lambda client: client.get_children_async("/")
            )
        # It would go on trying for as long as this process lives.
        _client(endpoint, os.getpid()).stop()
