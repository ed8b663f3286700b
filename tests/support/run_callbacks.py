"""Functions that a stream file names as callbacks of its runs. They note what they were given, and then fail."""

from __future__ import annotations

from typing import Any, NoReturn

# What was called, and for which DAG and run.
SEEN: list[tuple[str, str, str]] = []


class CallbackBug(Exception):
    pass


def succeeded(context: Any) -> NoReturn:
    SEEN.append(("success", context["dag"].dag_id, context["run_id"]))
    raise CallbackBug


def failed(context: Any) -> NoReturn:
    SEEN.append(("failure", context["dag"].dag_id, context["run_id"]))
    raise SystemExit(3)
