"""Forms of times in a stream file: a wrong one is refused where the file is read, in every scheme that has one."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.support.rows import stream_of

WRONG = {
    "yyyy-MM-ddTHH:mm:ss": "'T' is no letter of Spark's; a text that stands for itself is quoted",
    "YYYY-MM-dd HH:mm:ss": "'Y' counts by weeks, of which Spark makes no time; the year is y",
    "EEE yyyy": "Spark does not read 'E'",
    "yyyy-MM-dd HHH": "'H' may not stand 3 times in a row",
    "y" * 7: "'y' may not stand 7 times",
    "yyyy'T": "a quote is not closed",
    "yyyy]": "a ] closes nothing",
    "{yyyy}": "'{' has no meaning yet",
    "": "it is empty",
    # Java takes these, and gives other times than the text says.
    "yyyy-MM-dd hh:mm:ss": "'h' is an hour of half a day, and 'a' does not say of which half; an hour of 24 is H",
    "yyyy-MM-dd KK:mm": "'K' is an hour of half a day, and 'a' does not say of which half; an hour of 24 is k",
    "yyyy-MM-dd HH:mm a": "'H' is an hour of 24, and stands beside 'a'; the hour of half a day is h",
    "dd/mm/yyyy": "'m' is minutes, and stands behind no hour; the month is M",
    "yyyy-mm-dd HH:MM:ss": "'m' is minutes, and stands behind no hour; the month is M",
    "yyyy-MM-dd HH:MM:ss": "'M' stands there twice; minutes are m",
    "yyyy-dd HH:MM:ss": "'s' is seconds, and stands behind no minutes",
    "yyyy-MM-dd HH:mm:SS": "'S' is parts of a second, and stands behind no seconds",
    "yyyy-MM-DD": "'D' counts the days of a year, and stands beside a month or a day of one",
    "yyyy-MM-dd a": "'a' says which half of a day, and no hour stands beside it",
    "yyyy-MM-dd HH kk": "'H' and 'k' are both hours",
    "MMM dd HH:mm:ss": "it has no year, and each time would be in 1970",
}
RIGHT = [
    "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]",
    "dd/MMM/yyyy:HH:mm:ss Z",
    "yyyy 'o''clock' HH",
    "[[yyyy]-MM",
    "yyyyMMdd",
    "é y",
    "yyyy-MM-dd hh:mm:ss a",
    "h:mm a, d.M.yy",
    "yyyyDDDHHmmssSSS",
    "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][.SSS]XXX",
    "[yyyy-MM-dd][dd.MM.yyyy] HH:mm",
    "[yyyy-MM-dd'T']HH[:mm[:ss[.SSSSSS]]]",
]


def schemes(form: str) -> list[dict[str, object]]:
    pattern = {"name": "one", "regex": "(.*)", "fields": ["v"], "timestamp": form}
    return [
        {"type": "delimited", "fields": {"v": "timestamp"}, "timestamp": form},
        {"type": "json", "fields": {"v": "timestamp"}, "timestamp": form},
        {"type": "regex", "fields": {"v": "timestamp"}, "patterns": [pattern]},
    ]


@pytest.mark.covers("S7")
@pytest.mark.parametrize(("form", "why"), WRONG.items())
def test_a_wrong_form_is_refused_and_named(form: str, why: str) -> None:
    for scheme in schemes(form):
        with pytest.raises(ValidationError) as refused:
            stream_of(scheme=scheme)
        (error,) = (one for one in refused.value.errors() if "timestamp" in one["loc"])
        assert f"{form!r} is no form of times: {why}" in error["msg"]


@pytest.mark.covers("S7")
@pytest.mark.parametrize("form", RIGHT)
def test_a_right_form_is_taken(form: str) -> None:
    for scheme in schemes(form):
        assert stream_of(scheme=scheme).scheme.type == scheme["type"]
