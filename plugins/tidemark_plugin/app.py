"""The page's routes. Each route needs a login, and each stream the right to see its ingest DAG.

Read-only: no route changes anything, whatever the method of the request.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse

from tidemark.audit.page import CONTENT_SECURITY_POLICY
from tidemark.streams.loading import StreamFile
from tidemark_plugin import settings, streams
from tidemark_plugin.access import get_user, may_see, may_see_files
from tidemark_plugin.asking import Answer, Asking

_PAGE = Path(__file__).parent / "page"
_FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "run.html": "text/html; charset=utf-8",
    "run.js": "text/javascript; charset=utf-8",
}
# The page is shown inside Airflow, loads nothing from elsewhere, and runs no script but its own.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

# The names of a DAG and of a run have up to 250 characters each.
_MOST_OF_A_RUN = 600

User = Annotated[Any, Depends(get_user)]


def build_app() -> FastAPI:
    # Airflow does not authenticate the apps of plugins: without this dependency, every route would be open to everybody.
    given = settings.from_airflow()
    known = streams.KnownStreams()
    servers = streams.Servers(given.page_question_seconds)
    asking = Asking(servers.show, given)
    app = FastAPI(title="Tidemark", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/")
    def page() -> Response:
        return _file("index.html")

    @app.get("/run")
    def run() -> Response:
        """The answers to the offsets of a run. The page asks Airflow's own API for them."""
        return _file("run.html")

    @app.get("/files/{name}")
    def file(name: str) -> Response:
        if name not in _FILES:
            raise HTTPException(404, "no such file")
        return _file(name)

    # No route waits for a server in one of Airflow's threads: Airflow's API, with its tasks' heartbeats, needs those.
    @app.get("/streams")
    async def list_streams(user: User, response: Response) -> dict[str, Any]:
        response.headers.update(_HEADERS)
        found, problems = await run_in_threadpool(_visible, known, user)
        return {"streams": list(found), "problems": problems}

    @app.get("/streams/{name}")
    async def one_stream(name: str, user: User) -> Response:
        found, _ = await run_in_threadpool(_visible, known, user)
        if name not in found:
            raise HTTPException(404, "no such stream")
        answer = await asking.answer(found[name])
        return JSONResponse(dict(answer.fields), answer.status, headers=_HEADERS)

    @app.get("/streams/{name}/audit")
    async def audit_report(
        name: str, run: Annotated[str, Query(min_length=1, max_length=_MOST_OF_A_RUN)], user: User
    ) -> Response:
        """The report of an audit, as the page that `tidemark report --html` writes."""
        found, _ = await run_in_threadpool(_visible, known, user)
        if name not in found:
            raise HTTPException(404, "no such stream")
        return _report(await asking.once(found[name], partial(servers.audit_page, found[name], run)))

    return app


def _report(answer: Answer | str | None) -> Response:
    if answer is None:
        raise HTTPException(404, "no such report")
    if isinstance(answer, Answer):
        return JSONResponse(dict(answer.fields), answer.status, headers=_HEADERS)
    return HTMLResponse(answer, headers={**_HEADERS, "Content-Security-Policy": CONTENT_SECURITY_POLICY})


def _visible(known: streams.KnownStreams, user: Any) -> tuple[dict[str, StreamFile], list[str]]:
    """The streams that a person may see, and the problems of files. Reads files and Airflow's database, as Airflow does."""
    found, problems = known.now()
    allowed = may_see(user, [_dag(name) for name in found])
    seen = {name: file for name, file in found.items() if _dag(name) in allowed}
    return seen, problems if problems and may_see_files(user) else []


def _dag(stream: str) -> str:
    return f"{stream}__ingest"


def _file(name: str) -> Response:
    return Response((_PAGE / name).read_bytes(), media_type=_FILES[name], headers=_HEADERS)
