"""How much a run tries: `./run test full` all examples and sequences, others the first of them."""

from __future__ import annotations

import hypothesis

QUICK = "quick"
MUTANTS = "mutants"


def quick() -> bool:
    return hypothesis.settings.get_current_profile_name() in (QUICK, MUTANTS)
