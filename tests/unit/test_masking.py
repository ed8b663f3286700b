"""What may be said of Spark's errors: where, and of which kind, and nothing that a message says."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, NumberFormatException, PythonException

import tidemark.spark
from tests.support.thrown import STAGE_FAILED, in_the_jvm
from tidemark.spark.runtime.failures import translate
from tidemark.spark.runtime.masking import MaskedErrors, formatted, masked, masked_text

ROOM = Path(tidemark.spark.__file__).parent
CANARY = "iban DE44 5001 0517 5407 3249 31"
IN_PYTHON = (
    '\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File "/own/code.py", line 7, '
    f"in share\n    raise LookupError(number)\nLookupError: {CANARY}\n"
)
VALUE = f'[CAST_INVALID_INPUT] The value \'{CANARY}\' of the type "STRING" cannot be cast to "BIGINT"'
THROWN = [
    f"org.apache.spark.SparkNumberFormatException: {VALUE}",
    STAGE_FAILED.format(f"org.apache.spark.SparkNumberFormatException: {VALUE}"),
    STAGE_FAILED.format(f"java.lang.IllegalArgumentException: {CANARY}"),
    STAGE_FAILED.format(f"org.apache.spark.api.python.PythonException: {IN_PYTHON.strip()}"),
    f"org.apache.spark.SparkException: [FAILED_EXECUTE_UDF] of '{CANARY}'",
    f"com.fasterxml.jackson.core.JsonParseException: Unrecognized token '{CANARY}'",
    f"org.apache.avro.AvroRuntimeException: {CANARY}\n{CANARY}",
]


@pytest.mark.covers("Q41")
@pytest.mark.parametrize("text", THROWN)
def test_an_error_of_the_jvm_says_nothing_of_a_message(text: str) -> None:
    for problem in (in_the_jvm(text), in_the_jvm("org.apache.spark.SparkException: Job aborted.", text)):
        known = translate(problem)
        assert known is not None
        for said in (str(known), masked(problem), masked_text(text), formatted(problem)):
            assert not any(word in said for word in ("DE44", "5407"))
    assert any(name in str(known) for name in ("Exception", "CAST_INVALID_INPUT", "LookupError"))


@pytest.mark.covers("Q41")
def test_an_error_of_a_worker_says_its_class_and_its_place() -> None:
    problem = PythonException(IN_PYTHON)
    assert masked(problem) == "LookupError in share (/own/code.py:7)"
    assert str(translate(problem)) == "Spark failed: LookupError in share (/own/code.py:7)"
    assert masked(NumberFormatException(VALUE)) in ("NumberFormatException", "CAST_INVALID_INPUT")


@pytest.mark.parametrize(
    "text",
    [
        STAGE_FAILED.format("org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired for orders-0"),
        "org.apache.hadoop.security.AccessControlException: Permission denied: user=me, path=/lake",
        "java.net.ConnectException: Connection refused",
    ],
)
def test_an_error_of_a_server_keeps_its_words(text: str) -> None:
    assert masked_text(text) == text


def test_an_error_of_a_query_keeps_its_words() -> None:
    assert (
        masked(AnalysisException("[UNRESOLVED_COLUMN] a column `n`\n== SQL ==")) == "[UNRESOLVED_COLUMN] a column `n`"
    )


@pytest.mark.covers("Q41")
def test_a_log_masks_what_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(MaskedErrors())
    log, problem = logging.getLogger("masked"), in_the_jvm(THROWN[0])
    try:
        raise RuntimeError("ours") from problem
    except RuntimeError as ours:
        log.warning("it failed: %s", problem)
        log.exception("it failed")
        said = formatted(ours)
    assert "5407" not in caplog.text
    assert "5407" not in said
    assert "ours" in said
    assert "CAST_INVALID_INPUT" in caplog.text


@pytest.mark.slow
@given(st.sampled_from(THROWN), st.text(min_size=6))
def test_whatever_a_message_says_is_left_out(text: str, said: str) -> None:
    shown = masked_text(text.replace(CANARY, f"<<{said}>>"))
    assert "<<" not in shown
    assert isinstance(in_the_jvm(text), Py4JJavaError)


# Where a query is planned, or a schema is read, before there is any message.
BEFORE_ANY_MESSAGE = {"rows/constants.py", "rows/outcomes.py", "schemes/avro_record.py", "schemes/regex.py"}
MAY_BE_SPARKS = {"PySparkException", "Py4JError", "Py4JJavaError", "SPARKS", "Exception", "BaseException"}


def shows(handler: ast.ExceptHandler) -> bool:
    """Whether a handler makes a text of the error that it has caught."""
    for node in ast.walk(handler):
        told = node.value if isinstance(node, ast.FormattedValue) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str":
            told = node.args[0]
        if isinstance(told, ast.Name) and told.id == handler.name:
            return True
    return False


@pytest.mark.covers("Q41")
def test_no_text_is_made_of_an_error_that_may_be_sparks() -> None:
    """What is logged is masked by each job's log; what becomes part of an error has to be masked where it does."""
    found = set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                names = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)}
                if names & MAY_BE_SPARKS and shows(node):
                    found.add(str(path.relative_to(ROOM)))
    # Only to look for a mark of ours in it.
    assert found - BEFORE_ANY_MESSAGE <= {"jobs/window_work.py"}
