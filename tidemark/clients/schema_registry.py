"""A schema registry: which schema a message was written with, of Avro or of Protobuf, by the number in its first bytes.

The client asks for `GET /schemas/ids/N`, which Confluent's registry and similar ones answer. What a schema refers to is asked
for by `GET /subjects/S/versions/V`. For many numbers it asks for the list of all schemas. An answer has a limit in time and
one in size. The client follows a redirect only on the same server, so that a connection's credentials reach no other server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from tidemark.clients.avro_references import joined
from tidemark.clients.connections import Connection
from tidemark.clients.protobuf_files import set_of
from tidemark.clients.registry_answers import CALLED, RefusedSchema, SchemaKind
from tidemark.errors import Unreachable, WrongUse


@dataclass(frozen=True)
class RegistryEndpoint:
    """A schema registry's address, without a slash at the end, and the login; None if it needs no login."""

    url: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.url


def registry_endpoint(connection: Connection) -> RegistryEndpoint:
    """The host begins with `https://` or `http://`, as in Airflow's HTTP connections.

    Raises WrongUse for any other host. Plain `http://` needs `allow_insecure` among the extras: others could read and
    change requests, and read a password. A registry on this machine without a password does not need it.
    """
    connection.only("a schema registry", "host", "port", "login", "password", extras=("allow_insecure",))
    url, secret = connection.url(), bool(connection.login or connection.password)
    connection.check_url(
        url,
        "expected a host that begins with https:// or http://",
        "the host",
        f"it asks a schema registry by http://, where others can read {'its password' if secret else 'and change the answers'}",
        "give it a host that begins with https://",
        secret=secret,
    )
    return RegistryEndpoint(url, connection.login, connection.password)


Answer = TypeVar("Answer")

# The limit for one schema, with all redirects. A registry answers in milliseconds.
TIMEOUT_SECONDS = 20.0
# The largest schemas of large companies have a few hundred kilobytes.
MAX_BYTES = 4 * 1024 * 1024
_MAX_REDIRECTS = 5
# How many schemas one may refer to, with those that they refer to.
MAX_REFERENCES = 100
# How many schemas are asked for at once.
_AT_ONCE = 16
# How many schemas of the list are on a page, and how large the list of a registry without pages may be.
_PAGE = 500
_MAX_BYTES_LISTED = 256 * 1024 * 1024
# The registry's own error number for an unknown schema. A plain 404 comes from some other server.
_NO_SUCH_SCHEMA = 40403
# For a subject that is unknown, or that lacks a schema.
_NOT_REGISTERED = (40401, _NO_SUCH_SCHEMA)
# No compressed answers: some kilobytes can decompress to gigabytes.
_HEADERS = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", "Accept-Encoding": "identity"}


class _TooMuch(WrongUse):
    """Raised for an answer that is larger than any schema."""


class _Unresolved(Exception):
    """Why what a schema refers to cannot be had."""


@dataclass(frozen=True)
class _Schema:
    """The text of a schema, and what it refers to, as the registry says it."""

    text: str
    references: tuple[Any, ...]


@dataclass(frozen=True)
class _Sources:
    """The texts of a schema and of those that it refers to; Protobuf knows these by their names."""

    text: str
    referred: tuple[str, ...]
    by_name: Mapping[str, str]


