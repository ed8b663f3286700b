"""Expressions that are null where they throw, whatever they throw: an error of Java, or one of Spark's.

Spark's own functions have such forms (`try_to_timestamp`), which catch only the errors that Spark has thought of.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F


def null_if_it_throws(column: Column) -> Column:
    """A column that is null where computing it throws.

    Spark computes an expression that stands in several columns once, before any of them, and so outside of what catches
    errors. It never does so for what stands in a lambda function.
    """
    return F.get(F.transform(F.array(F.lit(0)), lambda _: null_if_it_alone_throws(column)), F.lit(0))


def null_if_it_alone_throws(column: Column) -> Column:
    """As `null_if_it_throws`, and faster. It still throws where a part of it also stands elsewhere, and throws."""
    jvm: Any = SparkContext._jvm
    catalyst, columns = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.classic.ExpressionUtils
    java: Any = column._jc
    return Column(columns.column(catalyst.TryEval(columns.expression(java))))
