"""What failed in Spark gets the name and exit code that it deserves. The texts are Spark 4's own, from real failures."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PythonException, SparkRuntimeException, UnsupportedOperationException

from tests.support.thrown import STAGE_FAILED, in_the_jvm
from tidemark import errors
from tidemark.errors import DiskFull, OffsetsOutOfRange, ProcessingFailed, TidemarkError, Unreachable
from tidemark.spark.rows.failing_messages import FailureCause, cause_of
from tidemark.spark.runtime.failures import translate
from tidemark.spark.runtime.single_computation import COMPUTED_AGAIN

LOST = (
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost because they are not "
    "available in Kafka any more;\n"
    "either the data was aged out by Kafka or the topic may have been deleted before all the data in the\n"
    "topic was processed.\n"
    "If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.\n"
    "Reason: Could not read records in offset [0, 100) for topic partition orders-2\n"
    "with consumer group spark-kafka-relation-9888ed96-d3f0-4651-a4d9-1af2d3cb07f6-executor."
)
DISK_FULL = "java.io.IOException: No space left on device"
WRITE_FAILED = (
    "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/cdn/7. "
    "SQLSTATE: 58030"
)
NOT_CLOSED = "org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource"
NOT_IN_TIME = STAGE_FAILED.format(
    "java.util.concurrent.TimeoutException: Cannot fetch record for offset 7 in 120000 milliseconds"
)


def in_a_worker(last_lines: str) -> PythonException:
    return PythonException(
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/tidemark/tidemark/spark/sinks/hbase.py", line 130, in __call__\n'
        "    written = self._write(batch)\n"
        "              ^^^^^^^^^^^^^^^^^^\n"
        f"{last_lines}\n\n"
    )


# As a worker gives it whose tracebacks are whole (`spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled` is
# false). A simplified one, as by default, leaves the cause out.
RAISED_FROM_ANOTHER = PythonException(
    "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/tidemark/tidemark/spark/sinks/acknowledging.py", line 70, in __call__\n'
    '    raise Unreachable("HBase did not\\nanswer")\n'
    "tidemark.errors.Unreachable: HBase did not\nanswer\n"
    "\n"
    "The above exception was the direct cause of the following exception:\n"
    "\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2044, in main\n'
    "    process()\n"
    '  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1669, in func\n'
    "    for result_batch, result_type in result_iter:\n"
    '  File "/opt/tidemark/tidemark/spark/sinks/acknowledging.py", line 72, in __call__\n'
    '    raise Fenced("generation 3 no longer holds\\nthe window") from problem\n'
    "tidemark.errors.Fenced: generation 3 no longer holds\nthe window\n"
)


def translated(error: BaseException) -> TidemarkError:
    found = translate(error)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.Fenced, 3),
        (errors.Unreachable, 5),
        (errors.OutcomeUnknown, 5),
        (errors.VerificationFailed, 6),
        (errors.LedgerContradiction, 7),
    ],
)
def test_our_own_errors_come_back_from_a_worker_as_they_were(kind: type[TidemarkError], code: int) -> None:
    found = translated(in_a_worker(f"tidemark.errors.{kind.__name__}: topic orders: row 2@7 holds\nanother digest"))
    assert type(found) is kind
    assert str(found) == "topic orders: row 2@7 holds\nanother digest"
    assert found.exit_code == code


def test_of_an_error_that_was_raised_from_another_the_last_one_counts() -> None:
    found = translated(RAISED_FROM_ANOTHER)
    assert (type(found), str(found)) == (errors.Fenced, "generation 3 no longer holds\nthe window")


@pytest.mark.parametrize("name", ["NoSuchError", "ClassVar", "EXIT_DONE"])
def test_a_name_that_is_no_error_of_ours_is_a_failure_of_the_work(name: str) -> None:
    assert type(translated(in_a_worker(f"tidemark.errors.{name}: something"))) is ProcessingFailed


NOT_TAKEN = "java.io.FileNotFoundException: /lake/cdn/7/part-0.parquet (Read-only file system)"


@pytest.mark.parametrize(
    "error",
    [
        in_the_jvm(STAGE_FAILED.format(NOT_TAKEN)),
        in_the_jvm(WRITE_FAILED, NOT_TAKEN),
        in_the_jvm(STAGE_FAILED.format(f"{WRITE_FAILED}\n\tat Writer.java:1\nCaused by: {NOT_TAKEN}\n\t... 15 more")),
        in_the_jvm(WRITE_FAILED, "java.nio.file.FileSystemException: /lake/cdn/7: Permission denied"),
    ],
    ids=["task", "write", "below", "rights"],
)
def test_a_disk_that_takes_no_writes_of_spark_is_not_tried_again(error: BaseException) -> None:
    found = translated(error)
    assert (type(found), found.exit_code) == (errors.NotAuthorized, 2)
    assert "Mount the disk for writing, or give this user the right" in str(found)


def test_what_a_message_says_of_a_disk_is_no_disk() -> None:
    said = "[CAST_INVALID_INPUT] The value 'java.io.IOException: Read-only file system' of the type STRING is no number"
    found = translated(in_the_jvm(STAGE_FAILED.format(f"org.apache.spark.SparkNumberFormatException: {said}")))
    assert type(found) is ProcessingFailed


class OfSql(SparkRuntimeException):
    def getSqlState(self) -> str:  # noqa: N802 (as in PySpark)
        return "P0001"


def test_rows_that_were_computed_again_are_no_fault_of_a_message() -> None:
    said = f"[USER_RAISED_EXCEPTION] {COMPUTED_AGAIN} SQLSTATE: P0001"
    found = translated(in_the_jvm(STAGE_FAILED.format(f"org.apache.spark.SparkRuntimeException: {said}")))
    assert (type(found), str(found), found.exit_code) == (errors.RowsRecomputed, COMPUTED_AGAIN, errors.EXIT_FAILED)
    assert cause_of(OfSql("[USER_RAISED_EXCEPTION] a message is wrong SQLSTATE: P0001")) is not None
    assert cause_of(OfSql(said)) is None


_KAFKA = "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors."


@pytest.mark.covers("Q1")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("TopicAuthorizationException: Not authorized to access topics: [orders]", errors.NotAuthorized),
        ("GroupAuthorizationException: Not authorized to access group: orders", errors.NotAuthorized),
        ("SaslAuthenticationException: Authentication failed: invalid credentials", errors.AuthenticationFailed),
        ("SslAuthenticationException: SSL handshake failed", errors.AuthenticationFailed),
    ],
)
def test_what_kafka_does_not_allow_is_no_failure_that_trying_again_would_mend(
    text: str, kind: type[TidemarkError]
) -> None:
    """From the driver, where it is the first cause, and from a task."""
    for error in (in_the_jvm(_KAFKA + text), in_the_jvm(STAGE_FAILED.format(_KAFKA + text), _KAFKA + text)):
        found = translated(error)
        assert (type(found), found.exit_code) == (kind, 2)
        assert text in str(found)


@pytest.mark.covers("E15")
def test_what_kafka_has_lost_is_a_changed_source() -> None:
    found = translated(in_the_jvm(LOST))
    assert (type(found), found.exit_code) == (OffsetsOutOfRange, 4)


@pytest.mark.covers("E15")
def test_what_kafka_has_lost_is_named() -> None:
    assert "[0, 100) for topic partition orders-2" in str(translated(in_the_jvm(LOST)))


@pytest.mark.covers("E15")
@pytest.mark.parametrize(
    "text",
    [
        # A broker that does not answer: at the plan, and while a task runs.
        "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: "
        "Timed out waiting for a node assignment. Call: listNodes",
        STAGE_FAILED.format(
            "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the position for "
            "partition orders-2 could be determined"
        ),
        # An address whose name nobody knows: in a task, and in the driver.
        STAGE_FAILED.format("org.apache.kafka.common.KafkaException: Failed to construct kafka consumer"),
        "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient",
        # A broker that answers, but is too slow.
        NOT_IN_TIME,
    ],
    ids=["plan", "read", "name in a task", "name in the driver", "slow"],
)
def test_a_time_out_is_no_loss(text: str) -> None:
    found = translated(in_the_jvm(text))
    assert (type(found), found.exit_code, found.retriable) == (Unreachable, 5, True)
    assert text.splitlines()[0] in str(found)


def test_an_error_of_python_says_its_class_and_its_place() -> None:
    """Its text may be the words of a message."""
    said = str(translated(in_a_worker("ZeroDivisionError: division by zero")))
    assert said == "Spark failed: ZeroDivisionError in __call__ (/opt/tidemark/tidemark/spark/sinks/hbase.py:130)"


def test_a_wait_of_sparks_own_is_not_kafkas() -> None:
    too_slow = "org.apache.spark.SparkException: Could not execute broadcast in 300 secs."
    found = translated(
        in_the_jvm(too_slow, "java.util.concurrent.TimeoutException: Futures timed out after [300 seconds]")
    )
    assert (type(found), found.exit_code) == (ProcessingFailed, 6)
    assert str(found).startswith(f"Spark failed: {too_slow} Its cause: java.util.concurrent.TimeoutException")


def test_what_a_write_has_lost_stands_in_its_causes() -> None:
    found = translated(in_the_jvm(WRITE_FAILED, "org.apache.spark.SparkException: Task failed", LOST))
    assert (type(found), found.exit_code) == (OffsetsOutOfRange, 4)
    assert "[0, 100) for topic partition orders-2" in str(found)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            in_the_jvm(STAGE_FAILED.format("java.io.IOException: Input/output error")),
            "java.io.IOException: Input/output error",
        ),
        (
            in_the_jvm(WRITE_FAILED, "java.io.IOException: Input/output error"),
            "to file:/lake/cdn/7. SQLSTATE: 58030 Its cause: java.io.IOException: Input/output error",
        ),
        (
            in_the_jvm(WRITE_FAILED, NOT_CLOSED, f"org.apache.hadoop.fs.FSError: {DISK_FULL}", DISK_FULL),
            "The disk of file:/lake/cdn/7 is full: No space left on device. Make room there",
        ),
        (
            in_the_jvm(STAGE_FAILED.format(DISK_FULL)),
            "A disk on host localhost is full, most likely that of Spark's scratch files (SPARK_LOCAL_DIRS",
        ),
        (
            in_a_worker("OSError: [Errno 28] No space left on device"),
            "A disk on one of Spark's hosts is full",
        ),
        (
            AnalysisException("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nope` cannot be resolved.\n'Project"),
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nope` cannot be resolved.",
        ),
        (Py4JNetworkError("Answer from Java side is empty"), "Answer from Java side is empty"),
        (Py4JError("An error occurred while calling o41.nothing. Trace:"), "calling o41.nothing"),
        (in_a_worker("ZeroDivisionError: division by zero"), "ZeroDivisionError in __call__ ("),
        # java.util.Collections.emptyList().add(...), and many others of Java's own, say nothing.
        (UnsupportedOperationException(""), "UnsupportedOperationException"),
    ],
    ids=[
        "stage",
        "write",
        "full lake",
        "full scratch",
        "full for Python",
        "analysis",
        "empty answer",
        "gateway",
        "worker",
        "no text",
    ],
)
def test_whatever_else_fails_in_spark_is_a_failure_of_the_work(error: Exception, said: str) -> None:
    found = translated(error)
    assert (type(found), found.exit_code) == (DiskFull if "is full" in said else ProcessingFailed, 6)
    assert said in str(found)
    # It is printed as the job's last line, which is all that Airflow shows.
    assert len(str(found).splitlines()) == 1


OVERFLOW = "java.lang.ArithmeticException: long overflow\n\tat java.base/java.lang.Math.multiplyExact(Math.java:1032)"
OF_ANOTHER_CLASS = (
    "java.lang.IllegalStateException: Failed to rethrow org.apache.kafka.common.errors.TimeoutException: x"
)
NO_MEMORY = "java.lang.OutOfMemoryError: Java heap space"
NO_ARRAY = "java.lang.OutOfMemoryError: Requested array size exceeds VM limit"
LOST_EXECUTOR = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
    "failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): ExecutorLostFailure (executor 1 exited caused by one "
    "of the running tasks) Reason: Command exited with code 137\nDriver stacktrace:"
)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (in_the_jvm(STAGE_FAILED.format(OVERFLOW)), FailureCause("ArithmeticException", OVERFLOW.splitlines()[0])),
        (
            in_the_jvm(WRITE_FAILED, OVERFLOW.splitlines()[0]),
            FailureCause("ArithmeticException", "java.lang.ArithmeticException: long overflow"),
        ),
        (
            in_the_jvm(STAGE_FAILED.format("java.lang.StackOverflowError")),
            FailureCause("StackOverflowError", "java.lang.StackOverflowError"),
        ),
        (in_the_jvm(STAGE_FAILED.format(OF_ANOTHER_CLASS)), FailureCause("IllegalStateException", OF_ANOTHER_CLASS)),
        (in_the_jvm(STAGE_FAILED.format(NO_MEMORY)), None),
        (in_the_jvm(LOST_EXECUTOR), None),
        (in_the_jvm(STAGE_FAILED.format(LOST)), None),
        (in_the_jvm(NOT_IN_TIME), None),
        (in_the_jvm(WRITE_FAILED, f"org.apache.hadoop.fs.FSError: {DISK_FULL}", DISK_FULL), None),
        (
            # A value may ask for a class that no other value asks for.
            in_the_jvm(STAGE_FAILED.format("java.lang.NoClassDefFoundError: Could not initialize class a.B")),
            FailureCause("NoClassDefFoundError", "java.lang.NoClassDefFoundError: Could not initialize class a.B"),
        ),
        (
            in_the_jvm(STAGE_FAILED.format("java.lang.AssertionError: assertion failed")),
            FailureCause("AssertionError", "java.lang.AssertionError: assertion failed"),
        ),
        (in_the_jvm(STAGE_FAILED.format(NO_ARRAY)), FailureCause("OutOfMemoryError", NO_ARRAY)),
        (in_the_jvm(WRITE_FAILED, NO_ARRAY), FailureCause("OutOfMemoryError", NO_ARRAY)),
        (
            in_the_jvm(STAGE_FAILED.format("java.lang.OutOfMemoryError")),
            FailureCause("OutOfMemoryError", "java.lang.OutOfMemoryError"),
        ),
        (in_the_jvm(NO_MEMORY), None),
        (in_the_jvm(STAGE_FAILED.format("java.lang.InternalError: a fault occurred")), None),
        (AnalysisException("[UNRESOLVED_COLUMN] nope"), None),
        (Py4JNetworkError("Answer from Java side is empty"), None),
        (ValueError("a bug"), None),
    ],
)
def test_which_errors_may_be_about_a_message_is_told_by_their_classes(
    error: Exception, cause: FailureCause | None
) -> None:
    assert cause_of(error) == cause


def test_what_lacks_memory_says_so() -> None:
    for error in (
        in_the_jvm(STAGE_FAILED.format(f"{NO_MEMORY}\n\tat org.apache.spark")),
        in_the_jvm(STAGE_FAILED.format("x"), NO_MEMORY),
    ):
        found = translated(error)
        assert str(found).startswith("A Spark task had too little memory: Java heap space. Give Spark more")
        assert (type(found), found.exit_code, len(str(found).splitlines())) == (ProcessingFailed, 6, 1)


def test_a_lost_executor_says_so() -> None:
    said = str(translated(in_the_jvm(LOST_EXECUTOR)))
    assert said.startswith(
        "Spark has lost an executor (executor 1 exited caused by one of the running tasks) Reason: Command exited with code "
        "137. Its log says why."
    )


def test_our_own_errors_of_the_driver_are_left_alone() -> None:
    error = errors.TopicGone("topic orders no longer exists")
    assert translate(error) is error


@pytest.mark.parametrize("error", [ValueError("a bug"), ConnectionRefusedError(), KeyboardInterrupt(), MemoryError()])
def test_an_error_that_is_not_of_spark_has_no_other_name(error: BaseException) -> None:
    assert translate(error) is None
