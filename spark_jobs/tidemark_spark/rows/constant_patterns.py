"""Regular expressions that stand in a stream file's SQL: a wrong one is wrong for every message, and so no message's fault.

Spark compiles them only when it computes rows. There it would look like an error of each message: a check that throws refuses
nothing, so it would never refuse anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame

# Spark's expressions with a regular expression, which is the second child of each.
_WITH_PATTERN = {
    "RLike",
    "RegExpCount",
    "RegExpExtract",
    "RegExpExtractAll",
    "RegExpInStr",
    "RegExpReplace",
    "RegExpSubStr",
    "StringSplit",
    "StringToMap",
}


def wrong_pattern(rows: DataFrame) -> str | None:
    """The first text in a plan that is no regular expression of Java's, and why; None if there is none."""
    frame: Any = rows
    jvm: Any = rows.sparkSession.sparkContext._jvm
    for text in dict.fromkeys(_patterns(json.loads(frame._jdf.queryExecution().analyzed().toJSON()))):
        try:
            jvm.java.util.regex.Pattern.compile(text)
        except IllegalArgumentException as problem:
            return f"{text!r} is no regular expression: {str(problem).splitlines()[0]}"
    return None


def _patterns(found: Any) -> Iterator[str]:
    """Of a plan as Spark writes it: lists of nodes within nodes, each node before those below it."""
    if isinstance(found, dict):
        for value in found.values():
            yield from _patterns(value)
    elif isinstance(found, list):
        for number, node in enumerate(found):
            yield from _patterns(node)
            if isinstance(node, dict) and node.get("class", "").rpartition(".")[2] in _WITH_PATTERN:
                second = found[_behind(found, number + 1)]
                if second["class"].endswith(".Literal") and second["value"] is not None:
                    yield second["value"]


def _behind(nodes: list[dict[str, Any]], number: int) -> int:
    """The number of the node behind one and all that is below it."""
    below = nodes[number]["num-children"]
    number += 1
    for _ in range(below):
        number = _behind(nodes, number)
    return number
