"""Whose an error of Spark is, by its class and by what threw it. The places are those of Spark 4's own stack traces."""

from __future__ import annotations

import pytest

from tests.support.thrown import STAGE_FAILED, in_the_jvm
from tidemark.spark.runtime.failures import translate
from tidemark.spark.runtime.masking import masked
from tidemark.spark.runtime.own_errors import may_be_of_a_message

CATALYST, EXECUTION = "org.apache.spark.sql.catalyst.expressions.", "org.apache.spark.sql.execution."
STAGE = f"{CATALYST}GeneratedClass$GeneratedIteratorForCodegenStage1"
# What calls generated code, wherever it throws.
BELOW = (f"{EXECUTION}BufferedRowIterator", f"{EXECUTION}WholeStageCodegenExec", "org.apache.spark.rdd.RDD")
REFLECTED = ("java.lang.Class", "java.lang.reflect.Method", f"{CATALYST}CallMethodViaReflection", STAGE, *BELOW)
OF_EXPRESSIONS = [
    ("java.lang.reflect.InvocationTargetException", REFLECTED[1:]),
    ("java.lang.ClassNotFoundException: no.such.Thing", REFLECTED),
    ("java.nio.file.NoSuchFileException: /x", REFLECTED),
    ("java.net.UnknownHostException: no.such.host", ("com.sun.Xerces", f"{CATALYST}xml.UDFXPathUtil", STAGE, *BELOW)),
    ("java.util.concurrent.TimeoutException: x", ("java.lang.Math", STAGE, *BELOW)),
    (
        "org.apache.hadoop.fs.PathIOException: x",
        ("org.apache.spark.unsafe.types.UTF8String", "org.apache.spark.sql.catalyst.util.A", f"{CATALYST}B", *BELOW),
    ),
]
# Generated code asks those below it for rows.
READING = ("org.apache.kafka.clients.Consumer", "org.apache.spark.sql.kafka010.KafkaDataConsumer", STAGE, *BELOW)
STORING = (
    "java.io.FileOutputStream",
    "org.apache.spark.util.Utils",
    "org.apache.spark.storage.DiskBlockManager",
    STAGE,
)
OF_SERVERS = [
    ("java.util.concurrent.TimeoutException: Cannot fetch record for offset 7", READING),
    ("org.apache.kafka.common.errors.TimeoutException: x", READING),
    ("java.io.FileNotFoundException: /tmp/blockmgr-1/x (Too many open files)", STORING),
    ("java.nio.file.NoSuchFileException: /lake/7", ("sun.nio.fs.Unix", *BELOW)),
    ("java.nio.file.NoSuchFileException: /lake/7", ()),
    # What no expression is to blame for, though it stands in one.
    ("java.lang.OutOfMemoryError: Java heap space", REFLECTED),
    ("org.apache.spark.memory.SparkOutOfMemoryError: x", (f"{CATALYST}codegen.BufferHolder", *BELOW)),
    ("org.apache.spark.shuffle.FetchFailedException: x", (STAGE, *BELOW)),
    ("java.lang.InterruptedException", REFLECTED),
]


@pytest.mark.covers("C4", "E46", "E55")
@pytest.mark.parametrize(("text", "places"), OF_EXPRESSIONS)
def test_what_an_expression_throws_may_be_a_messages_own_whatever_its_class(text: str, places: tuple[str, ...]) -> None:
    in_the_driver, in_a_task = (
        in_the_jvm(text, places=places),
        in_the_jvm(STAGE_FAILED.format(text), text, places=places),
    )
    for problem in (in_the_driver, in_a_task):
        assert may_be_of_a_message(problem)
        # And its text may be the words of that message.
        for said in (masked(problem), str(translate(problem))):
            assert ": x" not in said
            assert "no.such" not in said


@pytest.mark.covers("C4", "E55")
@pytest.mark.parametrize(("text", "places"), OF_SERVERS)
def test_what_a_server_or_a_disk_throws_is_no_messages(text: str, places: tuple[str, ...]) -> None:
    assert not may_be_of_a_message(in_the_jvm(text, places=places))
    assert not may_be_of_a_message(in_the_jvm(STAGE_FAILED.format(text), text, places=places))


@pytest.mark.covers("C4", "E55")
def test_the_words_of_an_error_decide_nothing() -> None:
    forged = f"java.io.FileNotFoundException: /lake/7\n\tat {CATALYST}Cast.eval(Cast.scala:1)"
    assert not may_be_of_a_message(in_the_jvm(STAGE_FAILED.format(forged)))
