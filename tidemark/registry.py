"""A schema registry: which Avro schema a message was written with, by the number in its first bytes.

Only `GET /schemas/ids/N` is asked for, as Confluent's registry and those that are like it answer it.
"""

from __future__ import annotations

import base64
import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tidemark.connections import RegistryEndpoint
from tidemark.errors import Unreachable, WrongUse

_TIMEOUT_SECONDS = 20.0
# The registry's own number for a schema that it does not have; a plain 404 is the answer of something else.
_NO_SUCH_SCHEMA = 40403


class SchemaRegistry:
    """The registry at an endpoint. Nothing is kept: a window asks once for each of its schemas."""

    def __init__(self, endpoint: RegistryEndpoint) -> None:
        self._endpoint = endpoint

    def schema(self, number: int) -> str | None:
        """The text of an Avro schema; None when the registry knows no such number, or something else under it.

        Raises Unreachable when it does not answer, WrongUse when it refuses to, or is none.
        """
        url = f"{self._endpoint.url}/schemas/ids/{number}"
        try:
            found = self._get(url)
        except HTTPError as problem:
            if problem.code == 404 and _error_code(problem) == _NO_SUCH_SCHEMA:
                return None
            if problem.code >= 500 or problem.code in (408, 429):
                raise Unreachable(f"the schema registry answers {problem.code} to {url}") from problem
            raise WrongUse(
                f"the schema registry answers {problem.code} to {url}; look at the address, the login and the password of "
                "its connection"
            ) from problem
        except (URLError, OSError, ValueError, HTTPException) as problem:
            raise Unreachable(f"the schema registry does not answer {url}: {problem}") from problem
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise WrongUse(f"{url} does not answer as a schema registry does")
        if found.get("references"):
            raise WrongUse(f"schema {number} of the registry refers to other schemas, which Tidemark does not read")
        return found["schema"] if found.get("schemaType", "AVRO") == "AVRO" else None

    def _get(self, url: str) -> Any:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._endpoint.login is not None:
            both = f"{self._endpoint.login}:{self._endpoint.password or ''}"
            headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
        # The endpoint is of http or https, and nothing else.
        request = Request(url, headers=headers)  # noqa: S310
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            return json.load(answer)


def _error_code(problem: HTTPError) -> object:
    try:
        found = json.load(problem)
    except (OSError, ValueError, HTTPException):
        return None
    return found.get("error_code") if isinstance(found, dict) else None
