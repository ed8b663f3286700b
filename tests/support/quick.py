"""How much a run tries: `./run test unit` and `./run mutate` the first examples and sequences alone, others all of them."""

from __future__ import annotations

import hypothesis

UNIT = "quick"
MUTANTS = "mutants"


def quick() -> bool:
    return hypothesis.settings.get_current_profile_name() in (UNIT, MUTANTS)
