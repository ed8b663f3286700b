"""What people mistype on a command line: the error names it as it was typed, and says what was expected and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemark.cli.app import app
from tidemark.errors import WrongUse

ORDERS = """
stream: orders
source: {topics: [orders]}
scheme: {type: json, fields: {id: integer}}
sinks: [{type: parquet, folder: orders}]
dead_letters: {type: parquet, folder: orders_dead}
ledger: {type: sql}
"""
YESTERDAY = "'yesterday' is not a time; expected one with its zone, like 2026-11-21T07:00:00Z"


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stream `orders`, on this machine alone, whose Kafka nobody may ask."""
    folder = tmp_path / "home" / "streams"
    folder.mkdir(parents=True)
    (folder / "orders.yaml").write_text(ORDERS)
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_STREAMS", str(folder))
    kafka = '{"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}'
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", kafka)
    assert CliRunner().invoke(app, ["init"]).exit_code == 0
    return folder


def said_of(*words: str) -> str:
    """The error of a command."""
    problem = CliRunner().invoke(app, words).exception
    assert isinstance(problem, WrongUse), problem
    return str(problem)


REPLAY = ("replay", "orders", "--yes", "--reason", "bug 17")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("replay", "orders", "--yes", "--window", "ingest"),
            "--reason: missing. Say why; the ledger stores the reason.",
        ),
        ((*REPLAY, "--since", "yesterday"), f"--since: {YESTERDAY}"),
        (
            (*REPLAY, "--until-time", "2026-11-21"),
            "--until-time: '2026-11-21' has no zone; expected a time like 2026-11-21Z or 2026-11-21+08:00",
        ),
        ((*REPLAY, "--lanes", "9", "--window", "ingest"), "--lanes: expected a number of at most 8 (found 9)"),
        (
            (*REPLAY, "--until", "2026-11-21T07:00Z"),
            "--until: '2026-11-21T07:00Z' is a time; expected topic/partition@offset. Times go into --until-time",
        ),
        (
            (*REPLAY, "--from", "2026-11-21"),
            "--from: '2026-11-21' is a time; expected topic/partition@offset. Times go into --since",
        ),
        ((*REPLAY, "--records", "@nowhere.csv"), "nowhere.csv: cannot be read: No such file or directory"),
        (("audit", "orders", "--share", "5"), "--share: expected a percentage such as 5% or 0.5%, found '5'"),
        (("offsets", "orders", "--at", "yesterday"), f"--at: {YESTERDAY}"),
        (("compact", "orders", "--before", "yesterday", "--yes"), f"--before: {YESTERDAY}"),
        (("complete", "orders", "--hour", "yesterday"), f"--hour: {YESTERDAY}"),
        (
            ("ledger", "skip", "orders", "--to", "end", "--reason", "bug", "--yes"),
            "--to end: expected latest, one time with its zone, or topic/partition@offset for each partition",
        ),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
@pytest.mark.covers("U31")
def test_an_error_names_the_option_as_it_was_typed(streams: Path, words: tuple[str, ...], said: str) -> None:
    assert said_of(*words) == said


@pytest.mark.covers("U31")
def test_a_stream_with_a_name_like_the_one_that_was_typed_is_named(streams: Path) -> None:
    there = f"no stream is called 'ordrs' (did you mean orders?) in {streams}; there are: orders. "
    assert said_of("status", "ordrs").startswith(there)
    for number in range(100):
        (streams / f"clicks_{number}.yaml").write_text(ORDERS.replace("orders", f"clicks_{number}"))
    said = said_of("status", "Orders")
    assert said.startswith(f"no stream is called 'Orders' (did you mean orders?) in {streams}; there are: clicks_0, ")
    assert "and 81 more. Name a stream file, or set TIDEMARK_STREAMS." in said
    assert len(said) < 500
