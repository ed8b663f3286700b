"""Lists of servers as people paste them: each is host:port, or the wrong one is named before anybody is asked."""

from __future__ import annotations

import pytest

from tidemark.clients.connections import Connection
from tidemark.clients.hbase.endpoint import hbase_endpoint
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.zookeeper import zookeeper_endpoint
from tidemark.errors import WrongUse

WRONG = {
    "a:kafka": "'a:kafka' is no server: its port is 'kafka'",
    "a:": "'a:' is no server: its port is ''",
    "a:9092,": "'a:9092,' has no server in place 2 of its list: take the comma out",
    ",a:9092": "has no server in place 1 of its list",
    "a:9092,,b:9092": "has no server in place 2 of its list",
    '"a:9092"': "'\"a:9092\"' is no server: it has quotes",
    "['a:9092']": "is no server: it has quotes",
    "a:9092;b:9092": "its port is '9092;b:9092'",
    "a:9092 b:9092": "a space stands in it",
    "PLAINTEXT://a:9092": "it begins with PLAINTEXT://",
    "https://a:9092": "it begins with https://",
    "a:0": "its port is 0, and ports go from 1 to 65535",
    "a:65536": "its port is 65536",
    "a:" + "9" * 5_000: "and ports go from 1 to 65535",
    "a:-1": "its port is '-1'",
    "a:٩٠٩٢": "its port is",
    "me@a:9092": "its host is 'me@a'",
    ":9092": "its host is ''",
    "::1:9092": "its port is ':1:9092'",
}


@pytest.mark.covers("Q1")
@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_server_is_named_with_its_field(given: str) -> None:
    with pytest.raises(WrongUse) as kafka:
        kafka_endpoint(Connection("k", extra={"bootstrap.servers": given}))
    assert "connection k: bootstrap.servers among its extras: " in str(kafka.value)
    assert WRONG[given] in str(kafka.value)
    if "://" not in given:
        with pytest.raises(WrongUse) as zookeeper:
            zookeeper_endpoint(Connection("z", host=given, extra={"allow_insecure": True}))
        assert WRONG[given] in str(zookeeper.value)
    with pytest.raises(WrongUse) as hbase:
        hbase_endpoint(Connection("h", host=given))
    assert WRONG[given] in str(hbase.value)


@pytest.mark.covers("Q1")
def test_a_server_of_kafka_has_a_port() -> None:
    with pytest.raises(WrongUse, match="'b' is no server: it has no port; expected host:port, with commas between"):
        kafka_endpoint(Connection("k", extra={"bootstrap.servers": "a:9092,b"}))


@pytest.mark.covers("Q1")
def test_what_is_a_list_is_taken() -> None:
    given = " a.example:9092, b_1-x.example.:9093 ,127.0.0.1:1,[::1]:9094,[fe80::1%eth0]:2"
    found = kafka_endpoint(Connection("k", extra={"bootstrap.servers": given, "allow_insecure": True}))
    assert found.servers == "a.example:9092,b_1-x.example.:9093,127.0.0.1:1,[::1]:9094,[fe80::1%eth0]:2"
    open_ = {"allow_insecure": True}
    assert zookeeper_endpoint(Connection("z", host="a,b:1/below", extra=open_)).hosts == "a:2181,b:1/below"
    assert zookeeper_endpoint(Connection("z", host="a", port=5, extra=open_)).hosts == "a:5"
