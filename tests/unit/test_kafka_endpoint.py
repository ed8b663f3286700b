"""A Kafka connection in librdkafka's words: each key reaches both clients, or is refused by its name."""

from __future__ import annotations

import logging
import pickle
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from tests.support.certificates import Certificates
from tests.support.covering import REPOSITORY
from tests.support.waiting import running_threads
from tidemark.clients.connections import Connection
from tidemark.clients.kafka.clients import jaas, java_settings, python_settings, token_urls
from tidemark.clients.kafka.endpoint import EXTRAS, KafkaEndpoint, PasswordLogin, Tls, TokenLogin, kafka_endpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.errors import Unreachable, WrongUse

pytestmark = pytest.mark.covers("Q1")

SERVERS = {"bootstrap.servers": "a:1,b:2"}
SCRAM = {
    **SERVERS,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "me",
    "sasl.password": "canary",
}
TOKEN = {
    **SERVERS,
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "canary",
    "sasl.oauthbearer.token.endpoint.url": "https://login/token",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


def endpoint(extra: dict[str, Any]) -> KafkaEndpoint:
    return kafka_endpoint(Connection("k", extra=extra))


def refused(extra: dict[str, Any]) -> str:
    with pytest.raises(WrongUse) as caught:
        kafka_endpoint(Connection("k", extra=extra))
    assert "canary" not in str(caught.value)
    return str(caught.value)


def test_without_security() -> None:
    found = endpoint({**SERVERS, "allow_insecure": True})
    assert found == KafkaEndpoint("a:1,b:2")
    assert python_settings(found) == {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}
    assert java_settings(found) == {"bootstrap.servers": "a:1,b:2", "security.protocol": "PLAINTEXT"}
    assert found.principal == "User:ANONYMOUS"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "scram-sha-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_passwords(mechanism: str, name: str) -> None:
    extra = {key: value for key, value in SCRAM.items() if key != "sasl.mechanism"}
    found = endpoint({**extra, name: mechanism, "security.protocol": "sasl_ssl"})
    assert found.login == PasswordLogin(mechanism.upper(), "me", "canary")
    assert found.principal == "User:me"
    assert "canary" not in f"{found} {found!r}"
    ours, java = python_settings(found), java_settings(found)
    assert (ours["sasl_mechanism"], ours["security_protocol"]) == (mechanism.upper(), "SASL_SSL")
    assert (ours["sasl_plain_username"], ours["sasl_plain_password"]) == ("me", "canary")
    assert (java["sasl.mechanism"], java["security.protocol"]) == (mechanism.upper(), "SASL_SSL")
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    said = f'org.apache.kafka.common.security.{module} required username="me" password="canary";'
    assert java["sasl.jaas.config"] == said


def test_kafka_python_is_given_the_names_of_scram_as_they_are_sent() -> None:
    """RFC 5802, 5.1: a comma or an equals sign would end the name."""
    for mechanism, sent in (("SCRAM-SHA-256", "a=3Db=2Cc"), ("PLAIN", "a=b,c")):
        found = endpoint({**SCRAM, "sasl.mechanism": mechanism, "sasl.username": "a=b,c"})
        assert python_settings(found)["sasl_plain_username"] == sent
        assert 'username="a=b,c"' in java_settings(found)["sasl.jaas.config"]


def test_tokens(made: Certificates) -> None:
    more = {
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        "https.ca.location": str(made.ca),
    }
    found = endpoint({**TOKEN, **more})
    extensions = (("logicalCluster", "lkc-1"), ("identityPoolId", "pool-1"))
    authorities = made.ca.read_text()
    assert found.login == TokenLogin("me", "canary", "https://login/token", "kafka", extensions, authorities)
    assert endpoint({**TOKEN, **more, "https.ca.location": None, "https.ca.pem": authorities}) == found
    assert "canary" not in f"{found} {found!r} {found.principal}"
    java = java_settings(found)
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://login/token"
    assert java["sasl.login.callback.handler.class"].endswith(".OAuthBearerLoginCallbackHandler")
    module, options = parsed(java["sasl.jaas.config"])
    assert module.endswith(".OAuthBearerLoginModule")
    assert options == {
        "clientId": "me",
        "clientSecret": "canary",
        "scope": "kafka",
        "extension_logicalCluster": "lkc-1",
        "extension_identityPoolId": "pool-1",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authorities,
    }
    provider = python_settings(found)["sasl_oauth_token_provider"]
    assert provider.extensions() == dict(extensions)
    assert token_urls(found, endpoint({**SERVERS, "allow_insecure": True})) == ["https://login/token"]


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("password", [None, "canary"])
@pytest.mark.parametrize("inline", [False, True])
def test_certificates(
    made: Certificates, tmp_path: Path, form: PrivateFormat, password: str | None, *, inline: bool
) -> None:
    """In files or as texts, the key in each of its forms: both clients get what they take, and no key is left on a disk."""
    key = made.key(form, password)
    (tmp_path / "key").write_text(key)
    files = {
        "ssl.ca.location": made.ca,
        "ssl.certificate.location": made.certificate,
        "ssl.key.location": tmp_path / "key",
    }
    given = {name: str(path) for name, path in files.items()}
    if inline:
        given = {name.replace(".location", ".pem"): path.read_text() for name, path in files.items()}
    found = endpoint(
        {**SERVERS, "security.protocol": "SSL", **given, **({"ssl.key.password": password} if password else {})}
    )
    assert found.principal == "User:CN=client"
    assert found.tls is not None
    assert "PRIVATE KEY" not in repr(found)
    java = java_settings(found)
    assert java == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": made.ca.read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": made.certificate_text,
        "ssl.keystore.key": made.key(),
    }
    context = python_settings(pickle.loads(pickle.dumps(found)))["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1


def test_without_an_authority_that_of_the_machine_is_asked() -> None:
    found = endpoint({**SERVERS, "security.protocol": "SSL"})
    assert found.tls == Tls()
    context = python_settings(found)["ssl_context"]
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert "ssl.truststore.certificates" not in java_settings(found)
    assert java_settings(found)["ssl.endpoint.identification.algorithm"] == "https"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"security.protocol": None}, "sasl.mechanism, sasl.username, sasl.password among its extras would be ignored"),
        ({"security.protocol": "SSL"}, "security.protocol is SSL, which does not use SASL"),
        ({"security.protocol": "TLS"}, "'TLS'; expected one of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "everybody on the way could read the password: use SASL_SSL"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "allow_insecure": True, "ssl.ca.location": "/x"},
            "ssl.ca.location among its extras would be ignored: security.protocol is SASL_PLAINTEXT",
        ),
        ({"allow_insecure": "yes"}, "allow_insecure among its extras is neither true nor false"),
        ({"sasl.mechanism": None}, "sasl.mechanism is not given; expected one of PLAIN"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI; expected one of PLAIN"),
        ({"sasl.mechanisms": "PLAIN"}, "sasl.mechanism is PLAIN and SCRAM-SHA-512; expected one"),
        ({"sasl.username": None}, "it has no sasl.username among its extras"),
        ({"sasl.password": ""}, "it has no sasl.password among its extras"),
        ({"sasl.password": 7}, "sasl.password among its extras is not a text"),
        ({"sasl.oauthbearer.scope": "x"}, "sasl.oauthbearer.scope among its extras would be ignored"),
        (
            {"ssl.endpoint.identification.algorithm": "none"},
            "identification.algorithm is 'none', and any server that answers",
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, None),
        (
            {"enable.ssl.certificate.verification": False},
            "certificate.verification is 'false', and any server that answers",
        ),
        ({"enable.ssl.certificate.verification": "false"}, "certificate.verification is 'false'"),
        ({"enable.ssl.certificate.verification": True}, None),
        ({"ssl.ca.location": "/no/such"}, "ssl.ca.location: /no/such cannot be read: No such file"),
        ({"ssl.ca.location": "/tmp"}, "ssl.ca.location: /tmp cannot be read: Is a directory"),
        ({"ssl.ca.pem": "canary"}, "ssl.ca.pem holds no PEM text with a CERTIFICATE"),
        ({"ssl.ca.pem": "x", "ssl.ca.location": "/x"}, "say the same thing: give one of them"),
        ({"ssl.key.password": "canary"}, "ssl.key.password among its extras goes with a key"),
        ({"ssl.keystore.location": "/x"}, r"sets ssl.keystore.location .* Give certificate and key as PEM"),
        ({"ssl.keystore.password": "canary"}, "sets ssl.keystore.password"),
        ({"sasl.jaas.config": "canary"}, "sets sasl.jaas.config .* Give sasl.username and sasl.password"),
        ({"interceptor.classes": "x"}, "sets interceptor.classes"),
        ({"sasl.login.callback.handler.class": "x"}, "sets sasl.login.callback.handler.class"),
        ({"config.providers": "x"}, "sets config.providers"),
        ({"group.id": "x"}, "sets group.id .* needs a second connection next to it"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], said: str | None) -> None:
    extra = {**SCRAM, **changes}
    if said is None:
        kafka_endpoint(Connection("k", extra=extra))
        return
    found = refused(extra)
    assert re.search(said, found), found
    assert found.startswith("connection k")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.oauthbearer.method": None}, "sasl.oauthbearer.method is default; expected oidc"),
        ({"sasl.oauthbearer.client.secret": None}, "it has no sasl.oauthbearer.client.secret"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://login/token"}, "could read the secret: use https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///etc/x"}, "is no URL that begins with https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://me:canary@x/"}, "and has no login"),
        ({"sasl.oauthbearer.extensions": "a"}, "has 'a'; expected name=value"),
        ({"sasl.username": "me"}, "sasl.username among its extras would be ignored: sasl.mechanism is OAUTHBEARER"),
        ({"https.ca.pem": "x"}, "https.ca.pem holds no PEM text"),
    ],
)
def test_what_of_tokens_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refused({**TOKEN, **changes})


