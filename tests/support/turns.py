"""The order of test files in a run with several processes: long files begin first, so that none delays the end."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

# All of these run in one process: their Airflow takes a minute to start, and part of a processor while it runs.
TOGETHER = "tests/ui"
# Files that take a minute or more in the default run, the longest first. After them, those with the most tests.
LONG = (
    TOGETHER,
    "tests/dags/test_dag_runs.py",
    "tests/integration/test_kills.py",
    "tests/integration/test_spark_cluster.py",
    "tests/integration/test_guarantees.py",
    "tests/integration/test_poison.py",
    "tests/integration/test_full_disks.py",
    "tests/integration/test_delta_sink.py",
    "tests/integration/test_aggregates_sink.py",
    "tests/integration/test_gateways.py",
    "tests/integration/test_records_from_tables.py",
    "tests/dags/test_spark_job.py",
)


class Turns(LoadFileScheduling):
    """Gives whole files to a process, as `--dist loadfile` does, but in an order of its own."""

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER if nodeid.startswith(f"{TOGETHER}/") else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if (first := next((one for one in LONG if one in self.workqueue), None)) is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
