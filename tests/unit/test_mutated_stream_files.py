"""Whatever stands in a stream file: it is a stream, or an error says where and what is wrong, and never a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mutated import Mutations, by_hand
from tidemark.errors import InvalidStreamFile
from tidemark.streams.loading import load

# What is wrong with the whole file has no line.
MAX_SAID = 20_000


def looked_at(path: Path, raw: bytes) -> str | None:
    """What is said of a file; None for a stream."""
    path.write_bytes(raw)
    try:
        load(path)
    except InvalidStreamFile as problem:
        said = str(problem)
    else:
        return None
    for line in said.splitlines():
        assert re.match(rf"{re.escape(str(path))}(:[0-9]+)?: \S", line), said
    # Escape codes and marks of direction are shown, and do nothing.
    assert [one for one in said if not one.isprintable() and one != "\n"] == [], said
    assert len(said) < MAX_SAID
    return said


@pytest.mark.slow
@pytest.mark.parametrize("name", by_hand())
def test_a_hostile_file_is_refused(tmp_path: Path, name: str) -> None:
    assert looked_at(tmp_path / "orders.yaml", by_hand()[name]) is not None


# Python's own word on some regular expressions.
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
@pytest.mark.parametrize(
    ("seed", "number"),
    [(1, 150), *(pytest.param(seed, 2_000, marks=pytest.mark.full, id=f"full-{seed}") for seed in range(2, 8))],
)
def test_a_mutated_file_is_a_stream_or_says_what_is_wrong_with_it(tmp_path: Path, seed: int, number: int) -> None:
    path, mutations = tmp_path / "orders.yaml", Mutations(seed)
    found = []
    for _ in range(number):
        text = mutations.next()
        try:
            found.append(looked_at(path, text.encode("utf-8", "surrogatepass")))
        except BaseException:
            print(text)
            raise
    with_line = [one for one in found if one is not None and re.match(r"[^\n]*?:[0-9]+: ", one)]
    # Both happen, and every mistake has a line.
    assert None in found
    assert [one for one in found if one is not None and one not in with_line] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("description: a\0b", "the character U+0000 stands here, which no stream file may have"),
        ("description: a\x1b[31mb", "the character U+001B stands here, which no stream file may have"),
        (
            "description: 2026-13-01",
            "a value is not what its form or its tag says (as 2026-13-01 is no day): put it in quotes",
        ),
    ],
)
def test_what_yaml_does_not_allow_has_its_line(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "orders.yaml"
    assert looked_at(path, f"stream: orders\n{line}\n".encode()) == f"{path}:2: not YAML: {said}"
    assert looked_at(path, b"stream: orders\nsource: \xff\n") is not None
