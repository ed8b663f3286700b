"""The parts that every answer of the page has: headers, the files of the pages, and errors as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException as HTTPError

from tidemark.runs.requests.forms import MAX_TEXT
from tidemark.settings import wording

_PAGE = Path(__file__).parent / "page"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# The page is shown inside Airflow, loads nothing from elsewhere, and runs no script but its own.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# What a body may have: the longest text of a request, each character as two (\n), and the other fields.
MAX_BYTES = 2 * MAX_TEXT + 100_000
# This many of the wrong values of a request are named.
_MAX_ERRORS = 10
# For the description of the API. Each of these has the field `detail`, a sentence for people.
_PROBLEMS = {
    400: "What is asked for cannot be answered as it is asked.",
    401: "Nobody is logged in.",
    403: "The person may see this, and may not do it.",
    404: "There is no such thing, or the person may not see the stream's ingest DAG.",
    422: "A value of the request is out of bounds, or of another type.",
    429: "Questions of this person, or many of others, are still being answered.",
    500: "A defect of Tidemark. Airflow's log has the error.",
    503: "A server is away, or has answered with an error.",
    504: "A server has not answered yet. It is still being asked.",
}
# The headings of pages that say why there is nothing to see. Airflow's login is led to by a page of its own.
_TITLES = {404: "There is no such page", 403: "You may not see this"}
_CANNOT = "This page cannot be shown now"
_LEFT_TO_AIRFLOW = (401,)
_OF_POST = {
    411: "The length of the body is not given.",
    413: f"The body has more than {MAX_BYTES} bytes.",
    415: "The body is not of the type application/json.",
}


@dataclass(frozen=True)
class Problem:
    """Why there is no answer, in a sentence for people."""

    detail: str


def _described(problems: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": said, "model": Problem} for status, said in problems.items()}


PROBLEMS = {200: {"description": "The answer."}, **_described(_PROBLEMS)}
PROBLEMS_OF_POST = {**PROBLEMS, **_described(_OF_POST)}


async def with_headers(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
    """Adds the headers to any answer, also to a refusal. Keeps those that the route has set."""
    answer = _refusal(request) or await call(request)
    if answer.status_code == 401 and request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        answer = _log_in(request)
    for name, value in _HEADERS.items():
        answer.headers.setdefault(name, value)
    return answer


def _log_in(request: Request) -> Response:
    """For who opens an address in a browser: a page that leads to Airflow's login, and from there to the address.

    Styles and scripts need a login too, so it has none.
    """
    url = request.url
    airflow = request.scope.get("root_path", "").rpartition("/")[0]
    target = f"{airflow}/api/v2/auth/login?{urlencode({'next': url.path + (f'?{url.query}' if url.query else '')})}"
    text = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        "<title>Tidemark</title></head><body><p>You are not logged in. "
        f'<a href="{escape(target)}">Log in to Airflow</a>, and this page opens.</p></body></html>\n'
    )
    return HTMLResponse(text, 401)


async def wrong_value(request: Request, problem: Exception) -> Response:
    """The errors in the values of a request as one sentence, like all other problems."""
    errors = list(problem.errors()) if isinstance(problem, RequestValidationError) else []
    lines = [
        f"{error['loc'][-1] if error['loc'] else 'request'}: {wording.describe_error(error)}"
        for error in errors[:_MAX_ERRORS]
    ]
    said = "; ".join([*lines, *([f"and {len(errors) - len(lines)} more"] if len(errors) > len(lines) else [])])
    if (depth := _depth_of_page(request)) is not None:
        return _problem_page("Something is wrong with this address", f"In the address, {said}", depth, 422)
    return JSONResponse({"detail": said}, 422)


def _refusal(request: Request) -> Response | None:
    """Refuses what other sites could have a browser send with the person's cookie, and bodies that are too large.

    A form of another site cannot send JSON, and Airflow's cookie does not go with what another site posts. Browsers say
    where a request comes from besides.
    """
    if request.method != "POST":
        return None
    given = request.headers
    if given.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return JSONResponse({"detail": "this was asked by a page of another site"}, 403)
    if given.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return JSONResponse({"detail": "expected a body of the type application/json"}, 415)
    length = given.get("content-length", "")
    if not length.isdecimal():
        return JSONResponse({"detail": "expected a body whose length is given"}, 411)
    if int(length) > MAX_BYTES:
        said = (
            f"the request has {length} bytes, and may have {MAX_BYTES}; write the records to a file, and name it in "
            "records_file"
        )
        return JSONResponse({"detail": said}, 413)
    return None


def file(version: str, name: str) -> Response:
    """One of the scripts, styles and drawings of the pages; 404 for any other name.

    A browser keeps it under the version of all of them. Where that is another one, as after an upgrade, it keeps nothing.
    """
    path_of = {path.name: path for path in _PAGE.iterdir() if path.suffix in _TYPES}.get(name)
    if path_of is None:
        raise HTTPException(404, "no such file")
    kept = {"Cache-Control": "private, max-age=31536000, immutable"} if version == _version() else {}
    return Response(path_of.read_bytes(), media_type=f"{_TYPES[path_of.suffix]}; charset=utf-8", headers=kept)


def _version() -> str:
    """The digest of all scripts, styles and drawings, which load each other."""
    files = sorted((path.name, path.stat().st_mtime_ns) for path in _PAGE.iterdir() if path.suffix in _TYPES)
    return _digest(tuple(files))


@lru_cache(maxsize=1)
def _digest(files: tuple[tuple[str, int], ...]) -> str:
    hashed = sha256()
    for name, _ in files:
        hashed.update(name.encode() + b"\0" + (_PAGE / name).read_bytes())
    return hashed.hexdigest()[:16]


async def not_found(request: Request, problem: Exception) -> Response:
    """For who opens an address in a browser, a page; for programs, a sentence."""
    status, detail = (problem.status_code, problem.detail) if isinstance(problem, HTTPError) else (404, "Not Found")
    headers = problem.headers if isinstance(problem, HTTPError) else None
    if status not in _LEFT_TO_AIRFLOW and (depth := _depth_of_page(request)) is not None:
        title, said = _TITLES.get(status, _CANNOT), detail
        if status == 404 and detail == "Not Found":
            said = "The address may be cut off or mistyped."
        return _problem_page(title, f"{said[:1].upper()}{said[1:]}", depth, status)
    return JSONResponse({"detail": detail}, status, headers)


def _depth_of_page(request: Request) -> int | None:
    """How many folders deep a page is that somebody opens in a browser; None for what programs ask for."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    in_browser = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    return max(0, path.count("/") - 1) if in_browser and not path.startswith(("/api/", "/files/")) else None


def _problem_page(title: str, said: str, depth: int, status: int) -> Response:
    answer = _filled("missing", depth, status)
    text = bytes(answer.body).decode().replace("TITLE", escape(title)).replace("SENTENCE", escape(said))
    return HTMLResponse(text, status)


def page(name: str, request: Request, status: int = 200) -> Response:
    """The page of this name, which has a script of the same name, within what all pages have.

    Its addresses are relative, since Airflow may be served below a path.
    """
    return _filled(name, request.scope["route"].path.count("/") - 1, status)


def _filled(name: str, depth: int, status: int) -> Response:
    text = (_PAGE / "page.html").read_text()
    for mark, value in {
        "FILES": "../" * depth + f"files/{_version()}",
        "SCRIPT": name,
        # Where the link that skips the navigation leads to.
        "CONTENT": (_PAGE / f"{name}.html").read_text().replace("<main>", '<main id="content" tabindex="-1">', 1),
    }.items():
        text = text.replace(mark, value)
    return HTMLResponse(text, status)
