"""Fewer calls of Java while a plan is made: PySpark looks up each function of Spark every time, with two calls for one.

A small window's plan has some thousand columns. Its Java calls took longer than its jobs.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from pyspark import SparkContext

_FUNCTIONS = "org.apache.spark.sql.functions"
# More than any stream has.
_NAMES = 2_000


def _call(function: Any, name: str) -> Any:
    return function(name)


class _JavaClass:
    """A class of Java whose functions are looked up once."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._java_class, name)
        if name == "col":
            # A column by its name is the same wherever it stands.
            member = lru_cache(maxsize=_NAMES)(partial(_call, member))
        # From now on, Python finds it before it asks here.
        setattr(self, name, member)
        return member


def look_up_once(context: SparkContext) -> None:
    """Have PySpark find Spark's SQL functions without asking Java again. They are those of this application."""
    view: Any = context._jvm
    if _FUNCTIONS not in vars(view):
        setattr(view, _FUNCTIONS, _JavaClass(getattr(view, _FUNCTIONS)))
