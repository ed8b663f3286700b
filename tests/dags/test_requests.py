"""What people may ask of the manual DAGs, and what they are told when it cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import parse_ranges
from tidemark.runs.requests.forms import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest, checked

REPLAY = {"records": "", "ranges": "", "dead_letters": "", "selection": "", "reason": "bug 17", "dry_run": True}
BACKFILL = {"ranges": "", "everything_before": False, "reason": "bug 17", "dry_run": False}


def test_a_replay_of_records() -> None:
    asked = checked(ReplayRequest, {**REPLAY, "records": "logs/0@5"}, {"records": "logs/0@5", "reason": "bug 17"})
    assert (asked.records, asked.dry_run) == ("logs/0@5", True)


def test_times_and_a_window_choose_among_dead_letters() -> None:
    values = {"dead_letters": "*", "dead_letters_window": "ingest/17", "since": "2026-11-21T07:00:00Z"}
    asked = checked(ReplayRequest, {**REPLAY, **values}, values)
    assert (asked.dead_letters, asked.dead_letters_window, asked.until_time) == ("*", "ingest/17", "")


def test_a_time_has_two_bounds_at_most_and_one_at_least() -> None:
    for times in ({"since": "2026-11-21T07:00:00Z"}, {"until_time": "2026-11-21T15:00+08:00"}):
        assert checked(ReplayRequest, {**REPLAY, **times}, times).if_none == "fail"


@pytest.mark.parametrize(
    ("values", "sent", "said"),
    [
        (
            {},
            {},
            "exactly one of records, records_file, ranges, window, dead_letters, selection, ignore_stored, "
            "since/until_time; found none of them",
        ),
        ({"records": "a", "ranges": "b"}, {}, "found records and ranges"),
        ({"records": "a", "reason": "x"}, {}, "reason: expected a text of 3 or more characters"),
        ({"records": "a", "dry_run": "false"}, {}, "dry_run: expected true or false"),
        ({"selection": "abc"}, {}, "selection: expected "),
        ({"records": "a"}, {"record": "b"}, "unknown: record; known are dry_run, records, ranges, reason"),
        ({"since": "2026-11-21T07:00:00Z", "ranges": "b"}, {}, "found ranges and since/until_time"),
        ({"since": "1795244400"}, {}, "since: a number is not taken as a time: .* if it is milliseconds"),
        ({"until_time": "2026-11-21T07:00:00"}, {}, "until_time: '2026-11-21T07:00:00' has no zone"),
        ({"until_time": "noon"}, {}, "until_time: 'noon' is not a time; expected one with its zone"),
        ({"since": "2026-11-21T07:00:00Z", "if_none": "start"}, {}, "if_none: expected 'fail' or 'end'"),
        ({"records": "a" * 1_000_001}, {}, "records: 1000001 characters, .* up to 1000000; write .* records_file"),
        ({"records_file": "a" * 1_001}, {}, "records_file: expected a text of no more than 1000 characters"),
        ({"records_file": "a.csv", "records": "a"}, {}, "found records and records_file"),
        ({"dead_letters_window": "ingest/2", "ranges": "b"}, {}, "fill in dead_letters too"),
        ({"dead_letters": "*", "dead_letters_window": "ingest/"}, {}, "dead_letters_window: expected "),
        (
            {"dead_letters": "*", "ranges": "b", "since": "2026-11-21T07:00:00Z"},
            {},
            "found ranges and dead_letters and",
        ),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(values: dict[str, Any], sent: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        checked(ReplayRequest, {**REPLAY, **values}, sent)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "exactly one of ranges, records, records_file, everything_before, holes, since/until_time; found none"),
        ({"ranges": "logs/0@0-5", "everything_before": True}, "found ranges and everything_before"),
        ({"records": "logs/0@5", "records_file": "a.csv"}, "found records and records_file"),
    ],
)
def test_a_backfill_that_makes_no_sense_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        checked(BackfillRequest, {**BACKFILL, **values}, {})


FORMS = [
    (ReplayRequest, "replay"),
    (BackfillRequest, "backfill"),
    (EraseRequest, "erase"),
    (AuditRequest, "audit"),
]
# Values that no field of that name takes, in any form.
NEVER: dict[str, list[Any]] = {
    "ranges": [5, ["logs/0@1-2"], "a" * 1_000_001],
    "records": [{"topic": "logs"}, "a" * 1_000_001],
    "dead_letters": [True, "a" * 201],
    "key": [5, b"me", "a" * 10_001],
    "records_file": [5, "a" * 1_001],
    "selection": ["abc", "0" * 65],
    "window": [5, "a" * 502],
    "since": [1795244400, "2" * 41],
    "if_none": ["start", True],
    "dry_run": ["yes", 1],
    "mode": ["all", True],
    "sinks": ["hbase", [1], [["hbase"]], {"hbase": 1}, ["a" * 201], ["a"] * 101, True],
    "lanes": [0, 9, -1, 1.5, "5", True],
    "rate": [0, -1, 1.5, "5", True, 10**10],
    "share": ["5", "0x5%", "5 %", "101%", "-5%", 5],
    "seed": [-1, 1.5, "5", True],
    "repair": ["yes", 1],
    "reason": ["no", "a" * 501, 7],
}


@pytest.mark.covers("Q6")
@pytest.mark.parametrize(("request_of", "kind"), FORMS)
def test_form_and_task_refuse_the_same_values(request_of: Any, kind: str) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    from tidemark.airflow.requests import params

    form = params(request_of)
    tried = [(name, value) for name in form for value in NEVER.get(name, [])]
    assert len(tried) >= 7
    for name, value in tried:
        with pytest.raises(ParamValidationError):
            form[name].resolve(value)
        with pytest.raises(WrongUse, match=rf"{name}(\.0)?: "):
            checked(request_of, {name: value}, {name: value})


@pytest.mark.covers("Q6")
@pytest.mark.parametrize("kind", [ReplayRequest, BackfillRequest, AuditRequest])
def test_an_unknown_key_is_refused(kind: Any) -> None:
    with pytest.raises(WrongUse, match="unknown: topics; known are "):
        checked(kind, {}, {"topics": "logs"})


@pytest.mark.covers("Q6")
@pytest.mark.parametrize(
    "line",
    [
        "lo gs/0@1-2",
        "lögs/0@1-2",
        "<b>/0@1-2",
        f"{'t' * 250}/0@1-2",
        "../0@1-2",
        "logs/-1@1-2",
        "logs/2147483648@1-2",
        "logs/0@1-9223372036854775808",
        "logs/0@2-99999999999999999999",
    ],
)
def test_bad_topic_names_and_numbers_are_refused_by_their_line(line: str) -> None:
    asked = checked(AuditRequest, {"ranges": f"logs/0@1-2\n{line}"}, {})
    with pytest.raises(WrongUse, match=r"^ranges: line 2: "):
        asked.offsets()
    with pytest.raises(WrongUse, match="line 2: "):
        parse_ranges(f"logs/0@1-2\n{line}")
    single = line.partition("-")[0] if "@1-2" in line else line.replace("@1-", "@").replace("@2-", "@")
    with pytest.raises(WrongUse, match=r"^records: line 2: "):
        checked(AuditRequest, {"records": f"logs/0@5\n{single}"}, {}).offsets()


def test_an_audit_needs_nothing() -> None:
    assert checked(AuditRequest, {"ranges": "", "repair": None}, {}) == AuditRequest()
    assert (AuditRequest().level, AuditRequest().repair) == ("full", "none")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"repair": True}, "repair: expected 'none', 'plan' or 'execute'"),
        ({"level": "rows"}, "level: expected 'ledger', 'source', 'sinks', 'full' or 'recompute'"),
        ({"level": "ledger", "ranges": "logs/0@0-5"}, "level ledger looks at the whole ledger: leave ranges"),
        (
            {"level": "ledger", "window": "ingest/1"},
            "level ledger looks at the whole ledger: leave .*, window, selection and since",
        ),
        ({"level": "source", "since": "2026-11-21T07:00:00Z"}, "level source looks at the whole ledger"),
        (
            {"until_time": "2026-11-21T07:00:00Z", "records": "logs/0@5"},
            "an audit takes times or other offsets, not both",
        ),
        ({"since": "noon"}, "since: 'noon' is not a time"),
        ({"level": "source", "records": "logs/0@5"}, "level source looks at the whole ledger"),
        ({"level": "ledger", "share": "5%"}, "share: level ledger .*; use level sinks, full or recompute"),
        ({"share": "0.00%"}, "share: expected more than 0%"),
        ({"share": "half"}, "share: expected a percentage such as 5% or 0.5%, found 'half'"),
        ({"seed": 5}, "seed: it chooses the blocks of a share; give a share too"),
        ({"level": "ledger", "repair": "plan"}, "level ledger reads no rows, so it has no findings to replay"),
    ],
)
def test_an_audit_that_makes_no_sense_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        checked(AuditRequest, values, {})


TEXTS = st.sampled_from([None, "", " ", "\n", "a", "2026-11-21T07:00:00Z", "*", "0" * 64])
SENT = st.fixed_dictionaries(
    {},
    optional={name: TEXTS for name in ReplayRequest.model_fields if name not in ("dry_run", "ignore_stored")}
    | {name: st.sampled_from([None, True, False]) for name in ("dry_run", "ignore_stored")},
)


@given(SENT)
def test_null_and_empty_and_absent_are_the_same(sent: dict[str, Any]) -> None:
    """What a form, the REST API and a command line send for a field that is left empty."""

    def answer(values: dict[str, Any]) -> ReplayRequest | str:
        try:
            return checked(ReplayRequest, values, values)
        except WrongUse as problem:
            return str(problem)

    filled = {name: value for name, value in sent.items() if value is not None and str(value).strip()}
    names = ReplayRequest.model_fields
    assert answer(sent) == answer(filled)
    assert answer(dict.fromkeys(names, "") | filled) == answer(filled)
    assert answer(dict.fromkeys(names) | filled) == answer(filled)


@pytest.mark.parametrize("reason", [None, "", "   ", "no"])
@pytest.mark.parametrize("kind", [ReplayRequest, BackfillRequest])
def test_a_reason_is_required(kind: Any, reason: str | None) -> None:
    with pytest.raises(WrongUse, match="reason: "):
        checked(kind, {"ranges": "logs/0@0-5", "reason": reason}, {})
