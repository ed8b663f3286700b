"""When the ingest runs: a cron expression in a time zone, both checked as Airflow's timetable reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from croniter import croniter
from pydantic import AfterValidator, Field

from tidemark.settings.parts import Part

# The aliases that Airflow replaces by an expression. `@once` and `@continuous` are timetables of their own.
ALIASES = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_EXPECTED = (
    "expected five columns (minute, hour, day of the month, month, day of the week), like '0 * * * *', "
    f"or one of {', '.join(ALIASES)}"
)
# A fixed day, so that a file is valid on every day or on none.
_ANY_DAY = datetime(2025, 1, 1)


def _cron(expression: str) -> str:
    """Check the expression with croniter, as Airflow does. Its columns six and seven, seconds and years, are refused."""
    if expression in ALIASES:
        return expression
    columns = expression.split()
    if len(columns) != 5:
        raise ValueError(_EXPECTED)
    if any(item[:1] in ("r", "R") for column in columns for item in column.split(",")):
        raise ValueError("a random time (R) would be another one each time that Airflow reads the file")
    try:
        schedule = croniter(expression, _ANY_DAY)
    except ValueError as problem:
        raise ValueError(f"not a cron expression ({problem}); {_EXPECTED}") from None
    try:
        schedule.get_next()
    except ValueError:
        raise ValueError("this time never comes, as the 30th of February") from None
    return expression


def _timezone(name: str) -> str:
    # Airflow's library of time zones takes every spelling of UTC, and the exact spelling of all other zones.
    if name.lower() != "utc":
        try:
            ZoneInfo(name)
        except (LookupError, ValueError, OSError):
            raise ValueError("not a time zone; expected a name like UTC or Europe/Berlin") from None
    return name


Cron = Annotated[str, Field(max_length=200), AfterValidator(_cron)]


class Schedule(Part):
    """When the ingest runs."""

    cron: Annotated[
        Cron,
        Field(
            description="When the ingest runs, in cron's syntax. For a new file, the run that was due last begins as soon as "
            "Airflow has its DAG and the DAG is not paused."
        ),
    ] = "0 * * * *"
    timezone: Annotated[
        str, AfterValidator(_timezone), Field(description="The time zone of `cron`, such as `Europe/Berlin`.")
    ] = "UTC"

    def two_runs_ago(self, now: int) -> int:
        """When the run before the last one was due, by the schedule. Times are in milliseconds since 1970."""
        zone = UTC if self.timezone.lower() == "utc" else ZoneInfo(self.timezone)
        due = croniter(self.cron, datetime.fromtimestamp(now / 1000, zone))
        due.get_prev()
        return round(float(due.get_prev()) * 1000)
