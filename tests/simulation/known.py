"""Faults of the product that the simulation finds, and that are not mended yet: each with its number, and never hidden."""

from __future__ import annotations

import re

from tests.simulation.playing import Failure

KNOWN: dict[str, str] = {
    r"^a reader of totals saw ": "6: readers beside an erasure",
}


def known(failure: Failure) -> str | None:
    """The number and the words of a known fault."""
    return next((said for pattern, said in KNOWN.items() if re.search(pattern, failure.text)), None)
