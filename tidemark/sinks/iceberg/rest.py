"""Iceberg's REST catalog, through pyiceberg: with a limit in time, and errors that say what to do.

A commit names what it was made from: the table, the newest snapshot, the schema. The server applies it if all of these are
still so, in one step, and refuses it otherwise. The server writes the table's metadata itself.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerAdapter, LegacyOAuth2AuthManager, NoopAuthManager
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitStateUnknownException,
    ForbiddenError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from tidemark.clients.iceberg_rest import RestCatalogServer
from tidemark.errors import AuthenticationFailed, NotAuthorized, Unreachable, WrongUse

# Until a server accepts a connection, and until it says something more.
_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 60.0
_LATER = (CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError)
_WHO = (OAuthError, UnauthorizedError, AuthorizationExpiredError)


class _Limited(HTTPAdapter):
    """The library waits without a limit. The system's certificates are trusted, too."""

    def init_poolmanager(self, *given: Any, **named: Any) -> None:
        super().init_poolmanager(*given, ssl_context=ssl.create_default_context(), **named)

    def send(self, request: PreparedRequest, **named: Any) -> Response:  # type: ignore[override]
        return super().send(request, **{**named, "timeout": (_CONNECT_SECONDS, _ANSWER_SECONDS)})


class _Rest(RestCatalog):
    def __init__(self, server: RestCatalogServer, name: str, properties: dict[str, str]) -> None:
        self._server = server
        warehouse = {"warehouse": server.warehouse} if server.warehouse is not None else {}
        super().__init__(name, uri=server.url, **warehouse, **properties)

    def _create_session(self) -> Session:
        session = Session()
        self._config_headers(session)
        # One that is kept is shared by forks, and may have been closed by what lies between, without a word.
        session.headers["Connection"] = "close"
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Limited())
        self._auth_manager = self._manager(session)
        session.auth = AuthManagerAdapter(self._auth_manager)
        return session

    def _manager(self, session: Session) -> AuthManager:
        server = self._server
        if server.login:
            credential, scope = f"{server.login}:{server.password}", {"scope": server.scope}
            return LegacyOAuth2AuthManager(session, server.token_url, credential, optional_oauth_params=scope)
        if server.password:
            return LegacyOAuth2AuthManager(session, initial_token=server.password)
        return NoopAuthManager()


@lru_cache(maxsize=64)
def rest(server: RestCatalogServer, name: str, file_io: str) -> RestCatalog:
    """The catalog of a server, which is asked for its settings, and for a token, once in a program."""
    return _Rest(server, name, {"py-io-impl": file_io})


@contextmanager
def answering(server: RestCatalogServer) -> Iterator[None]:
    """Within this, what a server says becomes an error of Tidemark's. Raises Unreachable, WrongUse.

    Refusals of a commit, and tables that are not there, stay what they are.
    """
    try:
        yield
    except _LATER as problem:
        raise Unreachable(f"{server} could not answer: {problem}") from problem
    except _WHO as problem:
        raise AuthenticationFailed(
            f"{server} refuses this login: {problem}; correct the connection's login and password"
        ) from problem
    except ForbiddenError as problem:
        raise NotAuthorized(
            f"{server} does not allow this: {problem}; the user needs to read, create and change the table and its namespace"
        ) from problem
    except RequestException as problem:
        raise Unreachable(f"{server} did not answer: {problem}") from problem
    except (ValidationError, RESTError, NotImplementedError) as problem:
        raise WrongUse(
            f"{server} does not answer as a REST catalog does; look at the address in its connection: {problem}"
        ) from problem
