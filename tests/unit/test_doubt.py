"""One write, and a definite answer: was it mine?"""

from __future__ import annotations

import itertools

import pytest

from tests.support.memory import FAULTS, LOST_APPLIED, LOST_NOT_APPLIED, MemoryStore
from tidemark.errors import (
    AuthenticationFailed,
    DiskFull,
    LedgerContradiction,
    NotAuthorized,
    OutcomeUnknown,
    TooLarge,
    Unreachable,
)
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import WriteInDoubt
from tidemark.ledger.stores.doubt import CompareAndSetFailed, swap_surely

KEY = ("head", "ingest")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


@pytest.mark.covers("F2", "E38")
@pytest.mark.parametrize("faults", [*itertools.product(FAULTS, repeat=1), *itertools.product(FAULTS, repeat=3)])
def test_a_write_whose_answer_was_lost_is_mine_exactly_when_it_is(faults: tuple[str, ...]) -> None:
    store = MemoryStore()
    store.values[KEY] = b"before"
    store.faults = list(faults)
    swap_surely(store, KEY, b"before", b"mine", lambda stored: stored == b"mine")
    assert store.values[KEY] == b"mine"


@pytest.mark.covers("F2", "A39")
@pytest.mark.parametrize("fault", [None, LOST_NOT_APPLIED])
def test_somebody_elses_value_is_not_mine(fault: str | None) -> None:
    store = MemoryStore()
    store.values[KEY] = b"theirs"
    store.faults = [fault] if fault else []
    with pytest.raises(CompareAndSetFailed) as caught:
        swap_surely(store, KEY, b"before", b"mine", lambda stored: stored == b"mine")
    assert caught.value.current == b"theirs"
    assert store.values[KEY] == b"theirs"


@pytest.mark.covers("F2")
def test_mine_is_found_behind_a_later_value() -> None:
    """The write won, its answer was lost, and somebody went on from it before we looked again."""
    store = MemoryStore()
    store.values[KEY] = b"before"
    store.faults = [LOST_APPLIED]

    def overtake(key: tuple[str, ...]) -> None:
        if store.values[KEY] == b"mine":
            store.values[KEY] = b"theirs, after mine"

    store.before_swap = overtake
    swap_surely(store, KEY, b"before", b"mine", lambda stored: b"mine" in stored)


@pytest.mark.covers("F2", "E38")
@pytest.mark.parametrize("answer", [False, Unreachable("the gateway is gone"), WriteInDoubt("the connection was lost")])
def test_a_write_that_did_not_arrive_is_sent_again(answer: bool | Exception) -> None:
    """Refused although the value is the expected one, or without an answer: until it is in the store."""
    store = MemoryStore()
    store.values[KEY] = b"before"
    sent: list[int] = []

    def write() -> bool:
        sent.append(len(sent))
        if len(sent) > 2:
            return store.swap(KEY, b"before", b"mine")
        if isinstance(answer, Exception):
            raise answer
        return answer

    swap_surely(store, KEY, b"before", b"mine", lambda stored: stored == b"mine", write=write)
    assert (store.values[KEY], len(sent)) == (b"mine", 3)


def test_a_value_that_was_there_and_is_gone_is_somebody_elses() -> None:
    store = MemoryStore()
    with pytest.raises(CompareAndSetFailed) as caught:
        swap_surely(store, KEY, b"before", b"mine", lambda stored: True)
    assert caught.value.current is None


@pytest.mark.covers("F2", "E38")
def test_without_an_answer_the_outcome_is_unknown_and_nobody_claims_otherwise() -> None:
    store = MemoryStore()
    store.values[KEY] = b"before"
    store.faults = [LOST_NOT_APPLIED] * 1_000_000
    with pytest.raises(OutcomeUnknown, match="whether it was applied is not known") as caught:
        swap_surely(store, KEY, b"before", b"mine", lambda stored: stored == b"mine", patience=0.05)
    assert caught.value.exit_code == 5
    assert store.values[KEY] == b"before"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "the write was refused although the value is still the expected one"),
        (WriteInDoubt("the connection was lost"), "the connection was lost"),
    ],
)
def test_where_the_outcome_is_unknown_it_is_said_why(answer: bool | Exception, reason: str) -> None:
    store = MemoryStore()

    def write() -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(OutcomeUnknown, match=rf"the write to head/ingest was sent, .* is not known \({reason}\)"):
        swap_surely(store, KEY, None, b"mine", lambda stored: stored == b"mine", write=write, patience=0.0)


REFUSALS = (
    NotAuthorized("cannot execute UPDATE in a read-only transaction"),
    DiskFull.of("the database"),
    AuthenticationFailed("the password was changed"),
    TooLarge("the statement is longer than the server takes"),
    # What a store of somebody else's package, or a driver, raises.
    RuntimeError("the table was dropped"),
)


@pytest.mark.covers("F2", "E38")
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("doubt", [WriteInDoubt("the connection was lost"), False], ids=["lost", "false"])
def test_a_server_that_refuses_after_a_doubt_says_nothing_of_the_write_before(
    refusal: Exception, doubt: Exception | bool
) -> None:
    """The write was applied. What the server says next, as a standby or with a full disk, is no answer to it."""
    store = MemoryStore()
    store.values[KEY] = b"before"
    sent: list[int] = []

    def write() -> bool:
        sent.append(len(sent))
        if len(sent) > 1:
            raise refusal
        store.swap(KEY, b"before", b"mine")
        if isinstance(doubt, Exception):
            raise doubt
        # The read after it is refused as well.
        monkey.setattr(store, "read", refused)
        return doubt

    def refused(key: tuple[str, ...]) -> bytes | None:
        raise refusal

    with pytest.MonkeyPatch.context() as monkey, pytest.raises(OutcomeUnknown, match="is not known") as caught:
        swap_surely(store, KEY, b"before", b"mine", lambda stored: stored == b"mine", write=write)
    assert str(refusal) in str(caught.value)
    assert (caught.value.retriable, store.values[KEY]) == (True, b"mine")


@pytest.mark.covers("F2")
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda one: type(one).__name__)
def test_a_refusal_without_a_doubt_before_stays_what_it_is(refusal: Exception) -> None:
    def write() -> bool:
        raise refusal

    with pytest.raises(type(refusal)) as caught:
        swap_surely(MemoryStore(), KEY, None, b"mine", lambda stored: stored == b"mine", write=write)
    assert caught.value is refusal


def test_what_the_ledger_contradicts_is_said_after_a_doubt_too() -> None:
    answers: list[Exception] = [
        WriteInDoubt("the connection was lost"),
        LedgerContradiction("the record is there already"),
    ]

    def write() -> bool:
        raise answers.pop(0)

    with pytest.raises(LedgerContradiction, match="the record is there already"):
        swap_surely(MemoryStore(), KEY, None, b"mine", lambda stored: stored == b"mine", write=write)
