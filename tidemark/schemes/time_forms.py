"""The form of times in a stream file, as Spark's datetime patterns say: checked here, where there is no Spark.

Spark would say what is wrong with a form only at the first message. The rules are Java's (DateTimeFormatterBuilder's
`appendPattern`), and Spark's for parsing (`DateTimeFormatterHelper`). A test holds them to Spark's own answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from tidemark.settings.parts import Items

# How often a letter may stand in a row.
_SOME, _TWO = range(1, 5), range(1, 3)
_TIMES: Mapping[str, range | tuple[int, ...]] = {
    "G": _SOME,
    # With more, Spark fails at a year that its older versions would have read.
    "y": range(1, 7),
    "g": range(1, 20),
    **dict.fromkeys("ML", _SOME),
    **dict.fromkeys("dHhKkms", _TWO),
    "D": range(1, 4),
    "S": range(1, 10),
    "a": (1,),
    "V": (2,),
    "v": (1, 4),
    "z": _SOME,
    "O": (1, 4),
    **dict.fromkeys("XxZ", range(1, 6)),
}
# Letters that Java knows, and Spark refuses when it reads a time.
_OF_WEEKS, _ONLY_WRITTEN = "YWwuec", "EFqQ"
_MEANT = {"M": "; minutes are m", "m": "; the month is M"}
_PART = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)


def _checked(form: str) -> str:
    why = problem(form)
    if why:
        raise ValueError(f"{form!r} is no form of times: {why}")
    return form


TimeForm = Annotated[str, AfterValidator(_checked)]


def _as_several(given: object) -> object:
    # Not a least length: a form that is refused would be told as missing, too.
    if given == []:
        raise ValueError("expected a form, or a list of at least one")
    return [given] if isinstance(given, str) else given


# One form, or several that are tried in turn.
TimeForms = Annotated[
    Items[TimeForm],
    BeforeValidator(_as_several, json_schema_input_type=TimeForm | Items[TimeForm]),
]


def problem(form: str) -> str:
    """The fault of a form, or an empty text."""
    optional = 0
    for match_ in _PART.finditer(form):
        part = match_.group()
        why = _letters(part) if match_.group(1) else ""
        optional += {"[": 1, "]": -1}.get(part, 0)
        if part == "'":
            why = "a quote is not closed"
        elif part in "{}#":
            why = f"{part!r} has no meaning yet; a quoted one stands for itself"
        elif optional < 0:
            why = "a ] closes nothing"
        if why:
            return why
    return _meaning(form) if form.strip() else "it is empty"


def _meaning(form: str) -> str:
    """Why the letters cannot mean what stands there; an empty text where they can.

    Java reads each of these forms, and gives a time that the text does not say: 00:30 for half past twelve, the month for
    the minute, the year 1970 for a day without one.
    """
    placed = _placed(form)
    letters = [letter for letter, _ in placed]
    if not set(letters) & set("yg"):
        return "it has no year, and each time would be in 1970: take the type string, and make a time in a transform"
    always = {letter for letter, optional in placed if not optional}
    twice = next((one for one in letters if letters.count(one) > 1 and one in always), None)
    if twice is not None:
        return f"{twice!r} stands there twice{_MEANT.get(twice, '')}"
    if "D" in letters and set(letters) & set("MLd"):
        return "'D' counts the days of a year, and stands beside a month or a day of one; the day of a month is d"
    return _wrong_hour(letters) or _out_of_order(letters)


def _placed(form: str) -> list[tuple[str, bool]]:
    """The letters in their order, and whether they are optional. Of alternatives like [.SSS][.SS], one."""
    placed: list[tuple[str, bool]] = []
    depth = 0
    for match in _PART.finditer(form):
        depth += {"[": 1, "]": -1}.get(match.group(), 0)
        if match[1] and (not placed or placed[-1][0] != match[1]):
            placed.append((match[1], depth > 0))
    return placed


def _wrong_hour(letters: list[str]) -> str:
    for hour, other in (("h", "H"), ("K", "k")):
        if hour in letters and "a" not in letters:
            return f"{hour!r} is an hour of half a day, and 'a' does not say of which half; an hour of 24 is {other}"
        if other in letters and "a" in letters:
            return f"{other!r} is an hour of 24, and stands beside 'a'; the hour of half a day is {hour}"
    hours = [*dict.fromkeys(one for one in letters if one in "HhKk")]
    if len(hours) > 1:
        return f"{hours[0]!r} and {hours[1]!r} are both hours"
    return "'a' says which half of a day, and no hour stands beside it" if "a" in letters and not hours else ""


def _out_of_order(letters: list[str]) -> str:
    for part, before, name, of in (
        ("m", "HhKka", "minutes", "hour"),
        ("s", "m", "seconds", "minutes"),
        ("S", "s", "parts of a second", "seconds"),
    ):
        at = letters.index(part) if part in letters else None
        if at is not None and (at == 0 or letters[at - 1] not in before):
            return f"{part!r} is {name}, and stands behind no {of}{_MEANT.get(part, '')}"
    return ""


def _letters(part: str) -> str:
    letter = part[0]
    if letter in _OF_WEEKS:
        hint = "; the year is y" if letter == "Y" else ""
        return f"{letter!r} counts by weeks, of which Spark makes no time{hint}"
    if letter in _ONLY_WRITTEN:
        return f"Spark does not read {letter!r}"
    if letter not in _TIMES:
        return f"{letter!r} is no letter of Spark's; a text that stands for itself is quoted, like 'T'"
    if len(part) not in _TIMES[letter]:
        return f"{letter!r} may not stand {len(part)} times in a row"
    return ""
