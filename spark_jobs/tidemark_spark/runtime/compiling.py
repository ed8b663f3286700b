"""Our own Java classes: source text that Spark's Janino compiles, sent to the executors as a jar."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zipfile import ZipFile

from pyspark import SparkContext, SparkFiles


@lru_cache(maxsize=8)
def compiled(context: SparkContext, source: Path) -> Any:
    """The constructor of the class in a source file, in the driver. Compiled once per application, also for the executors.

    The class is `tidemark.NAME`, the file NAME.java, and it has one constructor.
    """
    jvm: Any = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(source.name, jvm.java.io.StringReader(source.read_text()))
    # Spark removes this folder when the application ends.
    jar = Path(mkdtemp(dir=SparkFiles.getRootDirectory())) / f"tidemark-{source.stem}.jar"
    with ZipFile(jar, "w") as packed:
        for name, content in dict(compiler.getBytecodes()).items():
            packed.writestr(f"{name.replace('.', '/')}.class", content)
    jsc: Any = context._jsc
    jsc.addJar(str(jar))
    return compiler.getClassLoader().loadClass(f"tidemark.{source.stem}").getConstructors()[0]


def new_instance(constructor: Any, *given: Any) -> Any:
    """An object of a compiled class. Numbers, texts, booleans, and Java's objects are given as Java has them."""
    gateway: Any = SparkContext._gateway
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, len(given))
    for number, one in enumerate(given):
        arguments[number] = one
    return constructor.newInstance(arguments)
