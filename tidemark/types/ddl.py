"""Types by their text, in Spark's DDL: `id BIGINT NOT NULL, lines ARRAY<STRUCT<sku: STRING>>`, or one type alone.

Tidemark reads the DDL without Spark, so that reading the stream file finds a wrong schema.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

# Spark's words for each type, by the word that Spark itself writes.
_WORDS: Mapping[str, tuple[str, ...]] = {
    "string": ("string",),
    "boolean": ("boolean",),
    "tinyint": ("tinyint", "byte"),
    "smallint": ("smallint", "short"),
    "int": ("int", "integer"),
    "bigint": ("bigint", "long"),
    "float": ("float", "real"),
    "double": ("double",),
    "decimal": ("decimal", "dec", "numeric"),
    "date": ("date",),
    "timestamp": ("timestamp", "timestamp_ltz"),
    "timestamp_ntz": ("timestamp_ntz",),
    "binary": ("binary",),
    "variant": ("variant",),
    "array": ("array",),
    "map": ("map",),
    "struct": ("struct",),
}
_TYPES = {word: name for name, words in _WORDS.items() for word in words}
# Where a field's type stands alone, `integer` has 64 bits, as it always had.
_ALONE = {**_TYPES, "integer": "bigint"}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[A-Za-z0-9_]+)|(?P<text>'[^'\\]*'|"[^"\\]*")|(?P<mark>[<>(),:]))"""
)
# Spark's plan of a schema grows faster than its depth: 20 levels keep it planning for 10 s, 49 for minutes.
DEEPEST = 10
MAX_PARTS = 1_000


@dataclass(frozen=True)
class Type:
    """A type by Spark's name for it. `of`: an array's elements or a map's values; `members`: a struct's fields."""

    name: str
    precision: int = 0
    scale: int = 0
    of: Type | None = None
    members: tuple[Member, ...] = ()

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "struct":
            return f"struct<{','.join(f'{quoted(one.name)}:{one.type}' for one in self.members)}>"
        if self.of is not None:
            return f"map<string,{self.of}>" if self.name == "map" else f"array<{self.of}>"
        return self.name


@dataclass(frozen=True)
class Member:
    """A column of a schema, or a field of a struct."""

    name: str
    type: Type
    required: bool = False


class TooManyParts(Exception):
    """Raised while the type of one field is drafted that has more parts than a person would read through."""


class TypePartCounter:
    """Counts the parts of a type while it is drafted: a few types that hold each other make millions of them."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def add(self, number: int) -> None:
        """Raises TooManyParts."""
        self._left -= number
        if self._left < 0:
            raise TooManyParts


def quoted(name: str) -> str:
    """A name as the DDL has it: between backticks if it holds more than letters, digits and _."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def type_alone(text: str) -> Type:
    """The type that a text names. Raises ValueError that says what was expected."""
    reader = _TypeParser(text, _ALONE)
    type_ = reader.type_of("")
    if (rest := reader.look()) is not None:
        raise ValueError(f"expected the end behind {type_}, found {rest!r}")
    return type_


def schema_of(ddl: str) -> tuple[Member, ...]:
    """The columns of a schema, in order. Raises ValueError that names the field and what was expected."""
    reader = _TypeParser(ddl)
    members = reader.members("")
    if (rest := reader.look()) is not None:
        raise ValueError(f"expected a comma or the end behind {members[-1].name}, found {rest!r}")
    return members


def _at(path: str) -> str:
    return f"{path}: " if path else ""


