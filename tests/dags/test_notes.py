"""The note of a run: what came of it, in Airflow's own words for it."""

from __future__ import annotations

import pytest

from tidemark.plugin.notes import with_answer
from tidemark.views.summary import ANSWER, answer_of


@pytest.mark.parametrize(
    ("note", "answer", "reason", "expected"),
    [
        (None, "committed window ingest/7", "", "Answer: committed window ingest/7"),
        ("", "nothing\n new", "bug 17", "Answer: nothing new\n\nReason: bug 17"),
        ("Reason: bug 17", "refused", "bug 17", "Answer: refused\n\nReason: bug 17"),
        ("Answer: failed\n\nAnn looks into it", "erased", "bug 17", "Answer: erased\n\nAnn looks into it"),
        ("Ann looks into it", "a\0b", "", "Answer: ab\n\nAnn looks into it"),
    ],
)
def test_the_newest_answer_comes_first_and_peoples_words_stay(
    note: str | None, answer: str, reason: str, expected: str
) -> None:
    assert with_answer(note, answer, reason) == expected


def test_a_note_fits_into_airflows_database() -> None:
    found = with_answer(None, "y" * 5000, "z" * 500)
    assert (len(found), found.startswith("Answer: yyy"), "…" in found) == (1000, True, True)


@pytest.mark.parametrize("length", [1, 280, 281, 282, 283, 600, 950, 990, 991, 1000])
@pytest.mark.parametrize("before", ["", "Answer: failed\n\n"])
def test_what_people_have_written_is_never_cut(length: int, before: str) -> None:
    note = before + "x" * (length - len(before)) if length > len(before) else "x" * length
    people = note.removeprefix(before)
    found = with_answer(note, "y" * 5000, "bug 17")
    assert len(found) <= 1000
    assert found.endswith(people)
    assert len(found) > 1000 - 40 or found.startswith("Answer: yyy")


def test_no_character_of_an_answer_or_a_reason_stops_the_scheduler() -> None:
    """It writes the note: a database that refuses a text would stop it, again and again."""
    assert with_answer(None, "a\ud800\0b", "c\ud800\0d") == "Answer: a?b\n\nReason: c?d"


def test_a_run_that_committed_nothing_says_so() -> None:
    assert answer_of({}, []) == "nothing was committed: there was nothing to read"


def test_only_what_tidemark_has_kept_becomes_a_note() -> None:
    """A DAG of others may be called `sales__audit`, and its tasks may well keep an `answer`."""
    assert ANSWER == "tidemark_answer"
