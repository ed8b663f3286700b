"""Bodies that people send: read apart from Airflow's own work, and refused before it costs anything.

Reading JSON holds Python's lock: no other thread goes on meanwhile, whichever thread reads. A text is read in no time, many
small values are not: 2 MB of empty lists take ten seconds. So a body may have one long text, and little beside its texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from tidemark.plugin.access import name_of
from tidemark.plugin.cached_queries import Answer, CachedQueries
from tidemark.plugin.serving import MAX_BYTES
from tidemark.plugin.stream_access import User

Model = TypeVar("Model", bound=BaseModel)
# A request of all fields, each with its name, has some hundreds.
MAX_BESIDE_TEXTS = 5_000
# One that has no end is one too: no byte is looked at twice.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def body(model: type[Model]) -> Callable[[Request, Any], Coroutine[Any, Any, Model]]:
    """A dependency: the body of a request. As FastAPI's own, and not read in the event loop.

    The app has its `CachedQueries` as `state.asking`.
    """

    async def read(request: Request, user: User) -> Model:
        asking: CachedQueries = request.app.state.asking
        raw = await request.body()
        answer = await asking.apart(lambda: read_body(model, raw), by=name_of(user))
        if isinstance(answer, Answer):
            raise HTTPException(answer.status, answer.detail)
        if isinstance(answer, RequestValidationError):
            raise answer
        return answer

    return read


def read_body(model: type[Model], raw: bytes) -> Model | RequestValidationError | Answer:
    """The value of a body, or what is wrong with it."""
    if len(raw) > MAX_BYTES or beside_texts(raw) > MAX_BESIDE_TEXTS:
        said = f"the request has more than {MAX_BESIDE_TEXTS} bytes besides its texts: records belong into one text, by lines"
        return Answer(413, detail=said)
    try:
        return model.model_validate_json(raw)
    except ValidationError as problem:
        errors = problem.errors()
    if errors[0]["type"] == "json_invalid":
        return Answer(422, detail=f"the body is no JSON: {errors[0]['ctx']['error']}")
    return RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors])


def beside_texts(raw: bytes) -> int:
    """How many bytes of JSON lie beside its texts, each with its quotes; counts no further than it has to."""
    size = at = 0
    for text in _TEXT.finditer(raw):
        # Each text counts too: it is one value.
        size += text.start() - at + 1
        at = text.end()
        if size > MAX_BESIDE_TEXTS:
            return size
    return size + len(raw) - at


def described(model: type[BaseModel]) -> dict[str, Any]:
    """The body for the description of the API."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
