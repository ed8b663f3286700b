"""Counts the tests of a run, and fails when none has run or a promise is no longer shown.

    python3 .ci/summary.py JUNIT_XML FEATURES_JSON
    python3 .ci/summary.py --keep JUNIT_XML

`.ci/promises.txt` holds the rows of docs/features.md that `./run test` shows. It only grows. `.ci/durations.txt` holds the
seconds that each file of tests took in a run on a quiet machine, by which the longest begin first; `--keep` writes it from
the report of such a run.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

SHOWN_BEFORE = Path(__file__).with_name("promises.txt")
KEPT = Path(__file__).with_name("durations.txt")
# Files that take less are not in the table.
LEAST_SECONDS = 10.0
LISTED = 10


def main(junit: Path, features: Path) -> int:
    report = ET.parse(junit)
    suites = list(report.iter("testsuite"))
    run, failed, broken, skipped = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    passed = run - failed - broken - skipped
    print(f"tests run {run - skipped}, passed {passed}, failed {failed}, errors {broken}, skipped {skipped}")
    shown = {row["id"] for row in json.loads(features.read_text()) if row["covered"]}
    before = set(SHOWN_BEFORE.read_text().split())
    if new := shown - before:
        print(f"shown for the first time, add them to .ci/promises.txt: {' '.join(sorted(new))}")
    if lost := before - shown:
        print(f"promises that were shown before and are not now: {' '.join(sorted(lost))}", file=sys.stderr)
    longest = sorted(durations(report).items(), key=lambda one: -one[1])[:LISTED]
    print(f"longest: {', '.join(f'{name} {took:.0f} s' for name, took in longest)}")
    return int(run == skipped or bool(lost))


def durations(report: ET.ElementTree) -> dict[str, float]:
    """The seconds of each file's tests, by the name of its module.

    Without the seconds of a test that failed at first and was run again: it may have waited for something until it was late.
    """
    found: dict[str, float] = defaultdict(float)
    for case in report.iter("testcase"):
        lost = sum(float(one.get("value", 0)) for one in case.iterfind("properties/property[@name='failed_first']"))
        found[case.get("classname", "")] += float(case.get("time", 0)) - lost
    return dict(found)


def keep(junit: Path) -> int:
    """Write the table anew."""
    found = durations(ET.parse(junit))
    lines = [f"{took:6.1f} {name}\n" for name, took in sorted(found.items()) if took >= LEAST_SECONDS]
    KEPT.write_text("".join(lines))
    print(f"{KEPT}: {len(lines)} files, {sum(found.values()):.0f} s of tests")
    return 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(keep(Path(words[1])) if words[:1] == ["--keep"] else main(*map(Path, words)))
