"""Functions that a stream file names as callbacks. The real Airflow calls them in a process of its own: they write a file."""

from __future__ import annotations

import json
from typing import Any

from services.site import REPOSITORY

SEEN = REPOSITORY / ".local" / "callbacks-seen.jsonl"


def succeeded(context: Any) -> None:
    _note("success", context)


def failed(context: Any) -> None:
    _note("failure", context)


def _note(what: str, context: Any) -> None:
    with SEEN.open("a") as file:
        file.write(json.dumps([what, context["dag"].dag_id, context["run_id"]]) + "\n")
