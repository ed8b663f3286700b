"""A throw-away certificate authority for the secure servers, made when they start, only for this machine."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

_VALID = timedelta(days=30)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class CertificateAuthority:
    """Signs certificates. Its own certificate is `ca.pem` in its folder."""

    def __init__(self, folder: Path, name: str = "Tidemark tests") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.certificate = folder / "ca.pem"
        certificate = self._builder(self._name, self._key.public_key(), authority=True).sign(self._key, hashes.SHA256())
        self.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, *, host: str = "127.0.0.1") -> Path:
        """A key and a certificate for CN=`name`, valid for a host too: one PEM file that only its owner may read."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._builder(_named(name), key.public_key(), host=host).sign(self._key, hashes.SHA256())
        path = self.folder / f"{name}.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_secret(path, secret + certificate.public_bytes(Encoding.PEM))
        return path

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, authority: bool = False, host: str | None = None
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _VALID)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            # From 3.13 on, Python asks for what RFC 5280 does.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            made = made.add_extension(_SIGNS_CERTIFICATES, critical=True)
        if host is not None:
            named = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
            made = made.add_extension(x509.SubjectAlternativeName([named]), critical=False)
        return made


def signing_key(folder: Path) -> None:
    """A key for tokens, `tokens.pem`, and its public half as the broker reads it, `jwks.json`."""
    key = rsa.generate_private_key(65537, 2048)
    write_secret(folder / "tokens.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    numbers = key.public_key().public_numbers()
    public = {
        "kty": "RSA",
        "alg": "RS256",
        "use": "sig",
        "kid": "tests",
        "n": _base64(numbers.n),
        "e": _base64(numbers.e),
    }
    (folder / "jwks.json").write_text(json.dumps({"keys": [public]}))


def write_secret(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _base64(number: int) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()
