"""Buckets of S3 and of what speaks its protocol: whose key opens a folder, for Spark, Arrow and delta-rs.

A lake's connection of Airflow's type `aws` has the key. Receipts name folders and no connections, so
a program notes what its streams' connections are, and a folder's access is looked up by the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidemark.clients.connections import Connection, Connections
from tidemark.clients.lake import OBJECT_STORE, lake_folder
from tidemark.errors import ConnectionMissing, WrongUse

_SCHEMES = ("s3a", "s3")
# Servers of one's own have any region, and some want one.
_ANY_REGION = "us-east-1"
_PROVIDERS = "org.apache.hadoop.fs.s3a"


@dataclass(frozen=True)
class Access:
    """A bucket, where it is, and the key to it. Without a key, each library looks for one as AWS's own programs do."""

    bucket: str
    region: str
    endpoint: str | None = None
    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def plain(self) -> bool:
        """Whether the line has no TLS."""
        return self.endpoint is not None and self.endpoint.startswith("http://")

    def for_hadoop(self) -> dict[str, str]:
        """Settings of Hadoop's s3a for one bucket alone, so that streams in one Spark have each their own."""
        provider = "TemporaryAWSCredentialsProvider" if self.token else "SimpleAWSCredentialsProvider"
        found = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": None if self.endpoint is None else "true",
            "connection.ssl.enabled": "false" if self.plain else "true",
            "aws.credentials.provider": self.key and f"{_PROVIDERS}.{provider}",
            "access.key": self.key,
            "secret.key": self.secret,
            "session.token": self.token,
        }
        return {f"fs.s3a.bucket.{self.bucket}.{name}": value for name, value in found.items() if value is not None}

    def for_arrow(self) -> dict[str, str]:
        """Arguments of Arrow's `S3FileSystem`."""
        found = {
            "region": self.region,
            "endpoint_override": self.endpoint,
            "access_key": self.key,
            "secret_key": self.secret,
            "session_token": self.token,
        }
        return {name: value for name, value in found.items() if value is not None}

    def for_delta(self) -> dict[str, str]:
        """Storage options of delta-rs. A commit is a put that the store refuses if the version is already there."""
        found = {
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true" if self.plain else None,
            "AWS_CONDITIONAL_PUT": "etag",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token,
        }
        return {name: value for name, value in found.items() if value is not None}


def access_of(connection: Connection) -> Access | None:
    """What a lake's connection of type `aws` says, as Airflow's Amazon provider writes it. None for other types.

    Raises WrongUse, also for a line without TLS that leaves this machine.
    """
    if connection.kind != OBJECT_STORE:
        return None
    bucket = urlsplit(lake_folder(connection)).netloc
    key, secret, token = connection.login or None, connection.password or None, connection.text("aws_session_token")
    if (key is None) != (secret is None):
        raise WrongUse(
            f"connection {connection.name} has only one of login and password: give it both, or neither for the machine's role"
        )
    if token is not None and key is None:
        raise WrongUse(f"connection {connection.name}: aws_session_token among its extras goes with login and password")
    endpoint, region = connection.text("endpoint_url"), connection.text("region_name")
    if endpoint is None:
        region = str(connection.required("region_name among its extras", region))
        return Access(bucket, region, None, key, secret, token)
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise WrongUse(
            f"connection {connection.name}: expected an endpoint_url among its extras that begins with https:// or http://, "
            "and names a host and no path"
        )
    if parts.username is not None:
        raise WrongUse(f"connection {connection.name}: login and password stand in its fields, not in endpoint_url")
    if parts.scheme == "http":
        # The key's secret never goes over the line: it signs requests. A token does.
        connection.allow_in_the_clear(
            [parts.hostname],
            "it asks an object store by http://, where others can read and change results",
            "give it an endpoint_url that begins with https://",
            secret=token is not None,
        )
    return Access(bucket, region or _ANY_REGION, endpoint.rstrip("/"), key, secret, token)


# By stream: the names of its lakes' connections, and where connections are.
_noted: dict[str, Callable[[], Mapping[str, Access]]] = {}


def note(stream: str, files: frozenset[str], connections: Connections) -> None:
    """Note whose connections open a stream's folders. Asks for no connection yet."""
    found: dict[str, Access] = {}

    def lakes() -> Mapping[str, Access]:
        if not found:
            for name in sorted(files):
                try:
                    connection = connections(name)
                except ConnectionMissing:
                    # Said where the stream's sink is opened.
                    continue
                if (access := access_of(connection)) is not None:
                    found[lake_folder(connection)] = access
        return found

    # The last one opened comes last.
    _noted.pop(stream, None)
    _noted[stream] = lakes


def note_folder(folder: str, access: Access) -> None:
    """Note the access to one folder, where a program that has looked it up sends it."""
    _noted.pop(folder, None)
    _noted[folder] = lambda: {folder: access}


def access_to(folder: str) -> Access | None:
    """The access to a folder: of the nearest lake above it, or of another one in the same bucket; of two, the last noted.

    None where no connection says anything of it, as for folders of this machine.
    """
    parts = urlsplit(folder)
    if parts.scheme not in _SCHEMES:
        return None
    found: list[tuple[int, Access]] = []
    for lakes in [*_noted.values()]:
        for lake, access in lakes().items():
            if access.bucket == parts.netloc:
                found.append((len(lake) if f"{folder}/".startswith(f"{lake}/") else 0, access))
    # The last of equals.
    return max(reversed(found), key=lambda one: one[0])[1] if found else None
