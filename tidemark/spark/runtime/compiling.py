"""Our own Java classes: source text that Spark's Janino compiles, sent to the executors as a jar."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from zipfile import ZipFile

from pyspark import SparkContext, SparkFiles
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemark.spark.columns import VALUE
from tidemark.spark.runtime.engine_run import attached


@lru_cache(maxsize=32)
def compiled(context: SparkContext, source: Path) -> Any:
    """The constructor of the class in a source file, in the driver. Compiled once per application, also for the executors.

    The class is `tidemark.NAME`, the file NAME.java, and it has one constructor.
    """
    text, name = source.read_text(), kept_as(source)
    engine = attached()
    if engine is not None:
        return engine.kept(name, lambda: _compile(context, source.stem, text, name))
    return _compile(context, source.stem, text, name)


def kept_as(source: Path) -> str:
    """The name under which an engine keeps the class in a source file, for all its runs."""
    return f"tidemark-{source.stem}-{sha256(source.read_bytes()).hexdigest()[:16]}"


def _compile(context: SparkContext, of: str, text: str, name: str) -> Any:
    jvm: Any = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(f"{of}.java", jvm.java.io.StringReader(text))
    # Spark removes this folder when the application ends.
    jar = Path(mkdtemp(dir=SparkFiles.getRootDirectory())) / f"{name}.jar"
    with ZipFile(jar, "w") as packed:
        for one, content in dict(compiler.getBytecodes()).items():
            packed.writestr(f"{one.replace('.', '/')}.class", content)
    jsc: Any = context._jsc
    jsc.addJar(str(jar))
    return compiler.getClassLoader().loadClass(f"tidemark.{of}").getConstructors()[0]


def new_instance(constructor: Any, *given: Any) -> Any:
    """An object of a compiled class. Numbers, texts, booleans, lists, and Java's objects are given as Java has them."""
    gateway: Any = SparkContext._gateway
    arguments = gateway.jvm.java.util.ArrayList()
    for one in given:
        arguments.add(one)
    return constructor.newInstance(arguments.toArray())


def value_by_java(spark: SparkSession, name: str, source: Path, kind: str, *given: Any) -> Column:
    """`by_java` of VALUE."""
    return by_java(spark, name, F.col(VALUE), source, kind, *given)


def by_java(spark: SparkSession, name: str, column: Column, source: Path, kind: str, *given: Any) -> Column:
    """A column by a Java function of ours, which is made and registered once in a session. `kind`: its type in DDL."""
    if not spark.catalog.functionExists(name):
        java: Any = spark
        jvm: Any = spark.sparkContext._jvm
        function = new_instance(compiled(spark.sparkContext, source), *given)
        java._jsparkSession.udf().register(name, function, jvm.org.apache.spark.sql.types.DataType.fromDDL(kind))
    return F.call_udf(name, column)
