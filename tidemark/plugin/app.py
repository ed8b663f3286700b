"""The app behind the pages. Each route needs a login, and each stream the right to see its ingest DAG.

A GET changes nothing. What a person starts, the pages ask of Airflow's own API, in the person's name. Two routes answer POST:
one that looks at a plan, and one that pauses, resumes or cancels what runs.
"""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as HTTPError

from tidemark.plugin import serving, settings
from tidemark.plugin.access import get_user
from tidemark.plugin.cached_queries import CachedQueries
from tidemark.plugin.routes import (
    audits,
    browse,
    completeness,
    dead_letters,
    messages,
    plans,
    runs,
    steering,
    stream,
    streams,
    windows,
)
from tidemark.plugin.stream_access import StreamAccess
from tidemark.plugin.streams import Servers, StreamCache

# One for each page.
_ROUTES = (
    streams.routes,
    stream.routes,
    messages.routes,
    browse.routes,
    windows.routes,
    dead_letters.routes,
    audits.routes,
    completeness.routes,
    plans.routes,
    runs.routes,
    steering.routes,
)


def build_app() -> FastAPI:
    # Airflow does not authenticate the apps of plugins: without this dependency, every route would be open to everybody.
    # FastAPI's own routes for its description do not have it, so they are off.
    given = settings.from_airflow()
    servers = Servers(given.page_question_seconds)
    access = StreamAccess(StreamCache(), servers, CachedQueries(servers.show, given, servers.reach))
    app = FastAPI(
        title="Tidemark",
        description="What the ledger knows of each stream. Offsets are texts: they may exceed 2^53. Times are ms since 1970.",
        dependencies=[Depends(get_user)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.asking = access.asking
    app.middleware("http")(serving.with_headers)
    app.exception_handler(RequestValidationError)(serving.wrong_value)
    app.exception_handler(HTTPError)(serving.not_found)

    @app.get("/files/{version}/{name}", include_in_schema=False)
    async def file(version: str, name: str) -> Response:
        return serving.file(version, name)

    @app.get("/api/openapi.json")
    async def description(request: Request) -> dict[str, Any]:
        """This API, described by OpenAPI."""
        # Airflow mounts this app below a path of its own, and may be served below another.
        return {**app.openapi(), "servers": [{"url": request.scope.get("root_path", "")}]}

    for routes in _ROUTES:
        app.include_router(routes(access))
    return app
