"""Counts the tests of a run, and fails when none has run or a promise that was shown before no longer is.

    python3 .ci/summary.py JUNIT_XML FEATURES_JSON

`.ci/promises.txt` holds the rows of docs/features.md that `./run test` shows. It only grows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

SHOWN_BEFORE = Path(__file__).with_name("promises.txt")


def main(junit: Path, features: Path) -> int:
    suites = list(ET.parse(junit).iter("testsuite"))
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
    return int(run == skipped or bool(lost))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
