"""The forms of the manual DAGs, made of the fields of `tidemark.runs.requests`, which has the rules over several fields too.

Airflow checks each field against its JSON schema when a run is triggered. It adds keys that it does not know, and knows
no rules over several fields: both are checked by the first task of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from airflow.sdk import Param
from airflow.sdk.definitions._internal.types import NOTSET

from tidemark.runs.requests import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest

Request = type[BackfillRequest] | type[ReplayRequest] | type[EraseRequest] | type[AuditRequest]


def params(request: Request, approve_above: int | None = None, sinks: Sequence[str] = ()) -> dict[str, Param]:
    """The fields of a request as a form. The form offers the `sinks` of the stream."""
    found = {}
    for name, (default, description, schema) in _fields(request).items():
        if name == "reason" and approve_above is not None:
            description = f"{description} Above {approve_above} offsets, another person reads it and approves."
        # A list of an older form may name a sink that is gone: the first task refuses it.
        more: dict[str, Any] = {"examples": [*sinks]} if name == "sinks" else {}
        found[name] = Param(default, description, **schema, **more)
    return found


@cache
def _fields(request: Request) -> dict[str, tuple[Any, str, dict[str, Any]]]:
    """Of each field the default, the text, and Airflow's schema.

    A field that may stay empty has the type `null` too: Airflow's form sends null for it, and takes any other field that is
    empty for missing.
    """
    found = {}
    for name, declared in request.model_json_schema()["properties"].items():
        schema = {**declared, **next(iter(declared.get("anyOf", [{}])))}
        schema.pop("anyOf", None)
        # Without a default and without the type null, `reason` is the one field that a form asks for.
        default, description = schema.pop("default", NOTSET), schema.pop("description")
        choice = schema["type"] == "boolean" or "enum" in schema
        if not choice and name not in _required(request):
            default, schema["type"] = None, ["null", schema["type"]]
        found[name] = default, description, schema
    return found


def _required(request: Request) -> frozenset[str]:
    return frozenset(name for name, field in request.model_fields.items() if field.is_required())
