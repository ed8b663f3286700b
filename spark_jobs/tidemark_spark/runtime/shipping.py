"""Shipping the driver's own code to Spark's workers: they run that code, not what is installed on their machines."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from pyspark import SparkContext, SparkFiles

import tidemark
import tidemark_spark

_PACKAGES = (tidemark, tidemark_spark)
_ARCHIVE = "tidemark-code.zip"


def ship_code(context: SparkContext) -> None:
    """Send the packages to the workers, once per application. A local master's workers have them already."""
    archive = Path(SparkFiles.getRootDirectory()) / _ARCHIVE
    if str(context.master).startswith("local") or archive.exists():
        return
    with ZipFile(archive, "w") as packed:
        for package in _PACKAGES:
            folder = Path(str(package.__file__)).parent
            for source in folder.rglob("*"):
                if source.suffix in (".py", ".thrift"):
                    packed.write(source, Path(folder.name) / source.relative_to(folder))
    context.addPyFile(str(archive))
