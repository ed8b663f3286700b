"""What `./run demo` does with words after it."""

from __future__ import annotations

import pytest

from demo import __main__ as demo
from services.errors import ServiceError


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets the jars' profiles as soon as the demo begins, which ends there; `all` for those of all servers."""
    found: list[str] = []

    def fetch(_: object, *profiles: str) -> None:
        found.extend(profiles or ["all"])
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


@pytest.mark.parametrize(("words", "jars"), [([], ["kafka", "spark", "hadoop-aws"]), (["--all"], ["all"])])
def test_it_starts_with_the_jars_that_it_needs(
    words: list[str], jars: list[str], started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["demo", *words])
    assert (demo.main(), started) == (1, jars)
