"""Rows that are computed once: a second computation that may differ is never taken for the first.

Spark computes kept rows again when it has lost them, for example with an executor. If they may differ then, each row is
marked with the task that computed it. A row of a task that was not among the first ones ends the attempt before a sink gets
the row. See docs/adr/0019-rows-computed-once.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.spark.runtime.plan_nodes import Node, nodes_of

COMPUTED_AGAIN = (
    "Spark has lost rows of this window that it kept, for example with an executor, and has computed them again. They may "
    "differ now: the stream has a function of its own, or SQL whose result can differ from one time to the next"
)

# How Spark's plans name steps in which a row depends on others.
_MEETINGS = ("Exchange", "CartesianProduct", "Limit", "Subquery")
# The names of expressions over other rows, or that make several rows of one.
_OF_OTHERS = r"\w*Subquery|Exists|Window\w*|Aggregate\w*|Generate"
_MEETS = re.compile(_OF_OTHERS)
# And of those with another result at another time, or for another user.
_MAY_DIFFER = re.compile(rf"Current\w+|Now|LocalTimestamp|{_OF_OTHERS}")
# Functions whose result has something drawn at random in it, which Spark nevertheless takes for the same each time.
_DRAWN = re.compile(r"\baes_encrypt\b", re.IGNORECASE)
# Expressions that may read a time out of a text within it.
_READERS = {"JsonToStructs", "CsvToStructs", "XmlToStructs", "VariantGet"}
_COMPUTED_BY = "_computed_by"


def repeatable(rows: DataFrame) -> bool:
    """Whether Spark takes the rows to be the same each time.

    Spark trusts what a Python function declares, and ignores the order in which rows leave a shuffle.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    return bool(plan.deterministic())


def draws(sql: Iterable[str]) -> bool:
    """Whether some SQL gives another result each time, unknown to Spark."""
    return any(map(_DRAWN.search, sql))


def depends_on_order(rows: DataFrame) -> bool:
    """Whether rows meet other rows, which may come in another order each time, or from a table that may change."""
    query: Any = rows._jdf.queryExecution()
    leaves = query.analyzed().collectLeaves()
    # A common table expression is defined once, and each use of it is a leaf.
    sources = [
        leaf
        for leaf in (leaves.apply(number) for number in range(leaves.size()))
        if leaf.getClass().getSimpleName() != "CTERelationRef"
    ]
    # The messages may stand in a union with themselves.
    if any(not sources[0].sameResult(source) for source in sources[1:]):
        return True
    plan = str(query.executedPlan().toString())
    return any(step in plan for step in _MEETINGS)


def meets_others(rows: DataFrame) -> bool:
    """Whether a plan has an expression over more than one row, or one that makes several rows of one."""
    return any(_MEETS.fullmatch(node.kind) for node in nodes_of(rows))


def may_read_a_time_of_today(rows: DataFrame) -> bool:
    """Whether a plan makes times of texts without a form. Spark takes `12:30` for a time of the current day."""
    return any(map(_makes_time_of_text, nodes_of(rows)))


def _makes_time_of_text(node: Node) -> bool:
    of = node.below[0].fields.get("dataType", "string") if node.below else "string"
    of_text = isinstance(of, str) and of.startswith(("string", "varchar", "char"))
    return (
        (node.kind == "Cast" and node.fields.get("dataType") == "timestamp" and of_text)
        # With a form, it has two children.
        or (node.kind == "ParseToTimestamp" and len(node.below) == 1 and of_text)
        or (node.kind in _READERS and '"timestamp"' in json.dumps(node.fields))
    )


def made_of_each_row(rows: DataFrame) -> bool:
    """Whether each row is made of one row alone, whenever that is: of no other rows, no clock, and no user's name."""
    return repeatable(rows) and not any(_MAY_DIFFER.fullmatch(node.kind) for node in nodes_of(rows))


def marked(rows: DataFrame) -> DataFrame:
    """Rows, each marked with the task that computes it. The caller keeps them for `computed_once`."""
    # Spark names its threads after their tasks, with a number (TID) that no two tries of a task share.
    return rows.withColumn(_COMPUTED_BY, F.xxhash64(F.reflect(F.lit("java.lang.Thread"), F.lit("currentThread"))))


def computed_once(kept: DataFrame) -> DataFrame:
    """The `marked` rows, which are kept and computed now. A later use that gets other rows fails with COMPUTED_AGAIN."""
    known = [row[0] for row in kept.select(_COMPUTED_BY).distinct().collect()]
    same = F.when(F.col(_COMPUTED_BY).isin(known), F.lit(True)).otherwise(F.raise_error(F.lit(COMPUTED_AGAIN)))
    return kept.where(same).drop(_COMPUTED_BY)
