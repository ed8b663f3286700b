"""Where a REST catalog of Iceberg tables is, by an Airflow connection."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark.clients.connections import Connection
from tidemark.errors import WrongUse

# Airflow's own provider for Iceberg has the first one.
KINDS = ("iceberg", "http", "tidemark_iceberg")
_EXTRAS = ("allow_insecure", "warehouse", "oauth2-server-uri", "scope")


@dataclass(frozen=True)
class RestCatalogServer:
    """A REST catalog: its address without a slash at the end, and how to log in.

    With `login` and `password`, a token is asked for at `token_url`. A `password` alone is a token.
    """

    url: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    warehouse: str | None = None
    token_url: str = ""
    scope: str = "catalog"

    def __str__(self) -> str:
        return f"the REST catalog at {self.url}"


def rest_catalog(connection: Connection) -> RestCatalogServer:
    """The host begins with `https://` or `http://`. Extras have the names of pyiceberg's own settings. Raises WrongUse.

    Plain `http://` needs `allow_insecure` among the extras, unless it is on this machine and no secret is sent.
    """
    connection.only("an Iceberg REST catalog", "host", "port", "login", "password", extras=_EXTRAS)
    url = connection.url()
    if connection.login and not connection.password:
        raise WrongUse(f"connection {connection.name} has a login without a password")
    token_url = connection.text("oauth2-server-uri") or f"{url}/v1/oauth/tokens"
    asked = [url, token_url] if connection.login else [url]
    for one in asked:
        _check(connection, one)
    return RestCatalogServer(
        url,
        connection.login or None,
        connection.password or None,
        connection.text("warehouse"),
        token_url,
        connection.text("scope") or "catalog",
    )


def _check(connection: Connection, url: str) -> None:
    secret = bool(connection.password)
    connection.check_url(
        url,
        f"{url} is no address of a REST catalog: expected one that begins with https:// or http://",
        "an address",
        f"it asks {url} by http://, where others can {'read its password' if secret else 'change the answers'}",
        "give it an address that begins with https://",
        secret=secret,
    )
