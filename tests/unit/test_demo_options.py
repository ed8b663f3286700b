"""What `./run demo` does with words after it."""

from __future__ import annotations

import pytest

from demo import __main__ as demo
from services.errors import ServiceError


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Filled as soon as the demo begins, which ends there."""
    found: list[str] = []

    def fetch(_: object) -> None:
        found.append("jars")
        raise ServiceError("no further")

    monkeypatch.setattr("services.jars.fetch", fetch)
    return found


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("--lines", 2), ("more", 2)])
def test_a_word_that_it_does_not_know_starts_nothing(
    word: str, code: int, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["demo", word])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert (ended.value.code, started) == (code, [])


def test_without_a_word_it_starts(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["demo"])
    assert (demo.main(), started) == (1, ["jars"])
