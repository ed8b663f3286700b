"""One way to say how many of something there are."""

from __future__ import annotations

import re

import pytest

from services.site import REPOSITORY
from tidemark.offsets.counting import number_of

# A number in a text, with what it counts.
_COUNTED = re.compile(
    r"\{([^{}]+)\}{1,2} (?:more )?(?:offset|window|message|row|range|lane|line|hole|dead letter|task|partition|record|finding"
    r"|stream file)s\b"
)
# Those that are never one: bounds, and what is said of several alone.
_NEVER_ONE = {
    "MAX_COLUMNS",
    "_FEWEST",
    "_grouped(MAX_MESSAGES)",
    "_grouped(number)",
    "approve_above",
    "held.count()",
    "len(by_partition)",
    "len(commits)",
    "len(jobs)",
    "len(records)",
    "offsets",
    "' and '.join(map(str, sorted(set(blocks))))",
    "said",
    "', '.join(map(str, offsets))",
}


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 offsets were"), (1, "1 offset was"), ("1", "1 offset was"), (21, "21 offsets were")]
)
def test_one_is_in_the_singular(count: int | str, said: str) -> None:
    assert number_of(count, "offset", "was", "were") == said
    assert number_of(count, "offset") == said.rpartition(" ")[0]


def test_no_text_counts_in_another_way() -> None:
    others = {
        (str(file.relative_to(REPOSITORY)), found)
        for file in (REPOSITORY / "tidemark").rglob("*")
        if file.suffix in (".py", ".js", ".jinja")
        for found in _COUNTED.findall(file.read_text())
        if found.strip() not in _NEVER_ONE
    }
    assert not others, "say these with `number_of`, or that they are never one"
