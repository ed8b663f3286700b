"""Filters by what is in a message: a closed grammar of comparisons joined by `and`. Pure.

    key = "c17" and $.amount < 0 and header trace is not null

Left of a comparison stands `key`, `value`, `header NAME`, a path into JSON such as `$.items[0].price`, or the name of a
field where there are such: of a dead letter or of a row. Right of it a number, a text in quotes, true or false. Compared are
numbers with numbers, and all else as texts. What is absent fits nothing but `is null`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Literal, NamedTuple

from tidemark.errors import WrongUse

MAX_CHARACTERS, MAX_CONDITIONS = 2_000, 20


class Op(StrEnum):
    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"


Path = tuple[str | int, ...]


class FilterOperand(NamedTuple):
    """The left side of a comparison: `name` of a header or a field, `path` into the value as JSON."""

    kind: Literal["key", "value", "header", "path", "field"]
    name: str = ""
    path: Path = ()


class Condition(NamedTuple):
    """`other`: a number, or the bytes of a text; None for `is null`."""

    subject: FilterOperand
    op: Op
    other: Decimal | bytes | None = None


class Cell(NamedTuple):
    """A value to be compared: its text, and whether it is one, or an object or a list of JSON."""

    text: bytes
    plain: bool = True


Cells = Sequence[Cell | None]


@dataclass(frozen=True)
class Filter:
    """The conditions, of which each has to hold. Without any, everything fits."""

    conditions: tuple[Condition, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """The paths into JSON, each once."""
        return list(dict.fromkeys(one.subject.path for one in self.conditions if one.subject.kind == "path"))

    @property
    def cheap(self) -> Filter:
        """The conditions for which no JSON has to be read."""
        return Filter(tuple(one for one in self.conditions if one.subject.kind != "path"))

    def fits(self, cells: Callable[[FilterOperand], Cells]) -> bool:
        """Whether each condition holds of the values that `cells` gives of its subject: of one of them, if it has several."""
        return all(_holds(one, cells(one.subject)) for one in self.conditions)


# A number as JSON and people write it; what is longer is compared as a text.
_NUMBER = re.compile(rb"[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{1,6}+)?")
_MAX_NUMBER = 100


def _number(text: bytes) -> Decimal | None:
    return Decimal(text.decode()) if len(text) <= _MAX_NUMBER and _NUMBER.fullmatch(text) else None


def _holds(condition: Condition, cells: Cells) -> bool:
    there = [one for one in cells if one is not None]
    if condition.op in (Op.IS_NULL, Op.IS_NOT_NULL):
        return bool(there) == (condition.op == Op.IS_NOT_NULL)
    return any(_compared(condition.op, one, condition.other) for one in there)


def _compared(op: Op, cell: Cell, other: Decimal | bytes | None) -> bool:
    if op == Op.CONTAINS:
        return isinstance(other, bytes) and other in cell.text
    mine: Decimal | bytes | None = cell.text if isinstance(other, bytes) else _number(cell.text)
    if not cell.plain or mine is None:
        # Two that cannot be compared are not equal.
        return op == Op.UNEQUAL
    order = _order(mine, other)
    return {
        Op.EQUAL: order == 0,
        Op.UNEQUAL: order != 0,
        Op.LESS: order < 0,
        Op.AT_MOST: order <= 0,
        Op.MORE: order > 0,
        Op.AT_LEAST: order >= 0,
    }[op]


def _order(mine: Decimal | bytes, other: Decimal | bytes | None) -> int:
    if isinstance(mine, bytes) and isinstance(other, bytes):
        return (mine > other) - (mine < other)
    if isinstance(mine, Decimal) and isinstance(other, Decimal):
        return (mine > other) - (mine < other)
    raise AssertionError((mine, other))


# The words of a filter. No two begin alike, and no part of one is looked at twice.
_DOUBLE, _SINGLE = r'"(?:[^"\\]|\\.)*+"', r"'(?:[^'\\]|\\.)*+'"
_STEP = rf"\.[^\W\d][\w-]*+|\[\d{{1,9}}\]|\[(?:{_DOUBLE}|{_SINGLE})\]"
_TOKEN = re.compile(
    rf"(?P<space>\s++)|(?P<text>{_DOUBLE}|{_SINGLE})|(?P<number>[+-]?(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d{{1,6}}+)?)"
    rf"|(?P<path>\$(?:{_STEP})*+)|(?P<op><=|>=|!=|=|<|>)|(?P<word>[^\W\d][\w.-]*+)",
    re.DOTALL,
)
_STEPS = re.compile(_STEP, re.DOTALL)
_OPS = f"{', '.join(one.value for one in list(Op)[:6])}, contains, is null or is not null"


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(text: str, fields: Collection[str] = ()) -> Filter:
    """The filter that a text says; an empty one fits everything. `fields`: names that may be compared.

    Raises WrongUse with the character at which it is not understood.
    """
    if len(text) > MAX_CHARACTERS:
        raise WrongUse(f"filter: it has {len(text)} characters, and may have {MAX_CHARACTERS}")
    reading = _Reading(_tokens(text), fields)
    return Filter(reading.conditions())


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            what = "has no end" if text[at] in "\"'" else "is not known here"
            raise WrongUse(f"filter: character {at + 1}: {text[at : at + 20]!r} {what}; {_form(())}")
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match[0], at))
        at = match.end()
    return [*tokens, _Token("end", "", len(text))]


def _form(fields: Collection[str]) -> str:
    named = f"{', '.join(fields)}, " if fields else ""
    return (
        f"expected {named}key, value, header NAME or a path such as $.amount, compared by {_OPS}; several joined by and"
    )


@dataclass
class _Reading:
    tokens: list[_Token]
    fields: Collection[str]
    at: int = 0

    def conditions(self) -> tuple[Condition, ...]:
        if self._here.kind == "end":
            return ()
        conditions = [self._condition()]
        while self._here.kind != "end":
            self._word("and", "and, or the end")
            conditions.append(self._condition())
        if len(conditions) > MAX_CONDITIONS:
            raise WrongUse(f"filter: it has {len(conditions)} conditions, and may have {MAX_CONDITIONS}")
        return tuple(conditions)

    def _condition(self) -> Condition:
        subject, op = self._subject(), self._op()
        if op in (Op.IS_NULL, Op.IS_NOT_NULL):
            return Condition(subject, op)
        token = self._next()
        if token.kind == "number" and op != Op.CONTAINS:
            return Condition(subject, op, Decimal(token.text))
        if token.kind == "text":
            return Condition(subject, op, _unquoted(token).encode("utf-8", "surrogatepass"))
        if token.kind == "word" and token.text.lower() in ("true", "false") and op != Op.CONTAINS:
            return Condition(subject, op, token.text.lower().encode())
        wanted = "a text in quotes" if op == Op.CONTAINS else "a number, a text in quotes, true or false"
        raise self._wrong(token, f"{wanted} after {op}")

    def _subject(self) -> FilterOperand:
        token = self._next()
        word = token.text.lower()
        if token.kind == "path":
            return FilterOperand("path", path=_path(token))
        if token.kind == "word" and token.text in self.fields:
            return FilterOperand("field", token.text)
        if token.kind == "word" and word in ("key", "value"):
            return FilterOperand("key" if word == "key" else "value")
        if token.kind == "word" and word == "header":
            named = self._next()
            if named.kind not in ("word", "text"):
                raise self._wrong(named, "the name of a header")
            return FilterOperand("header", _unquoted(named) if named.kind == "text" else named.text)
        if token.kind == "text" and _unquoted(token) in self.fields:
            return FilterOperand("field", _unquoted(token))
        hint = f" (for JSON, write $.{token.text})" if token.kind == "word" else ""
        said = _form(self.fields)
        raise WrongUse(f"filter: character {token.at + 1}: {_found(token)} is not known here{hint}; {said}")

    def _op(self) -> Op:
        token = self._next()
        word = token.text.lower()
        if token.kind == "op":
            return Op(token.text)
        if token.kind == "word" and word == "contains":
            return Op.CONTAINS
        if token.kind == "word" and word == "is":
            negated = self._here.text.lower() == "not"
            self.at += negated
            self._word("null", "null")
            return Op.IS_NOT_NULL if negated else Op.IS_NULL
        raise self._wrong(token, _OPS)

    def _word(self, wanted: str, said: str) -> None:
        token = self._next()
        if token.kind != "word" or token.text.lower() != wanted:
            raise self._wrong(token, said)

    @property
    def _here(self) -> _Token:
        return self.tokens[self.at]

    def _next(self) -> _Token:
        token = self._here
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def _wrong(self, token: _Token, expected: str) -> WrongUse:
        return WrongUse(f"filter: character {token.at + 1}: expected {expected}, found {_found(token)}")


def _found(token: _Token) -> str:
    return "the end" if token.kind == "end" else repr(token.text[:40])


def _path(token: _Token) -> Path:
    def step(text: str) -> str | int:
        if text[0] == ".":
            return text[1:]
        return int(text[1:-1]) if text[1].isdigit() else _unquoted(_Token("text", text[1:-1], token.at))

    return tuple(step(one[0]) for one in _STEPS.finditer(token.text, 1))


def _unquoted(token: _Token) -> str:
    """A text in quotes, with the escapes of JSON."""
    inner = token.text[1:-1]
    if token.text[0] == "'":
        inner = re.sub(
            r'\\(.)|"', lambda one: "\\" + one[0] if one[0] == '"' else "'" if one[1] == "'" else one[0], inner
        )
    try:
        return str(json.loads(f'"{inner}"', strict=False))
    except ValueError:
        raise WrongUse(
            f"filter: character {token.at + 1}: {_found(token)} has a \\ that begins no escape of JSON"
        ) from None
