"""Tokens for OAUTHBEARER, from an OpenID Connect endpoint, by client id and secret."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tidemark.clients.kafka.endpoint import TokenLogin

# A token is used for this share of its lifetime.
_SHARE = 0.8
_TIMEOUT_SECONDS = 10.0
# A larger answer is no token.
_MAX_BYTES = 1 << 20
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """Provides a token, the same one for most of its lifetime."""

    def __init__(self, login: TokenLogin, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._login = login
        self._clock = clock
        self._token: str | None = None
        self._until = 0.0
        self._asking = threading.Lock()

    def token(self) -> str:
        with self._asking:
            if self._token is None or self._clock() >= self._until:
                now = self._clock()
                answer = self._ask()
                token, seconds = answer.get("access_token"), answer.get("expires_in", 0)
                if not isinstance(token, str) or not token or not isinstance(seconds, int | float):
                    raise self._failed("answered without an access_token")
                self._token, self._until = token, now + _SHARE * seconds
            return self._token

    def extensions(self) -> dict[str, str]:
        return dict(self._login.extensions)

    def _ask(self) -> dict[str, Any]:
        login = self._login
        form = {"grant_type": "client_credentials"} | ({"scope": login.scope} if login.scope else {})
        try:
            # Redirects are not followed: the secret goes only to the given address.
            with httpx.stream(
                "POST",
                login.url,
                data=form,
                auth=(login.client_id, login.client_secret),
                verify=ssl.create_default_context(cadata=login.authorities),
                timeout=_TIMEOUT_SECONDS,
            ) as answer:
                if answer.is_server_error:
                    raise KafkaConnectionError(self._said(f"answered {answer.status_code}"))
                if answer.status_code != httpx.codes.OK:
                    raise self._failed(f"answered {answer.status_code}")
                body = b""
                for piece in answer.iter_bytes():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise self._failed("answered with more than a token")
        except httpx.HTTPError as problem:
            said = self._said(f"did not answer: {type(problem).__name__}: {problem}")
            # A retry does not help with an untrusted certificate.
            kind = SaslAuthenticationFailedError if _UNTRUSTED in said else KafkaConnectionError
            raise kind(said) from None
        try:
            claims = json.loads(body)
        except ValueError:
            claims = None
        return claims if isinstance(claims, dict) else {}

    def _failed(self, what: str) -> SaslAuthenticationFailedError:
        return SaslAuthenticationFailedError(self._said(what))

    def _said(self, what: str) -> str:
        return f"the token endpoint {self._login.url} {what}, for {self._login.client_id}"


@cache
def provider(login: TokenLogin) -> ClientCredentials:
    """One provider per login and process: the clients share a token."""
    return ClientCredentials(login)
