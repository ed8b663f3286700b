"""Faults of the product that the simulation finds, and that are not mended yet: each with its number, and never hidden."""

from __future__ import annotations

import re

from tests.simulation.playing import Failure

# A pattern of what the simulation says, and the number with its words. Whoever mends a fault takes it off.
KNOWN: dict[str, str] = {}


def known(failure: Failure) -> str | None:
    """The number and the words of a known fault."""
    return next((said for pattern, said in KNOWN.items() if re.search(pattern, failure.text)), None)
