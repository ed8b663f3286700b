"""Rows that are computed once: a second computation that may differ is never taken for the first.

Spark computes kept rows again when it has lost them, for example with an executor. If they may differ then, each row is
marked with the task that computed it. A row of a task that was not among the first ones ends the attempt before a sink gets
the row. See docs/adr/0019-rows-computed-once.md.
"""

from __future__ import annotations

import re
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

COMPUTED_AGAIN = (
    "Spark has lost rows of this window that it kept, for example with an executor, and has computed them again. They may "
    "differ now: the stream has a function of its own, or SQL whose result can differ from one time to the next. "
    "Nothing was committed; the next attempt computes all of them again"
)

# How Spark's plans name steps in which a row depends on others.
_MEETINGS = ("Exchange", "Limit", "Subquery")
# The names of expressions with another result at another time, for another user, or over other rows.
_MAY_DIFFER = re.compile(r"Current\w+|Now|LocalTimestamp|\w*Subquery|Exists|Window\w*|Aggregate\w*|Generate")
_CLASS = re.compile(r'"class":"[\w.$]*[.$](\w+)"')
_COMPUTED_BY = "_computed_by"


def repeatable(rows: DataFrame) -> bool:
    """Whether Spark takes the rows to be the same each time.

    Spark trusts what a Python function declares, and ignores the order in which rows leave a shuffle.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    return bool(plan.deterministic())


def depends_on_order(rows: DataFrame) -> bool:
    """Whether rows meet other rows, which may come in another order each time, or from a table that may change."""
    plan = str(cast("Any", rows._jdf.queryExecution().executedPlan()).toString())
    return any(step in plan for step in _MEETINGS)


def made_of_each_row(rows: DataFrame) -> bool:
    """Whether each row is made of one row alone, whenever that is: of no other rows, no clock, and no user's name."""
    plan: Any = rows._jdf.queryExecution().analyzed()
    return repeatable(rows) and not any(map(_MAY_DIFFER.fullmatch, _CLASS.findall(plan.toJSON())))


def marked(rows: DataFrame) -> DataFrame:
    """Rows, each marked with the task that computes it. The caller keeps them for `computed_once`."""
    # Spark names its threads after their tasks, with a number (TID) that no two tries of a task share.
    return rows.withColumn(_COMPUTED_BY, F.xxhash64(F.reflect(F.lit("java.lang.Thread"), F.lit("currentThread"))))


def computed_once(kept: DataFrame) -> DataFrame:
    """The `marked` rows, which are kept and computed now. A later use that gets other rows fails with COMPUTED_AGAIN."""
    known = [row[0] for row in kept.select(_COMPUTED_BY).distinct().collect()]
    same = F.when(F.col(_COMPUTED_BY).isin(known), F.lit(True)).otherwise(F.raise_error(F.lit(COMPUTED_AGAIN)))
    return kept.where(same).drop(_COMPUTED_BY)
