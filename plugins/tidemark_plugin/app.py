"""The page's routes. Every one of them needs a login; each stream needs the right to see its ingest DAG.

Read-only: nothing here changes anything, with whatever method it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Response

from tidemark.errors import TidemarkError
from tidemark.views.overview import overview
from tidemark_plugin import streams
from tidemark_plugin.access import get_user, may_see

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
}
# The page is shown inside Airflow, loads nothing from elsewhere, and runs no script but its own.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

User = Annotated[Any, Depends(get_user)]


def build_app() -> FastAPI:
    # Airflow does not authenticate the apps of plugins: without this dependency every route would be open to anybody.
    app = FastAPI(title="Tidemark", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/")
    def page() -> Response:
        return _file("index.html")

    @app.get("/files/{name}")
    def file(name: str) -> Response:
        if name not in _FILES:
            raise HTTPException(404, "no such file")
        return _file(name)

    # Plain functions: they wait for HBase and Kafka, which FastAPI lets them do in threads of their own.
    @app.get("/streams")
    def list_streams(user: User, response: Response) -> dict[str, Any]:
        response.headers.update(_HEADERS)
        found, problems = streams.known_streams()
        return {"streams": [name for name in found if may_see(user, f"{name}__ingest")], "problems": problems}

    @app.get("/streams/{name}")
    def one_stream(name: str, user: User, response: Response) -> dict[str, Any]:
        response.headers.update(_HEADERS)
        found, _ = streams.known_streams()
        if name not in found or not may_see(user, f"{name}__ingest"):
            raise HTTPException(404, "no such stream")
        try:
            return overview(streams.opened(found[name]))
        except TidemarkError as problem:
            raise HTTPException(503, f"{type(problem).__name__}: {problem}") from problem

    return app


def _file(name: str) -> Response:
    return Response((_PAGE / name).read_bytes(), media_type=_FILES[name], headers=_HEADERS)
