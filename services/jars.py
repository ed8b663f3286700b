"""Fetching the jars of `pom.xml` by Maven, into one folder for each profile.

The connectors of Spark have the version of the pyspark that is installed, and a folder for each version.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from services.errors import ServiceError

POM = Path(__file__).parent / "pom.xml"


def profiles() -> list[str]:
    return re.findall(r"<profile>\s*<id>([^<]+)</id>", POM.read_text())


def spark_version() -> str:
    return metadata.version("pyspark")


def folder_of(profile: str) -> str:
    return f"spark-{spark_version()}" if profile == "spark" else profile


def fetch(folder: Path) -> None:
    """Copy each profile's jars below `folder`, except profiles that are complete for this pom."""
    wanted = hashlib.sha256(POM.read_bytes()).hexdigest()
    for profile in profiles():
        target = folder / folder_of(profile)
        complete = target / ".complete"
        if complete.exists() and complete.read_text() == wanted:
            continue
        print(f"  jars for {profile} ...", flush=True)
        # From an empty folder: an older version of a jar must not stay beside its successor.
        shutil.rmtree(target, ignore_errors=True)
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(POM), "--activate-profiles", profile]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        command += [f"-Dspark.connector.version={spark_version()}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServiceError(f"Maven could not fetch the jars for {profile}:\n{(done.stdout + done.stderr)[-2000:]}")
        complete.write_text(wanted)