class _TypeParser:
    def __init__(self, ddl: str, words: Mapping[str, str] = _TYPES) -> None:
        self._words = words
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while ddl[at:].strip():
            token = _TOKEN.match(ddl, at)
            if token is None:
                raise ValueError(
                    f"cannot be read from {ddl[at:].strip()[:20]!r} on; a name with other characters than letters, digits "
                    "and _ stands between backticks"
                )
            self._tokens.append((str(token.lastgroup), str(token.group(token.lastgroup or 0))))
            at = token.end()
        self._at = 0
        # How many arrays, maps and structs are open.
        self._depth = 0

    def look(self) -> str | None:
        """The next token; None at the end."""
        return self._tokens[self._at][1] if self._at < len(self._tokens) else None

    def members(self, within: str) -> tuple[Member, ...]:
        members = [self._member(within)]
        while self._took(","):
            members.append(self._member(within))
        # Spark takes `id` and `ID` for the same column.
        twice = [name for name, number in Counter(one.name.lower() for one in members).items() if number > 1]
        if twice:
            raise ValueError(f"{within}{twice[0]} is named twice (in whatever case)")
        return tuple(members)

    def _member(self, within: str) -> Member:
        kind, token = self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")
        if kind not in ("word", "quoted") or token.isdigit():
            raise ValueError(f"expected the name of a field{f' of {within[:-1]}' if within else ''}, found {token!r}")
        self._at += 1
        name = token[1:-1].replace("``", "`") if kind == "quoted" else token
        path = within + name
        self._took(":")
        type_ = self.type_of(path)
        required = self._took("not")
        if required:
            self._expect("null", path)
        if self._took("comment"):
            if self._at == len(self._tokens) or self._tokens[self._at][0] != "text":
                raise ValueError(f"{path}: expected a text in quotes behind COMMENT, found {self._found()}")
            self._at += 1
        return Member(name, type_, required)

    def type_of(self, path: str) -> Type:
        word = self.look()
        name = self._words.get((word or "").lower())
        if name is None:
            near = get_close_matches((word or "").lower(), self._words, 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(f"{_at(path)}expected one of the types {', '.join(_WORDS)}; found {self._found()}{meant}")
        self._at += 1
        if name == "decimal":
            return self._decimal(path)
        if name not in ("array", "map", "struct"):
            return Type(name)
        if self._depth == DEEPEST:
            raise ValueError(
                f"{_at(path)}{name} is nested deeper than {DEEPEST} levels of array, map and struct, which Spark would plan "
                "for long. Give what lies deeper the type string or variant"
            )
        self._depth += 1
        type_ = self._nested(name, path)
        self._depth -= 1
        return type_

    def _nested(self, name: str, path: str) -> Type:
        if name == "array":
            self._expect("<", path)
            element = self.type_of(f"{path}[]")
            self._expect(">", path)
            return Type(name, of=element)
        if name == "map":
            self._expect("<", path)
            if self.type_of(f"{path}{{}}").name != "string":
                raise ValueError(f"{_at(path)}the keys of a JSON object are strings; expected map<string, ...>")
            self._expect(",", path)
            of = self.type_of(f"{path}{{}}")
            self._expect(">", path)
            return Type(name, of=of)
        self._expect("<", path)
        members = self.members(f"{path}." if path else "")
        self._expect(">", path)
        return Type(name, members=members)

    def _decimal(self, path: str) -> Type:
        if not self._took("("):
            if self._words is _ALONE:
                # Spark's ten digits without a fraction are rarely meant.
                raise ValueError(f"{_at(path)}expected the digits, as in decimal(12,2)")
            return Type("decimal", 10, 0)
        precision, scale = self._number(path), 0
        if self._took(","):
            scale = self._number(path)
        self._expect(")", path)
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(
                f"{_at(path)}decimal({precision},{scale}); expected at most 38 digits, and no more behind the point"
            )
        return Type("decimal", precision, scale)

    def _number(self, path: str) -> int:
        word = self.look() or ""
        if not word.isdecimal():
            raise ValueError(f"{_at(path)}expected a number of digits, found {self._found()}")
        self._at += 1
        return int(word)

    def _took(self, word: str) -> bool:
        if (self.look() or "").lower() != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str, path: str) -> None:
        if not self._took(word):
            raise ValueError(f"{_at(path)}expected {word.upper()!r}, found {self._found()}")

    def _found(self) -> str:
        word = self.look()
        return "the end" if word is None else repr(word)