def test_http_is_for_loopback(made: Certificates) -> None:
    plain = {**TOKEN, "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1/token"}
    assert endpoint({**plain, "allow_insecure": True}).login is not None
    found = refused({**plain, "allow_insecure": True, "https.ca.location": str(made.ca)})
    assert "https.ca.location among its extras would be ignored" in found


def test_keys_that_do_not_fit(made: Certificates, tmp_path: Path) -> None:
    tls = {**SERVERS, "security.protocol": "SSL", "ssl.certificate.location": str(made.certificate)}
    assert "certificate and key go together" in refused(tls)
    assert "not opened by ssl.key.password" in refused(
        {**tls, "ssl.key.pem": made.key(password="right"), "ssl.key.password": "canary"}
    )
    assert "not opened by ssl.key.password" in refused({**tls, "ssl.key.pem": made.key(password="right")})
    other = Certificates(tmp_path / "other")
    assert "the private key is not that of the certificate" in refused({**tls, "ssl.key.pem": other.key_text})


@given(
    st.dictionaries(
        st.sampled_from(EXTRAS),
        st.sampled_from(["", "https", "true", "SASL_SSL", "PLAIN", "oidc", "canary"]) | st.none(),
    )
)
def test_each_key_changes_something_or_is_refused(extra: dict[str, Any]) -> None:
    """Property over sets of keys: what is accepted is in what the clients get, or is what they do anyway."""
    whole = {**SERVERS, **extra}
    found, said = None, ""
    try:
        found = kafka_endpoint(Connection("k", extra=whole))
    except WrongUse as problem:
        said = str(problem)
    if found is None:
        assert any(name in said for name in (*EXTRAS, "certificate and key"))
        return
    sent = f"{java_settings(found)} {found.login!r}"
    anyway = {"https", "true", "oidc"}
    assert all(value in sent or value in anyway for name, value in whole.items() if value and name != "sasl.mechanisms")


