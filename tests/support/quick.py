"""How much a run tries: `./run test full` all examples and sequences, others the first of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hypothesis
import pytest

QUICK = "quick"
MUTANTS = "mutants"


def quick() -> bool:
    return hypothesis.settings.get_current_profile_name() in (QUICK, MUTANTS)


def some_of(names: Iterable[str]) -> list[Any]:
    """Every third of these as parameters of each run, and the others of `./run test full`."""
    return [pytest.param(name, marks=[pytest.mark.full] if number % 3 else []) for number, name in enumerate(names)]
