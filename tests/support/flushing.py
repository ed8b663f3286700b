"""Flushing and compacting tables of HBase, for which its gateway offers no call."""

from __future__ import annotations

import subprocess
from pathlib import Path

from services.errors import ServiceError
from services.servers import HBASE_OPENS
from services.site import Site


def flush_and_compact(site: Site, *tables: str) -> None:
    """Flush HBase tables and run a major compaction on them; returns when it is over."""
    source = Path(__file__).parent / "FlushAndCompact.java"
    class_path = f"{site.folder('hbase', 'conf')}:{site.class_path('hbase')}"
    command = ["java", *HBASE_OPENS, "-cp", class_path, str(source), *tables]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise ServiceError(f"flush and compaction of {', '.join(tables)} failed:\n{done.stderr[-2000:]}")
