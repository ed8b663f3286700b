"""A `java` for the tests whose Spark starts in two thirds of the time: it maps Spark's classes from an archive.

The archive is made once for a Java and a Spark, in the background. Whatever starts before it is there goes without it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pyspark

from services import environment
from services.site import REPOSITORY, Site

JOB = REPOSITORY / "tests" / "jobs" / "usual_classes_job.py"

_PATIENCE_SECONDS = 300.0

OPTIONS = environment.QUICK_JAVA
# Java shares no classes of a program in whose class path is a folder with files. spark-submit begins it with the folder of
# Spark's settings, of which only those of the log are looked for there.
_JAVA = """#!/bin/sh
if [ "$1" = -cp ] && [ -f "{needed}" ] && [ -f "$SPARK_CONF_DIR/log4j2.properties" ]; then
  case "$2 $*" in
    "$SPARK_CONF_DIR/:"*" org.apache.spark.deploy.SparkSubmit "*)
      path=${{2#"$SPARK_CONF_DIR/:"}}
      shift 2
      exec "{java}" -cp "$path" "{sharing}" "-Dlog4j2.configurationFile=$SPARK_CONF_DIR/log4j2.properties" "$@" ;;
  esac
fi
exec "{java}" "$@"
"""


@contextmanager
def quick_java(site: Site) -> Iterator[None]:
    """Make each Java that is started from here on a quick one. At the end of the block, the archive is there.

    On a machine that is too busy to make it in time, all of them go without.
    """
    java = shutil.which("java")
    assert java is not None
    home = Path(java).resolve().parent.parent
    classes = sorted(path.name for path in (Path(pyspark.__file__).parent / "jars").iterdir())
    of_these = "\n".join([str(home), (home / "release").read_text(), *classes, _JAVA, JOB.read_text()])
    archive = REPOSITORY / ".local" / f"classes-{sha256(of_these.encode()).hexdigest()[:16]}.jsa"
    os.environ.update({"JAVA_TOOL_OPTIONS": OPTIONS, "JAVA_HOME": str(_home(site, home, archive))})
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Another process of the tests makes it.
            yield
            return
        if archive.exists():
            yield
            return
        new = archive.with_suffix(".new")
        making = _make(site, _home(site, home, new, f"-XX:ArchiveClassesAtExit={new}"))
        try:
            yield
        finally:
            try:
                making.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                # What it has written is a part. With it ends the driver below it.
                making.kill()
                making.wait()
                new.unlink(missing_ok=True)
            if new.exists():
                new.rename(archive)


def _home(site: Site, home: Path, archive: Path, sharing: str = "") -> Path:
    """A folder like that of Java, with our `java`."""
    ours = site.folder(f"java-{archive.name}")
    bin_ = site.folder(ours.name, "bin")
    for path in [*home.iterdir(), *(home / "bin").iterdir()]:
        link = ours / path.relative_to(home)
        if path.name not in ("bin", "java") and not link.exists():
            link.symlink_to(path)
    text = _JAVA.format(
        java=home / "bin" / "java",
        needed=JOB if sharing else archive,
        sharing=sharing or f"-XX:SharedArchiveFile={archive}",
    )
    (bin_ / "java").write_text(text)
    (bin_ / "java").chmod(0o755)
    return ours


def _make(site: Site, home: Path) -> subprocess.Popen[bytes]:
    submit = Path(sys.executable).parent / "spark-submit"
    return subprocess.Popen(
        [submit, "--master", "local[2]", JOB],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # What is kept has been checked, so that it may be taken by a Java that checks and by one that does not.
        env={
            **os.environ,
            **environment.spark(site),
            "JAVA_HOME": str(home),
            "JAVA_TOOL_OPTIONS": OPTIONS.replace("-BytecodeVerificationRemote", "+BytecodeVerificationRemote"),
        },
    )
