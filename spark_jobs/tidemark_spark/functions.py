"""Functions of the user's own, which a stream file names as `module:name`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tidemark.errors import WrongUse


def load_function(key: str, name: str) -> Callable[..., Any]:
    """The function that a stream file names under `key`. Raises WrongUse when Python finds none, or no function."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as problem:
        raise WrongUse(
            f"{key}: the module {module} cannot be imported ({type(problem).__name__}: {problem}). It has to be on the Python "
            "path of the Spark driver: beside the job's script, in PYTHONPATH, or installed"
        ) from problem
    if not callable(found):
        raise WrongUse(f"{key}: the module {module} has no function {attribute}")
    return found  # type: ignore[no-any-return]