class SchemaRegistry:
    """The registry at an endpoint. Answers are not cached: a window asks once for each of its schemas."""

    def __init__(
        self, endpoint: RegistryEndpoint, *, timeout_seconds: float = TIMEOUT_SECONDS, most_bytes: int = MAX_BYTES
    ) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._most_bytes = most_bytes

    def schema(self, number: int, kind: SchemaKind = "AVRO") -> str | RefusedSchema | None:
        """A schema with those that it refers to; None when the number is unknown, or names a schema of another kind.

        The text of an Avro schema; of Protobuf the set of descriptors in base64, of which the schema's own file is the last.
        Raises Unreachable when the registry does not answer in time. Raises WrongUse when the server refuses, or is no
        registry.
        """
        return self.schemas([number], kind)[number]

    def schemas(self, numbers: Iterable[int], kind: SchemaKind = "AVRO") -> dict[int, str | RefusedSchema | None]:
        """As `schema`, for many numbers, with several requests at once."""
        answers = _in_own_loop(self._schemas(iter(numbers), kind))
        return {number: _read(one, kind) if isinstance(one, _Sources) else one for number, one in answers.items()}

    def register(self, subject: str, schema: str) -> int:
        """The number of an Avro schema, which becomes the newest of a subject if it is not one of it yet. Repeatable.

        Raises WrongUse where the registry refuses it, as for one that programs could not read older values with; Unreachable.
        """
        number = _in_own_loop(self._posted(f"/subjects/{quote(subject, safe='')}/versions", schema))
        if number is None:
            raise WrongUse(f"the schema registry at {self._endpoint} does not know how to register a schema")
        return number

    def registered(self, subject: str, schema: str) -> int | None:
        """The number of an Avro schema of a subject; None if it was never registered there. Raises as `register`."""
        return _in_own_loop(self._posted(f"/subjects/{quote(subject, safe='')}", schema))

    async def _posted(self, path: str, schema: str) -> int | None:
        """The number that an answer names; None for one that says that there is nothing."""
        url = f"{self._endpoint.url}{path}"
        async with self._client() as client:
            status, body = await self._get(client, url, self._most_bytes, {"schema": schema})
        # Only a registry says so. A 404 of another server would make every value of a topic look changed.
        if status == HTTPStatus.NOT_FOUND and _error_code(body) in _NOT_REGISTERED:
            return None
        if status in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise WrongUse(f"the schema registry refuses the schema for {url}: {_message(body)}")
        answer = _answer(url, status, body)
        if not isinstance(answer, dict) or type(number := answer.get("id")) is not int or not 0 < number < 1 << 32:
            raise WrongUse(f"{url} does not answer as a schema registry does")
        return number

    def numbers(self) -> set[int] | None:
        """The numbers of all schemas, deleted ones too. None when the registry does not list them for us.

        Raises Unreachable.
        """
        try:
            return _in_own_loop(self._numbers())
        except WrongUse:
            return None

    async def _schemas(self, numbers: Iterator[int], kind: SchemaKind) -> dict[int, _Sources | RefusedSchema | None]:
        schemas: dict[int, _Sources | RefusedSchema | None] = {}

        async def ask(client: httpx.AsyncClient) -> None:
            for number in numbers:
                url = f"{self._endpoint.url}/schemas/ids/{number}"
                try:
                    status, body = await self._get(client, url, self._most_bytes)
                    schemas[number] = await self._sources(client, url, status, body, kind)
                except _TooMuch:
                    schemas[number] = RefusedSchema(f"the registry answers with more than {self._most_bytes} bytes")

        async with self._client() as client:
            await asyncio.gather(*(ask(client) for _ in range(_AT_ONCE)))
        return schemas

    async def _sources(
        self, client: httpx.AsyncClient, url: str, status: int, body: bytes, kind: SchemaKind
    ) -> _Sources | RefusedSchema | None:
        if status == HTTPStatus.NOT_FOUND and _error_code(body) == _NO_SUCH_SCHEMA:
            return None
        schema = _of_schema(url, _answer(url, status, body), kind)
        if schema is None:
            return None
        try:
            # One deadline for all of them.
            return await asyncio.wait_for(self._with_referred(client, schema, kind), self._timeout_seconds)
        except _Unresolved as problem:
            return RefusedSchema(str(problem))
        except TimeoutError as problem:
            raise Unreachable(
                f"the schema registry does not give what {url} refers to within {self._timeout_seconds:g} s"
            ) from problem

    async def _with_referred(self, client: httpx.AsyncClient, schema: _Schema, kind: SchemaKind) -> _Sources:
        """A schema with the texts of all that it refers to, directly or not. Raises _Unresolved."""
        ids: dict[tuple[str, int], str] = {}
        names: dict[str, str] = {}
        open_ = [*schema.references]
        size = len(schema.text)
        while open_:
            reference = open_.pop()
            subject, version = _place(reference)
            # Even if they refer to each other.
            if (subject, version) in ids:
                names[str(reference.get("name"))] = ids[subject, version]
                continue
            if len(ids) == MAX_REFERENCES:
                raise _Unresolved(f"it refers to more than {MAX_REFERENCES} schemas")
            url = f"{self._endpoint.url}/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
            status, body = await self._get(client, url, self._most_bytes)
            if status == HTTPStatus.NOT_FOUND:
                raise _Unresolved(f"it refers to version {version} of {subject!r}, which the registry does not have")
            read = _of_schema(url, _answer(url, status, body), kind)
            if read is None:
                raise _Unresolved(f"it refers to version {version} of {subject!r}, which is not {CALLED[kind]}")
            size += len(read.text)
            if size > self._most_bytes:
                raise _Unresolved(f"with the schemas that it refers to, it has more than {self._most_bytes} bytes")
            ids[subject, version] = names[str(reference.get("name"))] = read.text
            open_ += read.references
        return _Sources(schema.text, tuple(ids.values()), names)

    async def _numbers(self) -> set[int]:
        ids: list[int] = []
        before = b""
        async with self._client() as client:
            while True:
                url = f"{self._endpoint.url}/schemas?deleted=true&offset={len(ids)}&limit={_PAGE}"
                status, body = await self._get(client, url, _MAX_BYTES_LISTED)
                page = _listed(url, _answer(url, status, body))
                # A registry without pages gives the same answer every time.
                if not page or body == before:
                    return set(ids)
                ids += page
                before = body

    async def _get(
        self, client: httpx.AsyncClient, url: str, most_bytes: int, given: object = None
    ) -> tuple[int, bytes]:
        """Status and body; of a POST, if something is `given`. A whole request, with its redirects, has one deadline."""
        try:
            return await asyncio.wait_for(self._asked(client, url, most_bytes, given), self._timeout_seconds)
        except TimeoutError as problem:
            raise Unreachable(
                f"the schema registry does not answer {url} within {self._timeout_seconds:g} s"
            ) from problem
        except (httpx.InvalidURL, UnicodeError) as problem:
            raise WrongUse(f"{url} is no address of a schema registry: {problem}") from problem
        except (httpx.HTTPError, OSError) as problem:
            said = str(problem) or type(problem).__name__
            raise Unreachable(f"the schema registry does not answer {url}: {said}") from problem

    def _client(self) -> httpx.AsyncClient:
        login = self._endpoint.login
        credentials = None if login is None else httpx.BasicAuth(login, self._endpoint.password or "")
        # The system's certificates, as in Python's own client. httpx would take those of a package.
        trusted = ssl.create_default_context()
        limit = httpx.Timeout(self._timeout_seconds)
        return httpx.AsyncClient(headers=_HEADERS, auth=credentials, timeout=limit, verify=trusted)

    async def _asked(self, client: httpx.AsyncClient, url: str, most_bytes: int, given: object) -> tuple[int, bytes]:
        asked = httpx.URL(url)
        for _ in range(_MAX_REDIRECTS + 1):
            async with client.stream("GET" if given is None else "POST", asked, json=given) as answer:
                if answer.next_request is None:
                    return answer.status_code, await _body(answer, most_bytes)
                asked = _on_same_server(asked, answer.next_request.url)
        raise WrongUse(f"the schema registry redirects {url} more than {_MAX_REDIRECTS} times")


