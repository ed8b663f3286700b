"""Tokens for Kafka from an endpoint that is asked over HTTPS."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError

from tests.support.certificates import Certificates
from tests.support.tokens import serving
from tidemark.clients.kafka.endpoint import TokenLogin
from tidemark.clients.kafka.oauth import ClientCredentials

SECRET = "canary: a secret"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.mark.covers("Q1")
def test_a_token_is_used_until_most_of_its_time_is_over(made: Certificates) -> None:
    clock = Clock()
    with serving({"me": SECRET}, made.whole) as served:
        login = TokenLogin("me", SECRET, served.url, "kafka", (), made.ca.read_text())
        provider = ClientCredentials(login, clock)
        first = provider.token()
        assert provider.token() == first
        clock.now += 0.79 * served.seconds
        assert provider.token() == first
        clock.now += 0.02 * served.seconds
        assert provider.token() != first
        assert served.asked == [{"grant_type": "client_credentials", "scope": "kafka"}] * 2


@pytest.mark.covers("Q1", "Q5")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "answered 401"),
        ((200, b"canary"), "answered without an access_token"),
        ((200, b"[]"), "answered without an access_token"),
        ((200, b'{"access_token": 1}'), "answered without an access_token"),
        ((200, b'{"access_token": "x", "expires_in": "canary"}'), "answered without an access_token"),
        ((200, b" " * (2 << 20)), "answered with more than a token"),
        ((302, b""), "answered 302"),
    ],
)
def test_an_answer_without_a_token(made: Certificates, answer: tuple[int, bytes] | None, said: str) -> None:
    """A redirect among them: the secret goes to the address that was given, and to no other."""
    with serving({"me": "another secret"}, made.whole, answer) as served:
        login = TokenLogin("me", SECRET, served.url, authorities=made.ca.read_text())
        with pytest.raises(SaslAuthenticationFailedError, match=f"{served.url} {said}, for me") as caught:
            ClientCredentials(login).token()
        assert "canary" not in str(caught.value)
        assert len(served.asked) == 1


@pytest.mark.covers("Q1")
def test_an_endpoint_that_is_away_may_come_back(made: Certificates) -> None:
    with serving({"me": SECRET}, made.whole, (503, b"")) as served:
        login = TokenLogin("me", SECRET, served.url, authorities=made.ca.read_text())
        with pytest.raises(KafkaConnectionError, match="answered 503"):
            ClientCredentials(login).token()
    with pytest.raises(KafkaConnectionError, match="did not answer: ConnectError"):
        ClientCredentials(login).token()


@pytest.mark.covers("Q1")
def test_an_endpoint_that_is_not_trusted_gets_no_secret(made: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    with serving({"me": SECRET}, made.whole) as served:
        for authorities in (None, other.ca.read_text()):
            login = TokenLogin("me", SECRET, served.url, authorities=authorities)
            with pytest.raises(
                SaslAuthenticationFailedError, match=r"did not answer: ConnectError: .*certificate verify"
            ):
                ClientCredentials(login).token()
        named = TokenLogin("me", SECRET, served.url.replace("127.0.0.1", "localhost"), authorities=made.ca.read_text())
        with pytest.raises(SaslAuthenticationFailedError, match="Hostname mismatch"):
            ClientCredentials(named).token()
        assert served.asked == []
