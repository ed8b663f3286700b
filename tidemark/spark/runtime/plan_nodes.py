"""The nodes of Spark's plan of a query: its steps, and the expressions in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

_CLASS = re.compile(r"[.$]")


@dataclass(frozen=True)
class Node:
    """A step or an expression: the name of its class, what Spark writes of it, and what is below it, in order."""

    kind: str
    fields: dict[str, Any]
    below: tuple[Node, ...]


def nodes_of(rows: DataFrame) -> Iterator[Node]:
    """All nodes of the analyzed plan, in no order."""
    frame: Any = rows._jdf
    yield from _nodes(json.loads(frame.queryExecution().analyzed().toJSON()))


def _nodes(plan: Any) -> Iterator[Node]:
    """A plan as Spark writes it: lists of nodes within nodes, in each list a node before those below it.

    Nothing calls itself: an expression may be thousands of levels deep.
    """
    left = [plan]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            made: list[Node] = []
            for element in reversed(one):
                if not isinstance(element, dict) or "num-children" not in element:
                    left.append(element)
                    continue
                below = [made.pop() for _ in range(element["num-children"])]
                made.append(Node(_CLASS.split(str(element["class"]).rstrip("$"))[-1], element, tuple(below)))
                left += element.values()
                yield made[-1]
