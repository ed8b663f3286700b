"""What the documents show as output is what the code says today."""

from __future__ import annotations

import inspect
import io
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from tests.support.covering import REPOSITORY
from tests.support.overviews import partition, shown_overview
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.cli import submitting
from tidemark.cli.commands import complete, erase, replay
from tidemark.cli.output import table
from tidemark.cli.progress import PartitionProgress, ShownJob
from tidemark.cli.terminal import Display
from tidemark.commit.error_budget import BudgetUse, ErrorBudget, FrequentReason, too_many
from tidemark.drafts.recognising import format_of
from tidemark.ledger.records import LaneKind
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.requests import plan
from tidemark.runs.requests.answers import TO_READ
from tidemark.views.overview import Status
from tidemark.views.states import reasons_of
from tidemark.views.status import Commit, judge
from tidemark.views.stream_line import line_of

_INIT = re.compile(
    r"^looked at (?P<all>\d+) messages of orders: (?P<what>.+)\n(?P<table>field .*\n(?:.+\n)*?)"
    r"(?P<rows>\d+) of them would be rows, (?P<dead>\d+) dead letters$",
    re.MULTILINE,
)


def _value(text: str) -> Any:
    """An example as `init` shows it: JSON, or else a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_the_tutorial_shows_what_init_says_of_such_messages() -> None:
    page = (REPOSITORY / "docs" / "tutorial.md").read_text()
    found = _INIT.search(page)
    assert found is not None
    heading, *rows = found["table"].splitlines()
    starts = [heading.index(name) for name in ("field", "type", "values", "as in")]
    cells = [[row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)] for row in rows]
    number, dead = int(found["rows"]), int(found["dead"])
    message = {name: _value(example) for name, _, _, example in cells}
    format_ = format_of([json.dumps(message).encode()] * number + [b"no JSON"] * dead, None)
    said = io.StringIO()
    columns = [(column.name, column.type, column.values, column.example) for column in format_.columns]
    table(columns, ("field", "type", "values", "as in"), said)
    assert [line.rstrip() for line in said.getvalue().splitlines()] == [heading, *(row.rstrip() for row in rows)]
    assert (found["what"], number + dead) == (format_.what, int(found["all"]))


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_init_counts_in_these_words(page: str) -> None:
    text = (REPOSITORY / page).read_text()
    assert f"994 of them would be rows, {number_of(6, 'dead letter')}\n" in text
    assert f"looked at {number_of(1000, 'message')} of orders: JSON objects\n" in text


def test_monitoring_shows_what_status_says_of_a_stream_that_has_stopped() -> None:
    minute = 60_000
    verdict = judge([Commit(0, 7, 5_000)], 5_120, 130 * minute, patience_ms=120 * minute)
    status = Status(verdict.word.value, verdict.rule.value, "orders", 3, f"orders/3: {verdict.sentence}")
    (reason,) = reasons_of(line_of(shown_overview(partition(lag=5_120), status=status)))
    assert f"```\n{reason}\n```" in (REPOSITORY / "docs" / "monitoring.md").read_text()


PAGES = {path.name: path.read_text() for path in [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]}
_COUNTS = ("missing", "different", "extra", "twice", "debris")
_AUDITED = re.compile(
    r"^ *expected (?P<expected>\d+), stored (?P<stored>\d+), dead letters (?P<dead_letters>\d+), missing [^`]+?"
    r"(?=\n *\n|\n *```|\nhbase: )",
    re.MULTILINE,
)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_what_documents_show_of_an_audit_is_what_it_says() -> None:
    found = [(page, one) for page, text in PAGES.items() for one in _AUDITED.finditer(text)]
    assert {page for page, _ in found} >= {"README.md", "audit.md", "recipe-proof.md"}
    for page, one in found:
        numbers: dict[str, Any] = {name: int(number) for name, number in one.groupdict().items()}
        none: dict[str, Any] = dict.fromkeys(_COUNTS, 0)
        shown = _in_one_line(one[0])
        gone = re.search(r"(\d+) offsets are no longer in Kafka, (\d+) of them", shown)
        blocks = re.search(r"blocks that differ: (\d+)$", shown)
        place = PlaceReport(
            name="hbase",
            expected=numbers["stored"],
            found=numbers["stored"],
            **none,
            blocks=int(blocks[1]) if blocks else 0,
        )
        report = AuditReport(
            stream="orders",
            run="r",
            at=1,
            code_version="v",
            skipped=0,
            unproven=int(gone[1]) - int(gone[2]) if gone else 0,
            by_tallies=int(gone[2]) if gone else 0,
            places=(place,),
            coverage=(),
            ledger_problems=(),
            **numbers,
        )
        assert report.sentence() == shown, page


def test_what_documents_show_of_too_many_invalid_messages_is_the_error() -> None:
    (shown,) = re.findall(r"^tidemark: TooManyInvalid: (.+) x \.\.\.$", PAGES["dead-letters.md"], re.MULTILINE)
    example = Coordinate(TopicPartition("cdn-logs", 2), 81_204)
    reasons = [FrequentReason("matches no pattern", 310, example), FrequentReason("another", 2, example)]
    error = too_many("window 17 of cdn_logs/ingest", BudgetUse(312, 4_000), ErrorBudget(share=0.01), reasons)
    assert str(error).startswith(f"{shown} x ")


def test_the_question_of_an_erasure_is_that_of_the_command() -> None:
    opened: Any = SimpleNamespace(stream=SimpleNamespace(sinks=[1, 2, 3]))
    erased: Any = SimpleNamespace(offsets=RangeSet([OffsetRange(TopicPartition("orders", 0), 0, 7)]))
    assert f"```\n{erase._question(opened, erased)} [y/N]:\n```" in PAGES["command-line.md"]


@pytest.mark.parametrize(
    ("page", "columns", "row"),
    [
        (
            "README.md",
            ("window", "generation", "read", "stored", "dead letters"),
            (1, 1795741771123, 350000, 348151, 1849),
        ),
        ("tutorial.md", ("window", "generation", "read", "stored", "dead letters"), (1, 1795762314889, 5000, 4972, 28)),
    ],
)
def test_a_table_of_windows_is_drawn_so(page: str, columns: tuple[str, ...], row: tuple[object, ...]) -> None:
    assert f"columns={json.dumps(columns).replace('[', '(').replace(']', ')')}" in inspect.getsource(submitting)
    said = io.StringIO()
    table([row], columns, said)
    assert [line.split() for line in said.getvalue().splitlines()] == [
        line.split() for line in _after(PAGES[page], "window ").splitlines()[:2]
    ]


def _after(text: str, begins: str) -> str:
    """From the first line on that begins so."""
    return text[re.search(rf"^ *{begins}", text, re.MULTILINE).start() :]  # type: ignore[union-attr]


def test_the_table_of_a_span_has_the_columns_of_the_command() -> None:
    shown = _after(PAGES["complete.md"], "partition  complete")
    heading, first, second, sentence = shown.splitlines()[:4]
    columns = re.search(r"columns=\((.+?)\)\)", inspect.getsource(complete))
    assert columns is not None
    assert heading.split() == re.findall(r'"(\w+)"', columns[1])
    said = io.StringIO()
    table(
        [
            ("orders/0", "yes", "passed", None, "0 to 120"),
            ("orders/1", "no", "missing", "unread orders/1@51200-51870", 0),
        ],
        heading.split(),
        said,
    )
    assert [line.split() for line in said.getvalue().splitlines()] == [heading.split(), first.split(), second.split()]
    assert re.fullmatch(r"\S+ \S+Z to \S+ \S+Z is not complete; the watermark is \S+ \S+Z", sentence)


def test_the_dry_run_of_a_replay_is_drawn_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranges of the README are those of a plan, and what the command says of such a plan is what stands there."""
    shown = _after(PAGES["README.md"], "partition  from").partition("\n\n")[0].splitlines()
    heading, *rows, sentence = [line.strip("`") for line in shown if line.strip("`")][:5]
    words = [row.split(maxsplit=4) for row in rows]
    ranges = RangeSet(
        OffsetRange(TopicPartition(topic, int(number)), int(start), int(until))
        for (place, start, until, *_) in words
        for topic, _, number in [place.partition("/")]
    )
    planned: Any = SimpleNamespace(
        kind=LaneKind.REPLAY,
        request=SimpleNamespace(dry_run=True),
        sinks=None,
        ranges=ranges,
        all=ranges,
        again=RangeSet(),
        added=RangeSet(),
        left_out={},
        answers=lambda: {TO_READ: ranges},
    )
    opened: Any = SimpleNamespace(ledger=SimpleNamespace(topics=dict))
    stored = SimpleNamespace(as_fields=dict)
    for name, value in {"estimated": None, "stored_now": stored, "digest": "d"}.items():
        monkeypatch.setattr(plan, name, lambda *_, value=value: value)
    replay._show(opened, planned, None, as_json=False)
    said = capsys.readouterr()
    assert [line.rstrip() for line in said.out.splitlines()] == [heading, *rows]
    assert said.err.startswith(sentence.removesuffix(" ..."))


