"""A transform that only selects from its messages, as columns of the rows themselves: no message meets another one.

Spark's plan of such a query has nothing but projections and filters. Their expressions are applied to the rows, one after the
other, only where the transform gets the row. So the rows need no shuffle that puts each row beside its message again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.offsets.tallies import Outcome
from tidemark.schemes.kinds import Fields
from tidemark.spark.columns import OUTCOME, TOMBSTONE, code
from tidemark.spark.rows.transform import given_to, goes_through, made_of
from tidemark.streams.transform import GIVEN_BACK, Transform
from tidemark.types.fields import spark_type

_BETWEEN = ("Project", "Filter", "SubqueryAlias")
# Parts of names of expressions that look at more than one row, or call Python.
_BEYOND_A_ROW = ("Subquery", "Exists", "Window", "Aggregate", "Generator", "Python")
_THROUGH = "_through"
# The nodes of a tree, each before those below it.
Nodes = list[dict[str, Any]]


def row_by_row(rows: DataFrame, given: Fields, transform: Transform) -> DataFrame | None:
    """Rows with the fields of a transform. None for a transform that is no such query; see `transform.transformed`.

    `rows` have the fields `given`, INDEX, TOMBSTONE and OUTCOME. Rows that the transform leaves out are skipped. Raises
    WrongUse as `transformed` does.
    """
    if transform.sql is None:
        return None
    steps = _steps(_plan(made_of(given_to(rows, given), transform)))
    if steps is None:
        return None
    frame = rows.withColumn(_THROUGH, goes_through())
    given_to_it = through = _last(frame)
    # What each new column of the query is made of, by its number.
    made: dict[int, Nodes] = {}
    for step in reversed(steps):
        filters = _name(step) == "Filter"
        expressions = [(one, _nodes(one)) for one in ([step.condition()] if filters else _each(step.projectList()))]
        if not all(_of_a_row(nodes) for _, nodes in expressions) or not all(
            one.deterministic() for one, _ in expressions
        ):
            return None
        if filters:
            passes = F.coalesce(_column(rows, _where(rows, through, expressions[0][0])), F.lit(False))
            frame = frame.select("*", passes.alias(_THROUGH))
            through = _last(frame)
            continue
        new = [(one, nodes) for one, nodes in expressions if _kind(nodes[0]) == "Alias"]
        made |= {_number(nodes[0]): nodes[1:] for _, nodes in new}
        guarded = [one.withNewChildren(_sequence(rows, _where(rows, through, one.child()))) for one, _ in new]
        frame = frame.select("*", *(_column(rows, one) for one in guarded))
    results, ours = _by_name(steps[0]), _by_name(_plan(rows))
    if any(_origin(_nodes(results[name]), made) != _number(_nodes(ours[name])[0]) for name in GIVEN_BACK):
        return None
    # The frame has several columns of one name: all are named by their numbers.
    before = {name: _column(rows, one) for name, one in ours.items()}
    passed = _column(rows, through)
    left_out = _column(rows, given_to_it) & ~passed
    outcome = F.when(left_out, code(Outcome.SKIPPED)).otherwise(before[OUTCOME]).alias(OUTCOME)
    values = []
    for name, kind in transform.declared().items():
        # A tombstone keeps what the transform gives under the same name and type.
        own = before[name] if given.get(name) == kind else F.lit(None).cast(spark_type(kind))
        values.append(F.when(passed, _column(rows, results[name])).when(before[TOMBSTONE], own).alias(name))
    others = [one for name, one in before.items() if name not in {OUTCOME, *given}]
    return frame.select(*others, outcome, *values)


def _steps(plan: Any) -> list[Any] | None:
    """The projections and filters of a query, from its result down to its messages; None if it has anything else."""
    steps = []
    while _name(plan) != "View":
        if _name(plan) not in _BETWEEN:
            return None
        if _name(plan) != "SubqueryAlias":
            steps.append(plan)
        plan = plan.child()
    return steps


def _nodes(expression: Any) -> Nodes:
    """An expression's tree, from its root on, as Spark writes it: one call of Java instead of some for each node."""
    nodes: Nodes = json.loads(expression.toJSON())
    return nodes


def _kind(node: dict[str, Any]) -> str:
    return str(node["class"].rpartition(".")[2])


def _number(node: dict[str, Any]) -> int:
    return int(node["exprId"]["id"])


def _of_a_row(nodes: Nodes) -> bool:
    """Whether an expression is made of one row."""
    return not any(word in _kind(node) for node in nodes for word in _BEYOND_A_ROW)


def _origin(nodes: Nodes, made: dict[int, Nodes]) -> int | None:
    """The number of the column that an expression passes on as it is; None if it makes something of it."""
    while True:
        if _kind(nodes[0]) == "AttributeReference":
            number = _number(nodes[0])
            if number not in made:
                return number
            nodes = made[number]
        elif _kind(nodes[0]) == "Cast" and nodes[0]["dataType"] == nodes[1].get("dataType"):
            nodes = nodes[1:]
        else:
            return None


def _by_name(plan: Any) -> dict[str, Any]:
    return {one.name(): one for one in _each(plan.output())}


def _where(rows: DataFrame, condition: Any, expression: Any) -> Any:
    """An expression that is computed only where a condition holds, and is null elsewhere."""
    expressions = _jvm(rows).org.apache.spark.sql.catalyst.expressions
    nothing = expressions.Literal.create(None, expression.dataType())
    return expressions.If(condition, expression, nothing)


def _plan(frame: DataFrame) -> Any:
    query: Any = frame._jdf
    return query.queryExecution().analyzed()


def _last(frame: DataFrame) -> Any:
    return _plan(frame).output().last()


def _column(rows: DataFrame, expression: Any) -> Column:
    return Column(_jvm(rows).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _sequence(rows: DataFrame, one: Any) -> Any:
    return _jvm(rows).scala.jdk.javaapi.CollectionConverters.asScala([one]).toList()


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(number) for number in range(sequence.size()))


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _jvm(rows: DataFrame) -> Any:
    jvm: Any = rows.sparkSession.sparkContext._jvm
    return jvm
