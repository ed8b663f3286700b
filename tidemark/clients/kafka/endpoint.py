"""Where a Kafka cluster is, and with which login to ask it, from an Airflow connection of Kafka's own provider.

The extras have the names of librdkafka, which that provider uses. Tidemark applies each setting to all clients, or
refuses it by name: users would rely on a security setting that is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tidemark.clients.connections import Connection
from tidemark.clients.server_lists import joined, servers_in
from tidemark.errors import WrongUse

PLAIN, SCRAM, OAUTHBEARER = "PLAIN", ("SCRAM-SHA-256", "SCRAM-SHA-512"), "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_SERVERS, _PROTOCOL, _INSECURE = "bootstrap.servers", "security.protocol", "allow_insecure"
_MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
_PASSWORD = ("sasl.username", "sasl.password")
_TOKEN = (
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "https.ca.location",
    "https.ca.pem",
)
_TLS = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)
EXTRAS = (_SERVERS, _PROTOCOL, *_MECHANISM, *_PASSWORD, *_TOKEN, *_TLS, _INSECURE)

_PEM_INSTEAD = "Give certificate and key as PEM instead: ssl.certificate.location and ssl.key.location, or their texts."
_REASONS = {
    **dict.fromkeys(("ssl.keystore.location", "ssl.keystore.password"), _PEM_INSTEAD),
    "sasl.jaas.config": "Give sasl.username and sasl.password: what Java needs is made of them.",
    "group.id": "A connection that others read with as a consumer group needs a second connection next to it, for Tidemark.",
}


@dataclass(frozen=True)
class Tls:
    """The trusted and own certificates of a client, as PEM texts. The client always checks certificates and host names."""

    # None for the machine's own authorities.
    authorities: str | None = None
    certificate: str | None = None
    # PKCS 8, not encrypted. It never reaches a disk in this form.
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PasswordLogin:
    mechanism: str
    name: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class TokenLogin:
    """OAuth 2.0 with client credentials. `authorities` (PEM) are for the token's endpoint; None for the machine's own."""

    client_id: str
    client_secret: str = field(repr=False)
    url: str
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    authorities: str | None = None

    mechanism = OAUTHBEARER


@dataclass(frozen=True)
class KafkaEndpoint:
    """The brokers to ask first, `host:port` separated by commas, and how. Travels to Spark's workers, and is never shown."""

    servers: str
    tls: Tls | None = None
    login: PasswordLogin | TokenLogin | None = None

    def __str__(self) -> str:
        return self.servers

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.login else "") + ("SSL" if self.tls else "PLAINTEXT")

    @property
    def principal(self) -> str:
        """The user, as far as the client knows: the broker may map names to others."""
        if isinstance(self.login, PasswordLogin):
            return f"User:{self.login.name}"
        if isinstance(self.login, TokenLogin):
            return f"the OAuth client {self.login.client_id}"
        if self.tls and self.tls.certificate:
            return f"User:{_subject(self.tls.certificate)}"
        return "User:ANONYMOUS"


