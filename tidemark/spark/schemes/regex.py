"""The scheme `regex`: text lines in one of several forms.

Our Java class `Patterns.java` matches all patterns in one call. In a Spark expression, a pattern could run for ever, or
overflow the stack of its task, which ends the JVM.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.errors import WrongUse
from tidemark.schemes.kinds import RegexScheme
from tidemark.spark.columns import REASON, VALUE, field
from tidemark.spark.runtime.compiling import by_java
from tidemark.spark.schemes.fields import NOT_UTF8, first_problem, typed, utf8_text, without_nulls

_PATTERNS = Path(__file__).with_name("Patterns.java")

# How a reason ends that another try of the same task may not give: how much of the stack a match takes is not fixed.
MAY_DIFFER = "needs too much stack"

_TEXT, _MATCHED = "_text", "_matched"
# Indexes in the result of `Patterns`: why the line is invalid, the number of the pattern, and the first field.
_WHY, _NUMBER, _FIRST = range(3)


def parse(messages: DataFrame, scheme: RegexScheme) -> DataFrame:
    """Messages with the fields of the first pattern that matches; see `schemes.parse`."""
    too_long = F.octet_length(F.col(VALUE)) > scheme.max_line_bytes
    frame = messages.withColumn(_TEXT, F.when(~too_long, utf8_text()))
    frame = frame.withColumn(_MATCHED, _matched(frame.sparkSession, scheme, F.col(_TEXT)))
    found_texts = {
        f"_text_{name}": without_nulls(F.get(_MATCHED, F.lit(at)), scheme.nulls)
        for at, name in enumerate(scheme.named, start=_FIRST)
    }
    frame = frame.withColumns(found_texts)
    texts = {name: field(f"_text_{name}") for name in scheme.named}
    frame = frame.withColumns({name: _typed(scheme, name, texts[name]) for name in scheme.named})
    problem = first_problem(texts, {name: field(name) for name in scheme.named}, scheme.named)
    reason = (
        F.when(F.col(VALUE).isNull(), F.lit(None).cast("string"))
        .when(too_long, F.lit(f"longer than {scheme.max_line_bytes} bytes"))
        .when(F.col(_TEXT).isNull(), F.lit(NOT_UTF8))
        .otherwise(F.coalesce(F.get(_MATCHED, F.lit(_WHY)), problem))
    )
    fields = [field(name) for name in scheme.named]
    return frame.withColumn(REASON, reason).select(*messages.columns, *fields, REASON)


def _matched(spark: SparkSession, scheme: RegexScheme, text: Column) -> Column:
    """The result of `Patterns` for a text."""
    groups = [[scheme.groups_of(one).index(name) + 1 for name in scheme.named] for one in scheme.patterns]
    names, regexes = [pattern.name for pattern in scheme.patterns], [pattern.regex for pattern in scheme.patterns]
    said = sha256(repr((names, regexes, groups, scheme.max_match_ms)).encode()).hexdigest()[:16]
    patterns = [_java_pattern(spark, number, regex) for number, regex in enumerate(regexes)]
    given = (names, patterns, groups, scheme.max_match_ms)
    return by_java(spark, f"tidemark_patterns_{said}", text, _PATTERNS, "array<string>", *given)


def _java_pattern(spark: SparkSession, number: int, regex: str) -> Any:
    """Raises WrongUse for a regular expression that Python accepts and Java does not."""
    jvm: Any = spark.sparkContext._jvm
    try:
        return jvm.java.util.regex.Pattern.compile(regex)
    except IllegalArgumentException as problem:
        why = str(problem).splitlines()[0]
        raise WrongUse(f"scheme.patterns.{number}.regex: Java cannot read it: {why}") from problem


def _typed(scheme: RegexScheme, name: str, text: Column) -> Column:
    kind = scheme.named[name]
    if kind != "timestamp":
        return typed(text, kind, None)
    # Each pattern has its own form of times.
    matched = F.get(F.col(_MATCHED), F.lit(_NUMBER))
    chosen = F.lit(None)
    for number, pattern in enumerate(scheme.patterns):
        chosen = F.when(matched == F.lit(str(number)), typed(text, kind, pattern.timestamp)).otherwise(chosen)
    return chosen
