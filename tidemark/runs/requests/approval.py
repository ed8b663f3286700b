"""Who asked for a replay or backfill, and whether a second person has to approve it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.errors import NotApproved


@dataclass(frozen=True)
class Requesters:
    """The users by their names: Airflow's, or on a command line the operating system's. None if not known, or not needed."""

    asked: str | None = None
    approved: str | None = None


NOBODY_KNOWN = Requesters()


def needs_approval(approve_above: int | None, offsets: int) -> bool:
    """Whether this many offsets need a second person. `approve_above` is that of the stream file; None if they never do."""
    return approve_above is not None and offsets > approve_above


def check_approved(approve_above: int | None, offsets: int, by: Requesters) -> None:
    """Raises NotApproved when a second person has to approve this many offsets, and none has."""
    if not needs_approval(approve_above, offsets):
        return
    if by.approved is None:
        raise NotApproved(
            f"{offsets} offsets are more than {approve_above} (`limits.approve_above`), so a second person has to approve "
            "them: trigger the DAG in Airflow, or say who has: tidemark replay (backfill) --approved-by NAME"
        )
    check_another(by)


def check_another(by: Requesters) -> None:
    """Raises NotApproved when the person who approved is the one who asked."""
    if by.approved == by.asked:
        raise NotApproved(f"{by.asked} has asked for it, and cannot approve it: another person has to")
