"""A cluster's endpoint as settings of its clients: kafka-python here, Kafka's own Java client inside Spark."""

from __future__ import annotations

import logging
import os
import secrets
import ssl
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tidemark.clients.connections import keep_quiet
from tidemark.clients.kafka.endpoint import SCRAM, KafkaEndpoint, PasswordLogin, Tls, TokenLogin

_SECURITY = "org.apache.kafka.common.security"
_MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
_SCRAM_MODULE = "scram.ScramLoginModule"
_TOKENS = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"

# It says at INFO which connections it opens and closes: most lines of a task's log. Who sets its level keeps that.
_LOG = logging.getLogger("kafka")
if _LOG.level == logging.NOTSET:
    _LOG.setLevel(logging.WARNING)


def python_settings(endpoint: KafkaEndpoint) -> dict[str, Any]:
    """The settings of kafka-python's clients, which read all names of headers from then on."""
    # Its import is none of those that a DAG file may cost.
    from tidemark.clients.kafka.header_names import take_any_names

    take_any_names()
    settings: dict[str, Any] = {
        "bootstrap_servers": endpoint.servers.split(","),
        "security_protocol": endpoint.protocol,
    }
    if endpoint.tls:
        settings["ssl_context"] = _context(endpoint.tls)
    if endpoint.protocol != "PLAINTEXT":
        from tidemark.clients.kafka.bootstrapping import net_client

        settings["kafka_client"] = partial(net_client, endpoint)
    login = endpoint.login
    if login:
        # At debug level, kafka-python logs its settings and what it sends, with passwords.
        keep_quiet("kafka")
    if isinstance(login, PasswordLogin):
        settings["sasl_mechanism"] = login.mechanism
        settings["sasl_plain_username"] = _scram_name(login.name) if login.mechanism in SCRAM else login.name
        settings["sasl_plain_password"] = login.password
    elif isinstance(login, TokenLogin):
        from tidemark.clients.kafka.oauth import provider

        settings["sasl_mechanism"] = login.mechanism
        settings["sasl_oauth_token_provider"] = provider(login)
    return settings


def java_settings(endpoint: KafkaEndpoint) -> dict[str, str]:
    """The settings of Kafka's Java clients. They hold secrets, so never show them."""
    settings = {"bootstrap.servers": endpoint.servers, "security.protocol": endpoint.protocol}
    if endpoint.tls:
        settings |= _java_tls(endpoint.tls)
    login = endpoint.login
    if isinstance(login, PasswordLogin):
        module = _SCRAM_MODULE if login.mechanism in SCRAM else _MODULES[login.mechanism]
        options = {"username": login.name, "password": login.password}
    elif isinstance(login, TokenLogin):
        module = _MODULES[login.mechanism]
        options = _token_options(login)
        settings["sasl.login.callback.handler.class"] = _TOKENS
        settings["sasl.oauthbearer.token.endpoint.url"] = login.url
    else:
        return settings
    settings["sasl.mechanism"] = login.mechanism
    settings["sasl.jaas.config"] = jaas(f"{_SECURITY}.{module}", options)
    return settings


def token_urls(*endpoints: KafkaEndpoint) -> list[str]:
    """The only addresses that Java may send a client's secret to."""
    return sorted({endpoint.login.url for endpoint in endpoints if isinstance(endpoint.login, TokenLogin)})


def jaas(module: str, options: Mapping[str, str]) -> str:
    """One entry of a JAAS configuration, which Java takes apart with its StreamTokenizer."""
    return f"{module} required {' '.join(f'{name}={_quoted(value)}' for name, value in options.items())};"


def _quoted(text: str) -> str:
    # A line's end would end the text. All other characters stand for themselves.
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escaped.get(letter, letter) for letter in text) + '"'


def _java_tls(tls: Tls) -> dict[str, str]:
    settings = {"ssl.endpoint.identification.algorithm": "https"}
    if tls.authorities:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": tls.authorities}
    if tls.certificate and tls.key:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": tls.certificate,
            "ssl.keystore.key": tls.key,
        }
    return settings


def _token_options(login: TokenLogin) -> dict[str, str]:
    options = {"clientId": login.client_id, "clientSecret": login.client_secret}
    if login.scope:
        options["scope"] = login.scope
    options |= {f"extension_{name}": value for name, value in login.extensions}
    if login.authorities:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": login.authorities}
    return options


def _scram_name(name: str) -> str:
    """A name escaped as in RFC 5802, 5.1: kafka-python sends names as they are given."""
    return name.replace("=", "=3D").replace(",", "=2C")


@cache
def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=tls.authorities)
    if tls.certificate and tls.key:
        _show(context, tls.certificate, tls.key)
    return context


def _show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load certificate and key. Python takes a key only from a file: it exists for a moment, under a random password."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    password = secrets.token_hex(16)
    encrypted = load_pem_private_key(key.encode(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "client.pem"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(encrypted + b"\n" + certificate.encode())
        context.load_cert_chain(path, password=password)
