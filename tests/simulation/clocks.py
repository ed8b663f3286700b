"""The world's time, and the clocks of its machines, which may be wrong."""

from __future__ import annotations

from tests.simulation.actors import current, effect

BEGIN = 1_700_000_000_000
MACHINES = 3
STEP_MS, EFFECT_MS = 7_000, 3


class Clocks:
    """Stands in for the module `time` where the product waits, and for the clock of a `Ledger`."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.ahead = [0] * MACHINES

    def pass_by(self, milliseconds: int) -> None:
        self.now += milliseconds

    def jump(self, machine: int, milliseconds: int) -> None:
        """Set a machine's clock wrong by so much, instead of what it was."""
        self.ahead[machine % MACHINES] = milliseconds

    def local(self) -> int:
        """Milliseconds since 1970, as the machine of the current actor has them."""
        actor = current()
        return self.now + (self.ahead[actor.machine % MACHINES] if actor is not None else 0)

    # as the module `time`

    def monotonic(self) -> float:
        return self.now / 1000

    def time(self) -> float:
        return self.local() / 1000

    def sleep(self, seconds: float) -> None:
        effect()
        self.now += round(seconds * 1000)
