"""Functions of one's own: what they may give, when they are called again, and what a stream file says of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tidemark import Message, PermanentFailure
from tidemark.errors import WrongUse
from tidemark.functions import load_function
from tidemark.functions.caller import MAX_WAITING, MAX_WAITING_BYTES, Caller, CallResult, Result, result_of
from tidemark.functions.retries import ExponentialBackoff, RetryPolicy
from tidemark.functions.types import TypeMismatch, checked
from tidemark.streams.model import Stream
from tidemark.streams.retry import Retry
from tidemark.types.fields import FieldType, arrow_type

FIELDS: dict[str, FieldType] = {"id": "integer", "name": "string"}
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class NoOffset(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> None: ...

    def dst(self, _: datetime | None) -> None: ...

    def tzname(self, _: datetime | None) -> None: ...


class Time:
    """A clock that only sleeping moves, and that remembers each sleep."""

    def __init__(self) -> None:
        self.now, self.sleeps, self.looks = 1_795_244_400_000, list[float](), 0

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += round(seconds * 1000)

    def look(self) -> None:
        self.looks += 1


def messages(number: int) -> list[Message]:
    return [Message("logs", 0, offset, b"key", str(offset).encode()) for offset in range(number)]


def call(
    function: Callable[[Message], Any],
    given: Sequence[Message],
    policy: RetryPolicy | None = None,
    time: Time | None = None,
    fields: dict[str, FieldType] = FIELDS,
) -> list[CallResult]:
    time = time or Time()
    caller = Caller(here(function, fields), policy or ExponentialBackoff(), time, time.sleep, time.look, at_once=1)
    return list(caller.answers(given))


def here(
    function: Callable[[Message], Any], fields: dict[str, FieldType] = FIELDS
) -> Callable[[Sequence[Message]], list[Result]]:
    """Calls in this process, and for the first message alone."""
    return lambda messages: [result_of(function, fields, messages[0])]


def row(message: Message) -> dict[str, object]:
    return {"id": message.offset, "name": "a"}


def one(result: object, kind: FieldType = "string") -> CallResult:
    (answer,) = call(lambda _: result, messages(1), fields={"f": kind})
    return answer


@pytest.mark.parametrize("nothing", [None, [], (), {}.values(), iter([])])
def test_nothing_skips_a_message(nothing: object) -> None:
    answer = one(nothing)
    assert (answer.rows, answer.invalid, answer.failed) == ((), None, None)


def test_a_mapping_is_one_row_and_a_list_or_generator_many() -> None:
    assert one({"f": "a"}).rows == (("a",),)
    assert one([{"f": "a"}, {"f": None}]).rows == (("a",), (None,))
    assert one({"f": str(number)} for number in range(3)).rows == (("0",), ("1",), ("2",))


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("string", "", ""),
        ("integer", -(2**63), -(2**63)),
        ("double", 3, 3.0),
        ("boolean", False, False),
        ("binary", bytearray(b"\xff"), b"\xff"),
        ("timestamp", NOON.astimezone(timezone(timedelta(hours=5))), NOON),
        ("integer", None, None),
    ],
)
def test_a_field_of_its_type(kind: FieldType, value: object, stored: object) -> None:
    assert one({"f": value}, kind).rows == ((stored,),)


@pytest.mark.parametrize(
    ("kind", "result", "reason"),
    [
        ("string", {}, "f is missing"),
        ("string", {"g": "a"}, "f is missing"),
        ("string", {"f": "a", "g": "a"}, "g is not a field of the stream"),
        ("string", {"f": b"a"}, "f is not a string but bytes"),
        ("string", {"f": "\ud800"}, "f is not text that UTF-8 can hold"),
        ("integer", {"f": True}, "f is not an integer but bool"),
        ("integer", {"f": 1.0}, "f is not an integer but float"),
        ("integer", {"f": 2**63}, "f does not fit in 64 bits"),
        ("double", {"f": "1.5"}, "f is not a number but str"),
        ("double", {"f": 10**400}, "f is too large for a double"),
        ("decimal(4,2)", {"f": Decimal("NaN")}, "f does not fit in decimal(4,2)"),
        ("decimal(4,2)", {"f": Decimal("-Infinity")}, "f does not fit in decimal(4,2)"),
        ("array<decimal(4,2)>", {"f": [Decimal("NaN")]}, "f[] does not fit in decimal(4,2)"),
        ("boolean", {"f": 1}, "f is not a boolean but int"),
        ("timestamp", {"f": 0}, "f is not a time but int"),
        ("timestamp", {"f": datetime(2026, 11, 21)}, "f is a time without a zone"),
        ("timestamp", {"f": datetime(2026, 11, 21, tzinfo=NoOffset())}, "f is a time without a zone"),
        (
            "timestamp",
            {"f": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
            "f is not a time of the years",
        ),
        ("binary", {"f": "a"}, "f is not bytes but str"),
        ("string", "text", "the function gave str, not a mapping"),
        ("string", 5, "the function gave int, not a mapping"),
        ("string", [{"f": "a"}, None], "the function gave NoneType, not a mapping"),
    ],
)
def test_what_does_not_fit_is_invalid_and_not_tried_again(kind: FieldType, result: object, reason: str) -> None:
    time = Time()
    (answer,) = call(lambda _: result, messages(1), time=time, fields={"f": kind})
    assert answer.invalid is not None
    assert answer.invalid.startswith(reason)
    assert (answer.rows, answer.failed, time.sleeps) == ((), None, [])


_ANY = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.decimals(),
        st.text(st.characters(), max_size=3),
        st.binary(max_size=3),
        st.dates(),
        st.datetimes(timezones=st.none() | st.timezones()),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=4,
)
_KINDS: tuple[FieldType, ...] = (
    *("string", "integer", "tinyint", "float", "double", "boolean", "binary", "date", "timestamp", "timestamp_ntz"),
    *("decimal(1,1)", "decimal(12,2)", "decimal(38,0)", "array<decimal(12,2)>", "map<string,float>", "array<date>"),
)


@given(value=_ANY, kind=st.sampled_from(_KINDS))
def test_arrow_takes_whatever_fits(value: object, kind: FieldType) -> None:
    """What it refused would end the job, and every retry of its window."""
    try:
        ((stored,),) = checked([{"f": value}], {"f": kind})
    except TypeMismatch:
        return
    pa.array([stored], arrow_type(kind))


def test_one_bad_row_makes_the_whole_message_invalid() -> None:
    assert one([{"f": "a"}, {"f": 5}]).rows == ()


def test_the_function_sees_all_of_a_message_and_cannot_change_it() -> None:
    sent = Message("logs", 3, 7, None, None, (("a", b"1"), ("a", None)), NOON, "CreateTime")
    seen: list[Message] = []
    call(seen.append, [sent])
    assert seen == [sent]
    with pytest.raises(FrozenInstanceError):
        seen[0].value = b"other"  # type: ignore[misc]


def failing(times: dict[int, int], error: BaseException | None = None) -> tuple[Callable[[Message], Any], list[int]]:
    """A function that fails so often for these offsets; and the offsets that it was called with."""
    called: list[int] = []

    def function(message: Message) -> dict[str, object]:
        called.append(message.offset)
        if called.count(message.offset) <= times.get(message.offset, 0):
            raise error or ValueError(f"no {message.offset}")
        return row(message)

    return function, called


def test_what_fails_is_tried_again_when_it_is_due_while_the_others_go_on() -> None:
    function, called = failing({1: 2})
    time = Time()
    answers = call(function, messages(4), time=time)
    assert [answer.message.offset for answer in answers] == [0, 2, 3, 1]
    assert all(answer.rows for answer in answers)
    assert called == [0, 1, 2, 3, 1, 1]
    assert time.sleeps == [0.1, 0.2]


def test_a_message_comes_back_as_soon_as_it_is_due() -> None:
    """Not at the end: the other messages take 40 ms each, so that the retry after 100 ms stands between them."""
    time = Time()
    function, called = failing({0: 1})

    def slow(message: Message) -> Any:
        time.now += 40
        return function(message)

    call(slow, messages(6), time=time)
    assert called == [0, 1, 2, 3, 0, 4, 5]
    assert time.sleeps == []


def test_many_that_fail_wait_together() -> None:
    function, _ = failing(dict.fromkeys(range(500), 3))
    time = Time()
    answers = call(function, messages(500), time=time)
    assert len(answers) == 500
    assert all(answer.rows for answer in answers)
    assert sum(time.sleeps) == pytest.approx(0.1 + 0.2 + 0.4)


@pytest.mark.covers("A12")
def test_the_limit_ends_it_with_a_dead_letter() -> None:
    function, called = failing({1: 99})
    begun = Time().now
    answers = call(function, messages(3), ExponentialBackoff(limit=2))
    failed = answers[-1].failed
    assert failed is not None
    assert (failed.error, failed.detail, failed.reason) == ("ValueError", "ValueError: no 1", "raised ValueError")
    assert (failed.attempts, failed.first_at, failed.last_at) == (3, begun, begun + 300)
    assert called.count(1) == 3
    # Limit 0: four that fail are tried once each, and nobody waits.
    time = Time()
    function, called = failing(dict.fromkeys(range(4), 99))
    answers = call(function, messages(4), ExponentialBackoff(limit=0), time)
    assert [answer.failed.attempts for answer in answers if answer.failed] == [1] * 4
    assert (called, time.sleeps) == ([0, 1, 2, 3], [])


class Refused(PermanentFailure):
    pass


def test_a_permanent_failure_is_not_tried_again() -> None:
    function, called = failing({0: 99}, Refused("for good"))
    (answer,) = call(function, messages(1))
    assert answer.failed is not None
    assert (answer.failed.error, answer.failed.attempts) == (f"{__name__}.Refused", 1)
    assert called == [0]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (Mute(), "Mute"),
        (ValueError("\ud800" + "x" * 5_000), "ValueError: \\ud800xxx"),
        (RecursionError("deep"), "RecursionError: deep"),
    ],
)
def test_whatever_is_raised_ends_as_a_dead_letter(error: BaseException, detail: str) -> None:
    function, _ = failing({0: 99}, error)
    (answer,) = call(function, messages(1))
    assert answer.failed is not None
    assert detail in answer.failed.detail
    assert len(answer.failed.detail.encode()) < 2_000


def test_a_generator_that_fails_half_way_gives_nothing_until_it_succeeds() -> None:
    tries: list[int] = []

    def function(message: Message) -> Iterator[dict[str, object]]:
        yield row(message)
        tries.append(1)
        if len(tries) == 1:
            raise OSError("away")
        yield row(message)

    (answer,) = call(function, messages(1))
    assert (len(answer.rows), len(tries)) == (2, 2)


def test_the_fence_is_looked_at_while_messages_wait() -> None:
    time = Time()
    function, _ = failing({0: 1})
    call(function, messages(1), ExponentialBackoff(60_000), time)
    assert sum(time.sleeps) == 60
    assert max(time.sleeps) <= 1
    assert time.looks >= 60

    def lost() -> None:
        if time.now > begun + 5_000:
            raise WrongUse("fenced")

    begun = time.now
    function, _ = failing({0: 1})
    caller = Caller(here(function), ExponentialBackoff(60_000), time, time.sleep, lost)
    with pytest.raises(WrongUse, match="fenced"):
        list(caller.answers(messages(1)))
    assert time.now < begun + 7_000


@pytest.mark.parametrize(("number", "size", "most"), [(MAX_WAITING + 100, 1, MAX_WAITING), (100, 2 << 20, 32)])
def test_no_more_messages_wait_than_there_is_room_for(number: int, size: int, most: int) -> None:
    assert most in (MAX_WAITING, MAX_WAITING_BYTES // size)
    read: list[int] = []

    def source() -> Iterator[Message]:
        for message in messages(number):
            read.append(message.offset)
            yield replace(message, value=bytes(size))

    time = Time()
    answered: list[CallResult] = []
    ahead: list[int] = []

    def once(message: Message) -> Any:
        ahead.append(len(read) - len(answered))
        if message.offset not in tried:
            tried.add(message.offset)
            raise ValueError("once")
        return row(message)

    tried: set[int] = set()
    answered.extend(Caller(here(once), ExponentialBackoff(), time, time.sleep, at_once=1).answers(source()))
    assert len(answered) == number
    assert most <= max(ahead) <= most + 1


@given(
    st.dictionaries(st.integers(0, 20), st.integers(1, 6)),
    st.integers(0, 4),
    st.integers(0, 3_000),
    st.integers(0, 200),
)
def test_each_message_gets_one_answer(times: dict[int, int], limit: int, delay: int, slow: int) -> None:
    time = Time()
    function, called = failing(times)

    def timed(message: Message) -> Any:
        time.now += slow
        return function(message)

    answers = call(timed, messages(21), ExponentialBackoff(delay, 2.0, 60_000, limit), time)
    assert sorted(answer.message.offset for answer in answers) == list(range(21))
    for answer in answers:
        fails = times.get(answer.message.offset, 0)
        assert (answer.failed is not None) == (fails > limit)
        assert called.count(answer.message.offset) == min(fails, limit) + 1
    # Those that never fail keep their order.
    good = [answer.message.offset for answer in answers if answer.message.offset not in times]
    assert good == sorted(good)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module_here:f", r"cannot be imported \(ModuleNotFoundError"),
        ("json:no_such_function", "has no function no_such_function"),
        ("json:__name__", "has no function __name__"),
    ],
)
def test_a_function_that_is_not_there_is_wrong_use(name: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        load_function("scheme.function", name)


def test_a_module_that_fails_when_it_is_imported_is_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_orders.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(WrongUse, match="ZeroDivisionError"):
        load_function("scheme.function", "broken_orders:f")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": -1}, "needs `max_seconds`"),
        ({"limit": -2}, "greater than or equal to -1"),
        ({"multiplier": 0.5}, "greater than or equal to 1"),
        ({"initial_delay_ms": -1}, "greater than or equal to 0"),
        ({"policy": "mine", "limit": 3}, "takes `settings`"),
        ({"settings": {"a": 1}}, "for a `policy`"),
        ({"limit": "3"}, "valid integer"),
        ({"timeout_ms": 0}, "timeout_ms\n.*greater than or equal to 100"),
        ({"timeout_ms": 86_400_001}, "timeout_ms\n.*less than or equal to 86400000"),
    ],
)
def test_what_retry_does_not_take(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Retry.model_validate(given)


def test_what_retry_means() -> None:
    assert Retry().chosen() == ExponentialBackoff(100, 2.0, 60_000, 3, None)
    storm = Retry(initial_delay_ms=0, multiplier=1.0, max_delay_ms=60_000, limit=-1, max_seconds=60)
    assert storm.chosen() == ExponentialBackoff(0, 1.0, 60_000, -1, 60)


POLICY = """
class Twice:
    def __init__(self, wait): self.wait = wait
    def delay_ms(self, failures, elapsed_ms): return self.wait if failures < 3 else None
