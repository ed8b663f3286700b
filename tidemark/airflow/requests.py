"""The forms of the manual DAGs, made of the fields of `tidemark.runs.requests.forms`; rules over several fields are there too.

Airflow checks each field against its JSON schema when a run is triggered. It adds keys that it does not know, and knows
no rules over several fields: both are checked by the first task of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from airflow.sdk import Param

from tidemark.runs.requests.forms import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest

Request = type[BackfillRequest] | type[ReplayRequest] | type[EraseRequest] | type[AuditRequest]


def params(request: Request, approve_above: int | None = None, sinks: Sequence[str] = ()) -> dict[str, Param]:
    """The fields of a request as a form. The form offers the `sinks` of the stream."""
    fields = {name: dict(field) for name, field in _fields(request).items()}
    if approve_above is not None:
        fields["reason"]["description"] += f" Above {approve_above} offsets, another person reads it and approves."
    if "sinks" in fields:
        # A list of an older form may name a sink that is gone: the first task refuses it.
        fields["sinks"]["examples"] = [*sinks]
    return {name: Param(**field) for name, field in fields.items()}


@cache
def _fields(request: Request) -> dict[str, dict[str, Any]]:
    """Airflow's Param for each field: the default, the text, and the schema.

    A field that may stay empty has the type `null` too: Airflow's form sends null for it, and takes any other field that is
    empty for missing.
    """
    fields = {}
    for name, declared in request.model_json_schema()["properties"].items():
        field = {**declared, **next(iter(declared.get("anyOf", [{}])))}
        field.pop("anyOf", None)
        choice = field["type"] == "boolean" or "enum" in field
        # Without a default and without the type null, `reason` is the one field that a form asks for.
        if not choice and "default" in field:
            field |= {"default": None, "type": ["null", field["type"]]}
        fields[name] = field
    return fields
