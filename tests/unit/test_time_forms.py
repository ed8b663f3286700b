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
}
RIGHT = [
    "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]",
    "dd/MMM/yyyy:HH:mm:ss Z",
    "yyyy 'o''clock' HH",
    "[[yyyy]-MM",
    "yyyyMMdd",
    "é y",
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
