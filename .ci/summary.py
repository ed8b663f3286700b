"""Counts the tests of a run, and fails when none has run, a promise is no longer shown, or a file takes much longer.

    python3 .ci/summary.py JUNIT_XML FEATURES_JSON
    python3 .ci/summary.py --keep JUNIT_XML

`.ci/promises.txt` holds the rows of docs/features.md that `./run test` shows. It only grows. `.ci/durations.txt` holds the
seconds that each file of tests took in a run on a quiet machine; `--keep` writes it from the report of such a run.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

SHOWN_BEFORE = Path(__file__).with_name("promises.txt")
KEPT = Path(__file__).with_name("durations.txt")
# A file may take a third longer than its line says, and this many seconds besides. One of them starts the servers or
# Airflow, and a short file is twice as long by chance.
SLACK_SECONDS = 90.0
SHORT_SECONDS = 20.0


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
    kept = {name: float(took) for took, name in map(str.split, KEPT.read_text().splitlines())} if KEPT.exists() else {}
    late = longer(kept, durations(report))
    for one in late:
        print(one, file=sys.stderr)
    return int(run == skipped or bool(lost) or bool(late))


def durations(report: ET.ElementTree) -> dict[str, float]:
    """The seconds of each file's tests, by the name of its module.

    Without the seconds of a test that failed at first and was run again: it may have waited for something until it was late.
    """
    found: dict[str, float] = defaultdict(float)
    for case in report.iter("testcase"):
        lost = sum(float(one.get("value", 0)) for one in case.iterfind("properties/property[@name='failed_first']"))
        found[case.get("classname", "")] += float(case.get("time", 0)) - lost
    return dict(found)


def longer(kept: Mapping[str, float], found: Mapping[str, float]) -> list[str]:
    """A sentence for each file that takes much longer than its line says.

    On a slow or busy machine all files do. So lines are taken times the middle of what the long files took for each of
    their seconds, unless that is less than one: what waits is no shorter on a fast machine.
    """
    long = [name for name in kept.keys() & found.keys() if kept[name] >= SHORT_SECONDS]
    pace = max(1.0, statistics.median(found[name] / kept[name] for name in long)) if long else 1.0
    return [
        f"{name} took {found[name]:.0f} s, and {kept[name]:.0f} s before; this machine takes {pace:.2f} s for one of then. "
        "Make it shorter, or mark what shows nothing more `full`; see CONTRIBUTING.md"
        for name in sorted(kept.keys() & found.keys())
        if found[name] > max(kept[name], SHORT_SECONDS) * pace * 4 / 3 + SLACK_SECONDS
    ]


def keep(junit: Path) -> int:
    """Write the table anew."""
    found = durations(ET.parse(junit))
    lines = [f"{took:6.1f} {name}\n" for name, took in sorted(found.items()) if took >= SHORT_SECONDS / 2]
    KEPT.write_text("".join(lines))
    print(f"{KEPT}: {len(lines)} files, {sum(found.values()):.0f} s of tests")
    return 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(keep(Path(words[1])) if words[:1] == ["--keep"] else main(*map(Path, words)))