@given(st.dictionaries(st.sampled_from(["username", "password", "scope"]), st.text(), min_size=1))
def test_java_reads_any_text_as_it_is(options: dict[str, str]) -> None:
    """Property: Java's tokenizer, told by its documentation, gives back what was written."""
    assert parsed(jaas("org.X", options)) == ("org.X", options)


def parsed(text: str) -> tuple[str, dict[str, str]]:
    """A JAAS entry as Kafka's JaasConfig reads it, with java.io.StreamTokenizer: its quotes and escapes."""
    words = list(_words(text))
    assert words[1] == "required"
    assert words[-1] == ";"
    fields = words[2:-1]
    assert fields[1::3] == ["="] * (len(fields) // 3)
    return words[0], dict(zip(fields[0::3], fields[2::3], strict=True))


def _words(text: str) -> Iterator[str]:
    escapes = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
    at, word = 0, ""
    while at < len(text):
        letter = text[at]
        if letter in ' =;"':
            if word:
                yield word
            word = ""
        if letter in "=;":
            yield letter
        elif letter == '"':
            at += 1
            while text[at] != '"':
                assert text[at] not in "\n\r", "a line's end ends the text"
                if text[at] == "\\":
                    at += 1
                    assert not text[at].isdigit() or text[at] not in "01234567"
                    word += escapes.get(text[at], text[at])
                else:
                    word += text[at]
                at += 1
            yield word
            word = ""
        elif letter != " ":
            word += letter
        at += 1


@pytest.mark.covers("Q3")
def test_kafkas_clients_in_spark_are_new_enough() -> None:
    """Below 3.9.1 they know of no addresses that are allowed, and may be sent anywhere for a token (CVE-2025-27817)."""
    properties = (REPOSITORY / "services" / "pom.xml").read_text()
    (version,) = re.findall(r"<spark.kafka.clients.version>([0-9.]+)</spark.kafka.clients.version>", properties)
    assert tuple(map(int, version.split("."))) >= (3, 9, 1)
    assert f"org.apache.kafka:kafka-clients:{version}" in (REPOSITORY / "docs" / "installing.md").read_text()


@pytest.mark.covers("Q4")
def test_kafka_pythons_log_of_all_that_is_sent_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        python_settings(endpoint(SCRAM))
        for name in ("kafka.protocol.parser", "kafka.net.sasl.plain", "kafka.admin.client"):
            assert not logging.getLogger(name).isEnabledFor(logging.DEBUG)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_broker_that_is_just_restarting_is_asked_until_the_time_is_up() -> None:
    """It ends connections without an answer, as one does that refuses a login and whose answer is lost."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = []

        def end() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()
                    ended.append(1)

        threading.Thread(target=end, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        extra = {**SCRAM, "bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "allow_insecure": True}
        # Those of other tests may end meanwhile.
        before = running_threads()
        with pytest.raises(Unreachable, match="did not answer"):
            KafkaLog(endpoint(extra), timeout_ms=1_000).names()
        # One of the client, those that ask why, and more of the client.
        assert len(ended) > 5
        assert running_threads() <= before
        server.shutdown(socket.SHUT_RDWR)


def test_what_travels_is_what_was_read(made: Certificates) -> None:
    """Spark's workers have no connection and none of its files."""
    found = endpoint({**SCRAM, "ssl.ca.location": str(made.ca)})
    assert pickle.loads(pickle.dumps(found)) == found
    assert replace(found, login=None) != found
