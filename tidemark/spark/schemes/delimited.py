"""The scheme `delimited`: text with a separator between its fields.

The expressions are our own. Spark's `from_csv` fails the whole task at a message with more than 20,480 separators, and
accepts text whose quotes do not close.
"""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.schemes.kinds import DelimitedScheme
from tidemark.spark.columns import REASON, VALUE, field
from tidemark.spark.schemes.fields import NOT_UTF8, first_problem, typed, utf8_text, without_nulls

_TEXT, _SPLIT = "_text", "_split"
BADLY_QUOTED = "quotes do not enclose whole fields"


def parse(messages: DataFrame, scheme: DelimitedScheme) -> DataFrame:
    number = len(scheme.named)
    split = _unquoted(scheme.separator) if scheme.quote is None else _quoted(scheme.separator, scheme.quote)
    frame = messages.withColumn(_TEXT, utf8_text()).withColumn(_SPLIT, split)
    texts = {
        name: without_nulls(F.get(F.col(_SPLIT), F.lit(index)), scheme.nulls) for index, name in enumerate(scheme.named)
    }
    frame = frame.withColumns({name: typed(texts[name], kind, scheme.timestamp) for name, kind in scheme.named.items()})
    problem = first_problem(texts, {name: field(name) for name in scheme.named}, scheme.named)
    reason = (
        F.when(F.col(VALUE).isNull(), F.lit(None).cast("string"))
        .when(F.col(_TEXT).isNull(), F.lit(NOT_UTF8))
        .when(F.col(_SPLIT).isNull(), F.lit(BADLY_QUOTED))
        .when(F.size(_SPLIT) != number, F.lit(f"not {number} fields"))
        .otherwise(problem)
    )
    fields = [field(name) for name in scheme.named]
    return frame.withColumn(REASON, reason).select(*messages.columns, *fields, REASON)


def _unquoted(separator: str) -> Column:
    """The texts between the separators; an empty one is null."""
    return F.transform(F.split(F.col(_TEXT), re.escape(separator), -1), lambda word: F.when(word != "", word))


def _quoted(separator: str, quote: str) -> Column:
    """As `_unquoted`, where quotes may enclose a field; null for a text whose quotes do not enclose whole fields."""
    between, mark = re.escape(separator), re.escape(quote)
    # Possessive, so that Java's matcher loops instead of calling itself: a long field would exhaust its stack.
    inside = f"[^{mark}]*+(?:{mark}{mark}[^{mark}]*+)*+"
    one = f"{mark}{inside}{mark}|(?:(?!{between})[^{mark}])*+"
    # A separator before the first field too, so that no match is empty: after an empty match, Java skips a character.
    text = F.concat(F.lit(separator), F.col(_TEXT))
    parts = F.regexp_extract_all(text, F.lit(f"{between}({one})"), 1)
    return F.when(
        F.rlike(text, F.lit(rf"\A(?:{between}(?:{one}))++\z")), F.transform(parts, lambda part: _content(part, quote))
    )


def _content(part: Column, quote: str) -> Column:
    enclosed = F.substr(part, F.lit(2), F.length(part) - 2)
    unescaped = F.replace(enclosed, F.lit(2 * quote), F.lit(quote))
    return F.when(F.startswith(part, F.lit(quote)), unescaped).when(part != "", part)