def _in_own_loop(asking: Coroutine[Any, Any, Answer]) -> Answer:
    """Run in a thread with an event loop of its own, which keeps the deadlines."""
    with ThreadPoolExecutor(1, thread_name_prefix="schema-registry") as thread:
        return thread.submit(asyncio.run, asking).result()


def _read(sources: _Sources, kind: SchemaKind) -> str | RefusedSchema:
    try:
        if kind == "PROTOBUF":
            return b64encode(set_of(sources.text, sources.by_name)).decode()
        return joined(sources.text, sources.referred) if sources.referred else sources.text
    except ValueError as problem:
        return RefusedSchema(
            f"of this schema and those that it refers to, {problem}" if sources.referred else str(problem)
        )


def _of_schema(url: str, answer: Any, kind: SchemaKind) -> _Schema | None:
    """The schema of an answer; None for a schema of another kind. Raises WrongUse for an answer that has none."""
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise WrongUse(f"{url} does not answer as a schema registry does")
    if (answer.get("schemaType") or "AVRO") != kind:
        return None
    references = answer.get("references") or []
    return _Schema(answer["schema"], tuple(references) if isinstance(references, list) else (references,))


def _place(reference: Any) -> tuple[str, int]:
    """Subject and version of a reference. Raises _Unresolved."""
    subject, version = (
        (reference.get(name) for name in ("subject", "version")) if isinstance(reference, dict) else (0, 0)
    )
    if not isinstance(subject, str) or type(version) is not int or version < 1:
        raise _Unresolved("it refers to a schema without saying its subject and its version")
    return subject, version


def _listed(url: str, answer: Any) -> list[int]:
    """The numbers; one that several subjects have comes several times."""
    try:
        return [int(schema["id"]) for schema in answer]
    except (TypeError, KeyError, ValueError) as problem:
        raise WrongUse(f"{url} does not answer as a schema registry does") from problem


def _answer(url: str, status: int, body: bytes) -> Any:
    """A registry's JSON. Raises Unreachable, or WrongUse for any other answer."""
    if status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS):
        raise Unreachable(f"the schema registry answers {status} to {url}")
    if status != HTTPStatus.OK:
        raise WrongUse(
            f"the schema registry answers {status} to {url}; look at the address, the login and the password of "
            "its connection"
        )
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Unreachable(f"the schema registry does not answer {url} with JSON: {problem}") from problem


async def _body(answer: httpx.Response, most_bytes: int) -> bytes:
    body = b""
    async for piece in answer.aiter_raw():
        body += piece
        if len(body) > most_bytes:
            raise _TooMuch(
                f"the schema registry answers {answer.url} with more than {most_bytes} bytes, which no schema has"
            )
    return body


def _on_same_server(asked: httpx.URL, to: httpx.URL) -> httpx.URL:
    """The address that a redirect leads to. Raises WrongUse for another scheme, host or port than was asked."""
    if (asked.scheme, asked.host, asked.port) != (to.scheme, to.host, to.port):
        raise WrongUse(
            f"the schema registry redirects {asked} to {to.scheme}://{to.netloc.decode()}, another server, which is not "
            "asked: if it is the registry, name it in the connection"
        )
    return to


def _message(body: bytes) -> str:
    """A registry's reason for a refusal, on one line."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    said = answer.get("message") if isinstance(answer, dict) else None
    return " ".join(str(said or body.decode(errors="replace")).split())[:300]


def _error_code(body: bytes) -> Any:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer.get("error_code") if isinstance(answer, dict) else None
