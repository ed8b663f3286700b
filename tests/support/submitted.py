"""Jobs started as Airflow starts them: by spark-submit, in a process group of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from services import environment
from services.site import REPOSITORY, Site
from tidemark.errors import EXIT_DONE

KILLED_JOB = Path(__file__).parent.parent / "jobs" / "killed_job.py"
FINISHING_JOB = KILLED_JOB.with_name("finishing_job.py")
WINDOW_JOB = REPOSITORY / "spark_jobs" / "process_window.py"


class Submitted:
    """A running spark-submit. It ends with the test, whatever happens."""

    def __init__(
        self,
        site: Site,
        log: Path,
        script: Path,
        *arguments: str,
        master: str = "local[2]",
        conf: Mapping[str, str] | None = None,
        **variables: str,
    ) -> None:
        self.log = log
        settings = [word for key, value in (conf or {}).items() for word in ("--conf", f"{key}={value}")]
        submit = str(Path(sys.executable).parent / "spark-submit")
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [submit, "--master", master, *settings, str(script), *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment.spark(site), **environment.connections(site), **variables},
                start_new_session=True,
            )

    def wait(self, seconds: float = 300) -> int:
        """The exit code; negative for the signal that killed the job."""
        return self.process.wait(seconds)

    def succeeds(self, seconds: float = 300) -> str:
        """Wait for a successful end, and give the output. The job ends in any case."""
        try:
            assert self.wait(seconds) == EXIT_DONE, self.output[-3000:]
        finally:
            self.end()
        return self.output

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(60)
