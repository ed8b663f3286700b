"""The keys of retries in a stream file: when a function is called again for a message on which it failed."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Any

from pydantic import Field, model_validator

from tidemark.errors import WrongUse
from tidemark.functions.retries import ExponentialBackoff, RetryPolicy
from tidemark.settings.parts import Name, Part

# The entry points of retry policies from other packages: a name, and the callable that makes the policy from `settings`.
ENTRY_POINTS = "tidemark.retry_policies"

# A day. For a longer wait, use a redrive and not a sleeping task.
_MAX_MS = 86_400_000


class Retry(Part):
    """Storm's four settings, and `max_seconds`; or a `policy` of one's own with its `settings`. And `timeout_ms`, of a call."""

    initial_delay_ms: Annotated[
        int, Field(ge=0, le=_MAX_MS, description="The delay after the first failure. Storm's default: 0.")
    ] = 100
    multiplier: Annotated[
        float,
        Field(
            ge=1,
            allow_inf_nan=False,
            description="The factor between two consecutive delays. Storm's default: 1.0.",
        ),
    ] = 2.0
    max_delay_ms: Annotated[int, Field(ge=0, le=_MAX_MS, description="The longest delay. Storm's default: 60000.")] = (
        60_000
    )
    limit: Annotated[
        int,
        Field(
            ge=-1,
            le=1_000_000,
            description="The number of retries after the first try. 0: none. -1: any number, and then `max_seconds` is "
            "required. Storm's default: -1.",
        ),
    ] = 3
    max_seconds: Annotated[float, Field(gt=0, le=_MAX_MS / 1000)] | None = Field(
        default=None, description="No retry happens later than this after a message's first failure."
    )
    timeout_ms: Annotated[
        int,
        Field(
            ge=100,
            le=_MAX_MS,
            description="The time-out of one call, at most a day. A call that takes longer fails, and is retried like any "
            "other. So a message on which the function never returns takes up to `limit` + 1 times as long. Storm's default: "
            "30000, of the "
            "topology.",
        ),
    ] = 30_000
    policy: Name | None = Field(
        default=None, description="The name of your own policy, which replaces all other keys except `timeout_ms`."
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="The settings of your own policy.")

    @model_validator(mode="after")
    def _ends(self) -> Retry:
        if self.policy is not None and self.model_fields_set - {"policy", "settings", "timeout_ms"}:
            raise ValueError("a policy of your own takes `settings` and `timeout_ms`, and none of the other keys")
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
