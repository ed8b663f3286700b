"""The processes of the Spark jobs that work on windows."""

from __future__ import annotations

from pathlib import Path

import psutil

from services import processes
from services.site import Site


def window_jobs(site: Site) -> list[psutil.Process]:
    """The processes of this site's window jobs: spark-submit's JVM, the Python driver, and the workers below them."""
    found: set[psutil.Process] = set()
    for process in processes.running(site):
        try:
            if any(Path(word).name == "process_window.py" for word in process.cmdline()):
                found |= {process, *process.children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
    return list(found)
