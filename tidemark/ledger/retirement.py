"""A ledger that is used no more: it was retired, and another one has taken its place.

Whoever writes for a ledger looks at this after its write, and before it removes something or says that it is done. What was
written before the retirement is in the final backup. What came later is known to no ledger in use.
"""

from __future__ import annotations

from tidemark.errors import WrongUse
from tidemark.ledger.records import Register


def retirement(register: Register) -> str | None:
    """Why no run uses this ledger any more, and the remedy; None for a ledger in use."""
    if register.retired is None:
        return None
    return (
        f"this ledger of {register.stream} was retired, and is used no more: {register.retired}. Name the ledger that "
        "replaces it in the stream file"
    )


def check_in_use(register: Register) -> None:
    """Raises WrongUse for the register of a ledger that was retired."""
    if (said := retirement(register)) is not None:
        raise WrongUse(said)
