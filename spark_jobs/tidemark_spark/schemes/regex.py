"""The scheme `regex`: text lines in one of several forms.

A pattern is applied once per message, by replacing the whole line with its groups behind separators and splitting at
them; asking for one group after the other would run the pattern once for each field.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.streams.schemes import Pattern, RegexScheme
from tidemark_spark.columns import REASON, VALUE, field
from tidemark_spark.schemes.fields import NOT_UTF8, first_problem, typed, utf8_text

# Two characters that no text line holds; a line that holds one of them all the same matches no pattern.
_MARK, _BETWEEN = "\u0001", "\u0002"

_TEXT, _LINE, _REPLACED, _GROUPS = "_text", "_line", "_replaced", "_groups"
NO_PATTERN = "matches no pattern"


def parse(messages: DataFrame, scheme: RegexScheme) -> DataFrame:
    """Messages with the fields of the first pattern that matches; see `schemes.parse`."""
    # _GROUPS: the mark of the pattern that matched, then the text of each field; null as long as none has.
    text = F.col(_TEXT)
    line = F.when(~F.contains(text, F.lit(_MARK)) & ~F.contains(text, F.lit(_BETWEEN)), text)
    nothing = F.lit(None).cast("array<string>")
    frame = messages.withColumn(_TEXT, utf8_text()).withColumns({_LINE: line, _GROUPS: nothing})
    for number, pattern in enumerate(scheme.patterns):
        replaced = _replaced(pattern, scheme, _marked(number))
        frame = frame.withColumn(_REPLACED, F.when(F.col(_GROUPS).isNull(), replaced))
        matched = F.startswith(F.col(_REPLACED), F.lit(_MARK))
        found = F.when(matched, F.split(F.col(_REPLACED), _BETWEEN, -1))
        frame = frame.withColumn(_GROUPS, F.coalesce(F.col(_GROUPS), found))
    found_texts = {f"_text_{name}": F.get(_GROUPS, F.lit(at)) for at, name in enumerate(scheme.named, start=1)}
    frame = frame.withColumns(found_texts)
    texts = {name: field(f"_text_{name}") for name in scheme.named}
    frame = frame.withColumns({name: _typed(scheme, name, texts[name]) for name in scheme.named})
    problem = first_problem(texts, {name: field(name) for name in scheme.named}, scheme.named)
    reason = (
        F.when(F.col(VALUE).isNull(), F.lit(None).cast("string"))
        .when(F.col(_TEXT).isNull(), F.lit(NOT_UTF8))
        .when(F.col(_GROUPS).isNull(), F.lit(NO_PATTERN))
        .otherwise(problem)
    )
    fields = [field(name) for name in scheme.named]
    return frame.withColumn(REASON, reason).select(*messages.columns, *fields, REASON)


def _marked(number: int) -> str:
    """What a line begins with that the pattern of this number has matched."""
    return f"{_MARK}{number}"


def _replaced(pattern: Pattern, scheme: RegexScheme, mark: str) -> Column:
    """The mark and the text of each field, separated, or _LINE itself when the pattern does not match all of it."""
    parts = _BETWEEN.join([mark, *(f"${pattern.groups.index(name) + 1}" for name in scheme.named)])
    return F.regexp_replace(_LINE, rf"\A(?:{pattern.regex})\z", parts)


def _typed(scheme: RegexScheme, name: str, text: Column) -> Column:
    kind = scheme.named[name]
    if kind != "timestamp":
        return typed(text, kind, None)
    # Each pattern has its own form of times.
    matched = F.get(F.col(_GROUPS), F.lit(0))
    chosen = F.lit(None)
    for number, pattern in enumerate(scheme.patterns):
        chosen = F.when(matched == _marked(number), typed(text, kind, pattern.timestamp)).otherwise(chosen)
    return chosen