def kafka_endpoint(connection: Connection) -> KafkaEndpoint:
    """The cluster that a connection names, with the contents of its files. Raises WrongUse naming the setting."""
    connection.only("Kafka", extras=EXTRAS, reasons=_REASONS)
    given = {name: value for name in EXTRAS if name != _INSECURE and (value := _value(connection, name)) is not None}
    servers = str(connection.required(f"{_SERVERS} among its extras", given.get(_SERVERS)))
    reader = _ConnectionSettings(connection.name, given, connection.flag(_INSECURE))
    try:
        servers = joined(servers_in(servers))
    except ValueError as problem:
        raise reader.wrong(f"{_SERVERS} among its extras: {problem}") from None
    protocol = given.get(_PROTOCOL, "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise reader.wrong(f"{_PROTOCOL} is {given[_PROTOCOL]!r}; expected one of {', '.join(_PROTOCOLS)}")
    encrypted, asked = protocol.endswith("SSL"), protocol.startswith("SASL_")
    if not encrypted:
        reader.none_of(_TLS, f"{_PROTOCOL} is {protocol}, which does not use TLS")
    if not asked:
        reader.none_of((*_MECHANISM, *_PASSWORD, *_TOKEN), f"{_PROTOCOL} is {protocol}, which does not use SASL")
    elif not encrypted:
        reader.insecure(f"{_PROTOCOL} is {protocol}, and everybody on the way could read the password: use SASL_SSL")
    if not encrypted and not asked:
        connection.allow_in_the_clear(
            servers.split(","),
            f"{_PROTOCOL} is PLAINTEXT, and everybody on the way could read and change the messages",
            f"say SSL or SASL_SSL in {_PROTOCOL}",
            secret=False,
        )
    return KafkaEndpoint(servers, reader.tls() if encrypted else None, reader.login() if asked else None)


def _value(connection: Connection, name: str) -> str | None:
    value = connection.extra.get(name)
    if isinstance(value, bool):
        # librdkafka writes booleans in lower case.
        return str(value).lower()
    return connection.text(name)


@dataclass(frozen=True)
class _ConnectionSettings:
    """The settings of one connection."""

    connection: str
    given: Mapping[str, str]
    allow_insecure: bool

    def wrong(self, what: str) -> WrongUse:
        return WrongUse(f"connection {self.connection}: {what}")

    def none_of(self, names: tuple[str, ...], why: str) -> None:
        if named := [name for name in names if name in self.given]:
            raise self.wrong(f"{', '.join(named)} among its extras would be ignored: {why}")

    def insecure(self, what: str) -> None:
        if not self.allow_insecure:
            raise self.wrong(f'{what} (or say {{"{_INSECURE}": true}} among its extras, on loopback)')

    def needed(self, name: str) -> str:
        if name not in self.given:
            raise self.wrong(f"it has no {name} among its extras")
        return self.given[name]

    def tls(self) -> Tls:
        for name, only in (
            ("ssl.endpoint.identification.algorithm", "https"),
            ("enable.ssl.certificate.verification", "true"),
        ):
            if self.given.get(name, only).lower() != only:
                raise self.wrong(
                    f"{name} is {self.given[name]!r}, and any server that answers would be trusted; expected {only}. For a "
                    "certificate of your own authority, give that as ssl.ca.location"
                )
        authorities = self.pem("ssl.ca")
        certificate, key = self.pem("ssl.certificate"), self.pem("ssl.key", "PRIVATE KEY")
        if (certificate is None) != (key is None):
            raise self.wrong("certificate and key go together: ssl.certificate.location and ssl.key.location, or .pem")
        password = self.given.get("ssl.key.password")
        if key is None:
            if password is not None:
                raise self.wrong("ssl.key.password among its extras goes with a key, and there is none")
            return Tls(authorities)
        return Tls(authorities, certificate, self.key(str(certificate), key, password))

    def pem(self, name: str, kind: str = "CERTIFICATE") -> str | None:
        """A PEM text, from the setting itself or from a file."""
        path, text = self.given.get(f"{name}.location"), self.given.get(f"{name}.pem")
        if path is not None and text is not None:
            raise self.wrong(f"{name}.location and {name}.pem among its extras say the same thing: give one of them")
        if path is not None:
            try:
                text = Path(path).read_text()
            except (OSError, ValueError) as problem:
                reason = getattr(problem, "strerror", None) or "it is no text"
                raise self.wrong(f"{name}.location: {path} cannot be read: {reason}") from None
        if text is not None and not ("-----BEGIN" in text and f"{kind}-----" in text):
            raise self.wrong(f"{name}{'.location' if path else '.pem'} holds no PEM text with a {kind}")
        return text

    def key(self, certificate: str, key: str, password: str | None) -> str:
        """The private key as both clients take it: PKCS 8, not encrypted."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            PublicFormat,
            load_pem_private_key,
        )
        from cryptography.x509 import load_pem_x509_certificate

        # The text of a library's error is not passed on: it might quote the key.
        try:
            loaded = load_pem_private_key(key.encode(), password.encode() if password else None)
        except (ValueError, TypeError):
            said = "is not opened by ssl.key.password" if "ENCRYPTED" in key else "cannot be read, or has no password"
            raise self.wrong(f"the private key {said}") from None
        try:
            public = load_pem_x509_certificate(certificate.encode()).public_key()
        except ValueError:
            raise self.wrong("the certificate cannot be read") from None
        same = {
            key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) for key in (public, loaded.public_key())
        }
        if len(same) > 1:
            raise self.wrong("the private key is not that of the certificate; the client's own certificate comes first")
        return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def login(self) -> PasswordLogin | TokenLogin:
        named = {self.given[name].upper() for name in _MECHANISM if name in self.given}
        if len(named) != 1 or not named <= set(MECHANISMS):
            said = " and ".join(sorted(named)) or "not given"
            raise self.wrong(f"sasl.mechanism is {said}; expected one of {', '.join(MECHANISMS)}")
        mechanism = named.pop()
        if mechanism == OAUTHBEARER:
            self.none_of(_PASSWORD, f"sasl.mechanism is {mechanism}")
            return self.token_login()
        self.none_of(_TOKEN, f"sasl.mechanism is {mechanism}")
        return PasswordLogin(mechanism, self.needed(_PASSWORD[0]), self.needed(_PASSWORD[1]))

    def token_login(self) -> TokenLogin:
        method = self.given.get("sasl.oauthbearer.method", "default")
        if method.lower() != "oidc":
            raise self.wrong(f"sasl.oauthbearer.method is {method}; expected oidc: a token for client id and secret")
        name = "sasl.oauthbearer.token.endpoint.url"
        url = self.needed(name)
        parts = urlsplit(url)
        allowed = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
        # The URL becomes one of a list in a Java option.
        if not allowed or any(letter.isspace() or letter in ",\"'\\" for letter in url):
            raise self.wrong(f"{name} is no URL that begins with https:// and has no login")
        if parts.scheme == "http":
            self.none_of(("https.ca.location", "https.ca.pem"), f"{name} begins with http://")
            self.insecure(f"{name} begins with http://, and everybody on the way could read the secret: use https://")
        return TokenLogin(
            self.needed("sasl.oauthbearer.client.id"),
            self.needed("sasl.oauthbearer.client.secret"),
            url,
            self.given.get("sasl.oauthbearer.scope"),
            self.extensions(),
            self.pem("https.ca"),
        )

    def extensions(self) -> tuple[tuple[str, str], ...]:
        """`name=value` separated by commas, as librdkafka writes them."""
        name = "sasl.oauthbearer.extensions"
        brokers = []
        for broker in filter(None, self.given.get(name, "").split(",")):
            key, equals, value = broker.partition("=")
            if not (key.isascii() and key.isalpha() and equals and value):
                raise self.wrong(f"{name} has {broker!r}; expected name=value, with commas between, names of letters")
            brokers.append((key, value))
        return tuple(brokers)


def _subject(certificate: str) -> str:
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(certificate.encode()).subject.rfc4514_string()
