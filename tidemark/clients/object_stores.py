"""Buckets of S3 and of what speaks its protocol: whose key opens a folder, for Spark, Arrow and delta-rs.

A lake's connection of Airflow's type `aws` has the key. Receipts name folders and no connections, so
a program notes what its streams' connections are, and a folder's access is looked up by the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidemark.clients.connections import Connection, Connections
from tidemark.clients.lake import OBJECT_STORE, lake_folder, of_table
from tidemark.errors import WrongUse

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
        options = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": None if self.endpoint is None else "true",
            "connection.ssl.enabled": "false" if self.plain else "true",
            "aws.credentials.provider": self.key and f"{_PROVIDERS}.{provider}",
            "access.key": self.key,
            "secret.key": self.secret,
            "session.token": self.token,
        }
        return {f"fs.s3a.bucket.{self.bucket}.{name}": value for name, value in options.items() if value is not None}

    def for_arrow(self) -> dict[str, str]:
        """Arguments of Arrow's `S3FileSystem`."""
        options = {
            "region": self.region,
            "endpoint_override": self.endpoint,
            "access_key": self.key,
            "secret_key": self.secret,
            "session_token": self.token,
        }
        return {name: value for name, value in options.items() if value is not None}

    def for_delta(self) -> dict[str, str]:
        """Storage options of delta-rs. A commit is a put that the store refuses if the version is already there."""
        options = {
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true" if self.plain else None,
            "AWS_CONDITIONAL_PUT": "etag",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token,
        }
        return {name: value for name, value in options.items() if value is not None}


def access_of(connection: Connection) -> Access | None:
    """The access of a lake's connection of type `aws`, as Airflow's Amazon provider writes it. None for other types.

    Raises WrongUse, for example for a connection without TLS that leaves this machine.
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
    expected = (
        "expected an endpoint_url among its extras that begins with https:// or http://, and names a host and no path"
    )
    # The key's secret never goes over the line: it signs requests. A token does.
    connection.check_url(
        endpoint,
        expected,
        "endpoint_url",
        "it asks an object store by http://, where others can read and change results",
        "give it an endpoint_url that begins with https://",
        secret=token is not None,
    )
    if urlsplit(endpoint).path.strip("/"):
        raise WrongUse(f"connection {connection.name}: {expected}")
    return Access(bucket, region or _ANY_REGION, endpoint.rstrip("/"), key, secret, token)


@dataclass(frozen=True)
class _Noted:
    """Who opens what lies below a folder: a stream's own folder, or the whole lake of a connection."""

    connection: str
    access: Access
    own: bool


@dataclass(frozen=True)
class _Lakes:
    """What a stream's connections open, by folder, and by lake what is wrong with one that opens nothing."""

    opened: Mapping[str, _Noted]
    refused: Mapping[str, WrongUse] = field(default_factory=dict)
    complete: bool = True


# By stream.
_noted: dict[str, Callable[[], _Lakes]] = {}


def note(stream: str, files: Mapping[str, Collection[str]], connections: Connections) -> None:
    """Note the connections that open a stream's folders. `files`: by connection, the stream's folders below its path.

    Asks for no connection yet.
    """
    known: _Lakes | None = None

    def lakes() -> _Lakes:
        nonlocal known
        found = known or _looked_up(files, connections)
        if found.complete:
            known = found
        return found

    # The last one opened comes last.
    _noted.pop(stream, None)
    _noted[stream] = lakes


def _looked_up(files: Mapping[str, Collection[str]], connections: Connections) -> _Lakes:
    noted: dict[str, _Noted] = {}
    refused: dict[str, WrongUse] = {}
    complete = True
    for name in sorted(files):
        lake = None
        try:
            connection = connections(name)
            lake = lake_folder(connection)
            if (access := access_of(connection)) is not None:
                noted[lake] = _Noted(name, access, own=False)
                noted.update({f"{lake}/{file}": _Noted(name, access, own=True) for file in files[name]})
        except WrongUse as problem:
            # Other streams' folders are opened all the same. Without a lake, it is said where the stream's sink is opened.
            complete = False
            if lake is not None:
                refused[lake] = problem
    return _Lakes(noted, refused, complete)


def note_folder(folder: str, access: Access) -> None:
    """Note the access to one folder, where a program that has looked it up sends it."""
    _noted.pop(folder, None)
    _noted[folder] = lambda: _Lakes({folder: _Noted("", access, own=True)})


def access_to(folder: str) -> Access | None:
    """The access to a folder: of its own stream, of the nearest lake above it, or of another in the same bucket.

    None if no connection covers it, as for folders of this machine. Raises WrongUse where two connections could open it
    with different keys, and no stream's file names it: the choice would be left to chance. And where it lies below the path of
    a connection that cannot be used.
    """
    folder = of_table(folder)
    parts = urlsplit(folder)
    if parts.scheme not in _SCHEMES:
        return None
    matching: list[tuple[int, _Noted]] = []
    all_lakes = [lakes() for lakes in [*_noted.values()]]
    for lakes in all_lakes:
        for place, noted in lakes.opened.items():
            if noted.access.bucket != parts.netloc:
                continue
            above = f"{folder}/".startswith(f"{place}/")
            if above or not noted.own:
                matching.append((len(place) if above else 0, noted))
    nearest = max((length for length, _ in matching), default=0)
    near = [noted for length, noted in matching if length == nearest]
    for lake, problem in ((lake, problem) for lakes in all_lakes for lake, problem in lakes.refused.items()):
        if len(lake) > nearest and f"{folder}/".startswith(f"{lake}/"):
            raise problem
    if not near:
        return None
    # The last of equals: a connection may have another key by now.
    last = near[-1]
    others = sorted(
        {noted.connection for noted in near if noted.access != last.access and noted.connection != last.connection}
    )
    if others and not last.own:
        raise WrongUse(
            f"{folder} is opened by the connections {', '.join([*others, last.connection])}, whose keys differ, and no stream "
            "file says which it is. Give them the same key, or each a path of its own"
        )
    return last.access