_BAR = re.compile(r"^  (?P<name>\S+) +(?P<bar>[━╸╺]+) (?P<done>\d+)/(?P<total>\d+) (?P<rate>\d+)/s \S+$", re.MULTILINE)


def test_the_bars_of_a_command_are_drawn_so() -> None:
    page = PAGES["command-line.md"]
    begins = re.search(
        r"^. (?P<step>window 12 of .+) (?P<did>\d+) of (?P<tasks>\d+) tasks 0:00:(?P<after>\d+)$", page, re.M
    )
    assert begins is not None
    shown = [*_BAR.finditer(page)]
    assert len(shown) == 2
    clock = SimpleNamespace(now=0.0)
    display = Display(Console(file=io.StringIO(), width=80), lambda: clock.now)
    after, rates = float(begins["after"]), [int(one["rate"]) for one in shown]
    window, _, step = begins["step"].partition(": ")
    # As many messages in the second before as the rate says.
    for at, lacks in ((after - 1, 1), (after, 0)):
        clock.now = at
        bars = tuple(
            PartitionProgress(one["name"], int(one["total"]), int(one["done"]) - lacks * rate)
            for one, rate in zip(shown, rates, strict=True)
        )
        display.show(ShownJob(step, window, bars), (int(begins["did"]), int(begins["tasks"])))
    console = Console(file=io.StringIO(), width=80, color_system="standard", force_terminal=True)
    with console.capture() as capture:
        console.print(display.rendered)
    drawn = [line.split() for line in Text.from_ansi(capture.get()).plain.splitlines()]
    # The first sign is the one that turns.
    assert drawn[0][1:] == begins[0].split()[1:]
    assert drawn[1:] == [one[0].split() for one in shown]
