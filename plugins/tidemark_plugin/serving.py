"""What every answer of the page has: headers, the files of the pages, and errors as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.responses import JSONResponse

from tidemark_plugin.asking import Answer

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
# The page is shown inside Airflow, loads nothing from elsewhere, and runs no script but its own.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# For the description of the API. Each of these has the field `detail`, a sentence for people.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "What is asked for cannot be answered as it is asked."},
    401: {"description": "Nobody is logged in."},
    404: {"description": "There is no such thing, or the person may not see the stream's ingest DAG."},
    500: {"description": "A defect of Tidemark. Airflow's log has the error."},
    503: {"description": "A server is away, or has answered with an error."},
    504: {"description": "A server has not answered yet. It is still being asked."},
}


async def with_headers(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
    """Adds the headers to any answer, also to a refusal. Keeps those that the route has set."""
    answer = await call(request)
    for name, value in _HEADERS.items():
        answer.headers.setdefault(name, value)
    return answer


def file(name: str, status: int = 200) -> Response:
    """One of the files of the pages; 404 for any other name."""
    found = {path.name: path for path in _PAGE.iterdir() if path.suffix in _TYPES}.get(name)
    if found is None:
        raise HTTPException(404, "no such file")
    return Response(found.read_bytes(), status, media_type=f"{_TYPES[found.suffix]}; charset=utf-8")


def as_json(answer: Answer) -> Response:
    """What was answered, or why nothing was."""
    return JSONResponse(dict(answer.fields), answer.status)
