"""What a stream file may say of retries: when a message is tried again on which a function of one's own has failed."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import Field, model_validator

from tidemark.errors import WrongUse
from tidemark.retries import ExponentialBackoff, RetryPolicy
from tidemark.streams.parts import Name, Part

# Where a policy of one's own is registered: its name, and what makes it from `settings`.
ENTRY_POINTS = "tidemark.retry_policies"

# A day: what waits longer wants a redrive, not a task that sleeps.
_MOST_MS = 86_400_000


class Retry(Part):
    """Storm's four settings, and `max_seconds`; or a `policy` of one's own with its `settings`."""

    initial_delay_ms: Annotated[int, Field(ge=0, le=_MOST_MS)] = 100
    multiplier: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    max_delay_ms: Annotated[int, Field(ge=0, le=_MOST_MS)] = 60_000
    # Retries after the first try; -1: as many as there are.
    limit: Annotated[int, Field(ge=-1, le=1_000_000)] = 3
    # Of one message, from its first failure on.
    max_seconds: Annotated[float, Field(gt=0, le=_MOST_MS / 1000)] | None = None
    policy: Name | None = None
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ends(self) -> Retry:
        if self.policy is not None and self.model_fields_set - {"policy", "settings"}:
            raise ValueError("a policy of your own takes `settings`, and none of the other keys")
        if self.policy is None and self.settings:
            raise ValueError("`settings` are for a `policy` of your own")
        if self.limit == -1 and self.max_seconds is None:
            raise ValueError(
                "limit -1 needs `max_seconds`: a message that can never be processed would be tried for ever"
            )
        return self

    def chosen(self) -> RetryPolicy:
        """The policy that decides. Raises WrongUse when none of this name is installed, or its settings are wrong."""
        if self.policy is None:
            return ExponentialBackoff(
                self.initial_delay_ms, self.multiplier, self.max_delay_ms, self.limit, self.max_seconds
            )
        known = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
        if self.policy not in known:
            raise WrongUse(
                f"retry.policy {self.policy}: no package registers it under {ENTRY_POINTS}; known: "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        try:
            policy: RetryPolicy = known[self.policy].load()(**self.settings)
        except Exception as problem:
            raise WrongUse(f"retry.policy {self.policy}: {type(problem).__name__}: {problem}") from problem
        return policy
