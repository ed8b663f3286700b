"""Asks Java, without Spark, whether regular expressions are in its syntax: what a run would refuse, before the deployment."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

# Pure Java: the compiler that Spark brings takes it, so that no JDK is needed.
_REGEXES = Path(__file__).with_name("Regexes.java")
_COMPILER = "org.codehaus.janino.SimpleCompiler"
# Java answers in a second, on a busy machine in some.
_SECONDS = 60


def refused_by_java(regexes: Sequence[str]) -> dict[int, str] | None:
    """Why Java cannot read some of these, by their number. None if Java cannot be asked here."""
    if not regexes:
        return {}
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    spark = find_spec("pyspark")
    if java is None or spark is None or spark.origin is None:
        return None
    jars = Path(spark.origin).parent / "jars"
    path = os.pathsep.join(str(one) for name in ("janino", "commons-compiler") for one in jars.glob(f"{name}-*.jar"))
    command = [
        java,
        "-XX:TieredStopAtLevel=1",
        "-Dfile.encoding=UTF-8",
        "-Dsun.jnu.encoding=UTF-8",
        "-cp",
        path,
        _COMPILER,
    ]
    try:
        asked = subprocess.run(
            [*command, str(_REGEXES), "tidemark.Regexes", *regexes],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    refused = (line.split(" ", 1) for line in asked.stdout.splitlines())
    return {int(number): why for number, why in refused}
