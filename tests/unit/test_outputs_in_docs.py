"""What the documents show as output is what the code says today."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from tests.support.covering import REPOSITORY
from tests.support.overviews import partition, shown_overview
from tidemark.cli.output import table
from tidemark.drafts.recognising import format_of
from tidemark.offsets.counting import number_of
from tidemark.views.overview import Status
from tidemark.views.states import reasons_of
from tidemark.views.status import Commit, judge
from tidemark.views.stream_line import line_of

_INIT = re.compile(
    r"^looked at (?P<all>\d+) messages of orders: (?P<what>.+)\n(?P<table>field .*\n(?:.+\n)*?)"
    r"(?P<rows>\d+) of them would be rows, (?P<dead>\d+) dead letters$",
    re.MULTILINE,
)


def _value(text: str) -> Any:
    """An example as `init` shows it: JSON, or else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_the_tutorial_shows_what_init_says_of_such_messages() -> None:
    page = (REPOSITORY / "docs" / "tutorial.md").read_text()
    found = _INIT.search(page)
    assert found is not None
    heading, *rows = found["table"].splitlines()
    starts = [heading.index(name) for name in ("field", "type", "values", "as in")]
    cells = [[row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)] for row in rows]
    number, dead = int(found["rows"]), int(found["dead"])
    message = {name: _value(example) for name, _, _, example in cells}
    format_ = format_of([json.dumps(message).encode()] * number + [b"no JSON"] * dead, None)
    said = io.StringIO()
    columns = [(column.name, column.type, column.values, column.example) for column in format_.columns]
    table(columns, ("field", "type", "values", "as in"), said)
    assert [line.rstrip() for line in said.getvalue().splitlines()] == [heading, *(row.rstrip() for row in rows)]
    assert (found["what"], number + dead) == (format_.what, int(found["all"]))


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_init_counts_in_these_words(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    assert f"994 of them would be rows, {number_of(6, 'dead letter')}\n" in text
    assert f"looked at {number_of(1000, 'message')} of orders: JSON objects\n" in text


def test_monitoring_shows_what_status_says_of_a_stream_that_has_stopped() -> None:
    minute = 60_000
    verdict = judge([Commit(0, 7, 5_000)], 5_120, 130 * minute, patience_ms=120 * minute)
    status = Status(verdict.word.value, verdict.rule.value, "orders", 3, f"orders/3: {verdict.sentence}")
    (reason,) = reasons_of(line_of(shown_overview(partition(lag=5_120), status=status)))
    assert f"```\n{reason}\n```" in (REPOSITORY / "docs" / "monitoring.md").read_text()
