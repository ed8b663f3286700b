"""Certificates and keys for tests of settings. No server that outlives a test uses any of them."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from services.authority import CertificateAuthority


class Certificates:
    """An authority, and a client's certificate and key in the usual forms."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.authority = CertificateAuthority(folder)
        self.ca = self.authority.certificate
        self.whole = self.authority.issue("client")
        text = self.whole.read_text()
        self.key_text, self.certificate_text = (
            text[: text.index("-----BEGIN CERT")],
            text[text.index("-----BEGIN CERT") :],
        )
        self.certificate = folder / "client.crt"
        self.certificate.write_text(self.certificate_text)

    def key(self, form: PrivateFormat = PrivateFormat.PKCS8, password: str | None = None) -> str:
        loaded = load_pem_private_key(self.key_text.encode(), None)
        how = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return loaded.private_bytes(Encoding.PEM, form, how).decode()