"""


def test_a_policy_of_ones_own_is_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_policies.py").write_text(POLICY)
    installed = tmp_path / "my_policies-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policies\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[tidemark.retry_policies]\ntwice = my_policies:Twice\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_policies", raising=False)
    function, called = failing({0: 99})
    time = Time()
    call(function, messages(1), Retry(policy="twice", settings={"wait": 30}).chosen(), time)
    assert (called, time.sleeps) == ([0, 0, 0], [0.03, 0.03])
    with pytest.raises(WrongUse, match="known: twice"):
        Retry(policy="thrice").chosen()
    with pytest.raises(WrongUse, match="TypeError"):
        Retry(policy="twice", settings={"pause": 30}).chosen()


def test_messages_of_two_incarnations_are_two() -> None:
    first = messages(1)[0]
    function, called = failing({0: 1})
    answers = call(function, [first, replace(first, incarnation=2)])
    assert (len(answers), called) == (2, [0, 0, 0])


STREAM: dict[str, Any] = {
    "stream": "orders",
    "source": {"topics": ["orders"]},
    "scheme": {"type": "function", "function": "shop.orders:order", "fields": {"id": "integer", "photo": "binary"}},
    "sinks": [{"type": "hbase", "table": "orders"}],
    "dead_letters": {"type": "hbase", "table": "orders_dead"},
}


def test_a_stream_file_names_a_function_and_how_it_is_tried_again() -> None:
    stream = Stream.model_validate({**STREAM, "retry": {"limit": 5}})
    assert stream.scheme.fields == {"id": "integer", "photo": "binary"}
    assert stream.retry.chosen() == ExponentialBackoff(limit=5)
    assert (stream.dead_letters.max_redrives, Stream.model_validate(STREAM).retry) == (3, Retry())


@pytest.mark.parametrize(
    "name", ["order", "shop.orders", "shop/orders:order", "shop.orders:", "os:system('x')", "1a:b"]
)
def test_what_is_no_name_of_a_function(name: str) -> None:
    with pytest.raises(ValidationError, match=r"function"):
        Stream.model_validate({**STREAM, "scheme": {**STREAM["scheme"], "function": name}})


def test_retries_are_for_functions() -> None:
    with pytest.raises(ValidationError, match="nothing of scheme raw is tried again"):
        Stream.model_validate({**STREAM, "scheme": {"type": "raw"}, "retry": {}})
