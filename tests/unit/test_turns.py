"""Which files of tests begin first."""

from __future__ import annotations

from tests.support.turns import TOGETHER, unit_of, usual_seconds


def test_the_tests_of_pages_are_one_unit() -> None:
    assert unit_of("tests/ui/test_forms.py::test_a_replay[records]") == TOGETHER
    assert unit_of("tests/unit/test_turns.py::test_it") == "tests/unit/test_turns.py"


def test_the_seconds_of_a_unit_are_those_of_its_files() -> None:
    lines = (" 120.5 tests.ui.test_forms", "  30.0 tests.ui.test_access", " 140.0 tests.integration.test_kills")
    assert usual_seconds(lines).most_common() == [(TOGETHER, 150.5), ("tests/integration/test_kills.py", 140.0)]
    assert usual_seconds(lines)["tests/unit/test_turns.py"] == 0
