"""Fetching the jars of `pom.xml` by Maven, into one folder for each profile.

The connectors of Spark have the version of the pyspark that is installed, and a folder for each version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from services.errors import ServiceError

POM = Path(__file__).parent / "pom.xml"
# The SHA-256 of each jar, in the form of `sha256sum`.
SUMS = POM.with_name("jars.sha256")

# A run of Maven is short: to compile its code well takes as long as all else that it does.
_SHORT_RUN = {"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

# What only some tests need, and fetch themselves.
ON_DEMAND = ("registry", "iceberg", "yarn")


def profiles() -> list[str]:
    return [name for name in re.findall(r"<profile>\s*<id>([^<]+)</id>", POM.read_text()) if name not in ON_DEMAND]


def spark_version() -> str:
    return metadata.version("pyspark")


def of_pyspark() -> Path:
    """The folder of the jars that pyspark brings, Hadoop's among them."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServiceError("pyspark is not installed")
    return Path(found.origin).parent / "jars"


def folder_of(profile: str) -> str:
    return f"spark-{spark_version()}" if profile == "spark" else profile


def fetch(folder: Path, *names: str) -> None:
    """Copy the jars of these profiles, or of all but those on demand, below `folder`, unless they are complete for this pom."""
    wanted = hashlib.sha256(POM.read_bytes()).hexdigest()
    for profile in names or profiles():
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
        # Options that somebody has given, as those of a proxy, stay.
        done = subprocess.run(command, env={**_SHORT_RUN, **os.environ}, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServiceError(f"Maven could not fetch the jars for {profile}:\n{(done.stdout + done.stderr)[-2000:]}")
        check(target)
        complete.write_text(wanted)


def check(folder: Path) -> None:
    """Raises ServiceError for a jar or archive in a folder that is not, byte for byte, the one that SUMS names."""
    known = known_sums()
    for jar in packages(folder):
        if (found := sum_of(jar)) != known.get(jar.name):
            expected = known.get(jar.name, f"nothing: {SUMS.name} does not name it")
            raise ServiceError(
                f"{jar.name} has the SHA-256 {found}, and expected was {expected}. Nothing was started. If pom.xml has "
                f"changed, look at the new jars, then run python -m services.jars"
            )


def packages(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.jar"), *folder.glob("*.tar.gz")])


def known_sums() -> dict[str, str]:
    """The SHA-256 of each jar, by its name."""
    return {name: digest for digest, name in (line.split("  ", 1) for line in SUMS.read_text().splitlines())}


def sum_of(jar: Path) -> str:
    with jar.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main(folder: Path) -> None:
    """Write SUMS anew, of the jars that are there: those of other versions of Spark stay."""
    known = known_sums() if SUMS.exists() else {}
    known |= {jar.name: sum_of(jar) for profile in folder.iterdir() for jar in packages(profile)}
    SUMS.write_text("".join(f"{known[name]}  {name}\n" for name in sorted(known)))


if __name__ == "__main__":
    main(Path(__file__).parent.parent / ".local" / "jars")
