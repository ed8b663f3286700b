"""The order of test files in a run with several processes: long files begin first, so that none delays the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

from services.site import REPOSITORY

# All of these run in one process: their Airflow takes a minute to start, and part of a processor while it runs.
TOGETHER = "tests/ui"


def unit_of(file: str) -> str:
    """What runs in one process with this test, or with this file of tests."""
    return TOGETHER if file.startswith(f"{TOGETHER}/") else file.partition("::")[0]


def usual_seconds(lines: Iterable[str]) -> Counter[str]:
    """How long each unit takes, by the lines of `.ci/durations.txt`. Files that take some seconds have no line."""
    found: Counter[str] = Counter()
    for took, module in map(str.split, lines):
        found[unit_of(f"{module.replace('.', '/')}.py")] += float(took)  # type: ignore[assignment]
    return found


class Turns(LoadFileScheduling):
    """Gives whole files to a process, as `--dist loadfile` does, the longest first. Then those with the most tests."""

    seconds = usual_seconds((REPOSITORY / ".ci" / "durations.txt").read_text().splitlines())

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(max(self.workqueue, key=self.seconds.__getitem__), last=False)
        super()._assign_work_unit(node)
