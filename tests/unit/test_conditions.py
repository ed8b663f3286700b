"""Conditions of checks: what looks at other messages is refused where the stream file is read."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.support.rows import stream_of

OF_OTHERS = [
    "row_number() OVER (PARTITION BY id ORDER BY at) > 1",
    "count(*) over(partition by id) > 1",
    "lag(id) IGNORE NULLS OVER\n(ORDER BY at) = id",
    "id IN (SELECT 1)",
    "(select max(id) FROM range(3)) = id",
    "exists(SELECT 1)",
    "id = (/* all */ WITH a AS (SELECT 1) SELECT * FROM a)",
    "note = 'it''s' OR id IN (SELECT 2)",
    "id IN (FROM messages SELECT value)",
    "id = (FROM messages SELECT max(id))",
    "id = (from range(3) select max(id))",
    "id IN ( TABLE other )",
    "id IN (VALUES (1), (2))",
    "note IN (values 'a')",
]
OF_ONE = [
    "exists(tags, one -> one = 'x')",
    "note = 'x OVER (y) (SELECT 1)'",
    'note LIKE "%(SELECT%"',
    "`over` (`select`) = 1",
    "over = 1 AND selected(id)",
    "(from IS NULL) OR (table = 1) OR (values > 2) OR selected(from)",
    "(from = 'a' AND (table IS NULL))",
    "id = 1 -- not OVER (w)",
    "id /* (SELECT 1) */ = 1",
    r"note = 'a\' OVER ('",
    "aggregate(amounts, 0, (a, b) -> a + b) > 5",
]


@pytest.mark.parametrize("condition", OF_OTHERS)
def test_a_check_that_looks_at_other_messages_is_refused(condition: str) -> None:
    with pytest.raises(ValidationError, match="a check looks at one message alone") as refused:
        stream_of(checks=[{"invalid_when": condition, "reason": "no"}])
    (error,) = refused.value.errors()
    assert error["loc"] == ("checks", 0, "invalid_when")


@pytest.mark.parametrize("condition", OF_ONE)
def test_words_of_one_message_are_taken(condition: str) -> None:
    assert stream_of(checks=[{"invalid_when": condition, "reason": "no"}]).checks[0].invalid_when == condition
