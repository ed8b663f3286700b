"""How the page asks about streams: in threads of its own, with limits, and none of them held up by another one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.stream_text import MINIMAL
from tests.support.streams_in_memory import nowhere
from tests.support.waiting import until
from tidemark.clients.connections import Connection
from tidemark.clients.hbase.endpoint import HBaseEndpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.zookeeper import ZooKeeper, ZooKeeperEndpoint
from tidemark.errors import ConnectionMissing, LedgerContradiction, StaleLedger, TookTooLong, Unreachable, WrongUse
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.time_limit import limited
from tidemark.plugin import streams
from tidemark.plugin.cached_queries import (
    MAX_LONG_OF_ONE,
    MAX_OF_ONE,
    Answer,
    CachedQueries,
    LedgerAnswer,
    dead_letters_of,
    kafka_of,
    sinks_of,
)
from tidemark.plugin.settings import Settings
from tidemark.plugin.stream_access import StreamAccess
from tidemark.plugin.streams import StreamCache
from tidemark.streams.loading import StreamFile, load

ZOOKEEPER = "ledger: {type: zookeeper}\n"
SETTINGS = Settings(page_wait_seconds=0.5, page_cache_seconds=0, page_retry_seconds=60, page_threads=2)
# Of a loaded machine; what is waited for takes far longer.
AT_ONCE = 10.0


class Servers:
    """What is asked: streams in `away` hang until they are let go, those in `broken` raise."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.broken: dict[str, Exception] = {}
        self.asked: Counter[str] = Counter()
        self.back = threading.Event()

    def show(self, file: StreamFile) -> dict[str, Any]:
        name = file.stream.name
        self.asked[name] += 1
        if name in self.away:
            assert self.back.wait(60)
        if name in self.broken:
            raise self.broken[name]
        return {"stream": name}


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.back.set()


def stream(tmp_path: Path, name: str, more: str = "") -> StreamFile:
    path = tmp_path / f"{name}.yaml"
    path.write_text(MINIMAL.replace("stream: orders", f"stream: {name}") + more)
    return load(path)


def answers(asking: CachedQueries, *files: StreamFile) -> list[Answer]:
    async def all_of_them() -> list[Answer]:
        return await asyncio.gather(*map(asking.answer, files))

    return asyncio.run(all_of_them())


@pytest.mark.covers("Q25")
def test_whoever_looks_waits_with_a_limit_and_then_not_at_all(tmp_path: Path, servers: Servers) -> None:
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")
    servers.away = {"orders"}
    began = time.monotonic()
    late = answers(asking, *[file] * 200)
    # As many as there are wait once, together.
    assert 0.5 <= time.monotonic() - began < AT_ONCE
    assert {one.status for one in late} == {504}
    assert late[0].detail == (
        "the ledger's database (sql_default) and Kafka (kafka_default) did not answer within 0.5 s; they are still being asked"
    )
    began = time.monotonic()
    assert [answers(asking, file)[0].status for _ in range(50)] == [504] * 50
    assert time.monotonic() - began < 50 * SETTINGS.page_wait_seconds / 2
    servers.back.set()
    assert until_answered(asking, file).found == {"stream": "orders"}
    # What came late is there for whoever looks again.
    assert servers.asked == {"orders": 1}


@pytest.mark.covers("Q25")
def test_a_question_of_its_own_is_asked_only_while_the_servers_answer(tmp_path: Path, servers: Servers) -> None:
    """As for the page of an audit's report, which is not kept for other viewers."""
    patient, hasty = (
        CachedQueries(servers.show, Settings(page_wait_seconds=seconds, page_cache_seconds=0)) for seconds in (60, 0.5)
    )
    file = stream(tmp_path, "orders")
    asked: list[str] = []

    def told(
        result: str | None, problem: Exception | None = None, asking: CachedQueries = patient
    ) -> Answer | str | None:
        def question() -> str | None:
            asked.append(file.stream.name)
            if problem is not None:
                raise problem
            return result

        return asyncio.run(asking.once(file, question))

    assert (told("a page"), told(None)) == ("a page", None)
    unreachable = told(None, Unreachable("HBase at h:1 did not answer"))
    assert unreachable == Answer(503, detail="Unreachable: HBase at h:1 did not answer")
    internal = told(None, KeyError("canary"))
    assert isinstance(internal, Answer)
    assert (internal.status, "canary" in internal.detail) == (500, False)
    assert len(asked) == 4
    servers.away = {"orders"}
    late = told("a page", asking=hasty)
    assert isinstance(late, Answer)
    assert (late.status, len(asked)) == (504, 4)


@pytest.mark.covers("Q25")
@pytest.mark.parametrize("way", ["once", "long"])
def test_what_needs_the_ledger_alone_is_answered_while_kafka_is_away(
    tmp_path: Path, servers: Servers, way: str
) -> None:
    def reach(file: StreamFile) -> dict[str, Any]:
        if "ledger" in servers.broken:
            raise servers.broken["ledger"]
        return {}

    asking, file = CachedQueries(servers.show, SETTINGS, reach), stream(tmp_path, "orders")
    servers.away = {"orders"}

    def told(*, ledger_only: bool) -> Any:
        question = (file, "a key", lambda: "a window") if way == "long" else (file, lambda: "a window")
        return asyncio.run(getattr(asking, way)(*question, ledger_only=ledger_only))

    late = told(ledger_only=False)
    assert (late.status, "Kafka" in late.detail) == (504, True)
    # All threads of those that wait for Kafka are busy, and none of the others.
    servers.away |= {"other"}
    answers(asking, stream(tmp_path, "other"))
    assert told(ledger_only=True) == "a window"
    servers.broken["ledger"] = Unreachable("HBase at h:1 did not answer")
    away = told(ledger_only=True)
    assert (away.status, away.detail) == (503, "Unreachable: HBase at h:1 did not answer")


@pytest.mark.slow
@pytest.mark.covers("Q25")
@pytest.mark.parametrize("way", ["answer", "once", "long"])
def test_a_late_answer_names_the_servers_that_the_question_asks(tmp_path: Path, servers: Servers, way: str) -> None:
    """A question of the ledger that asks others too is not said to wait for the ledger alone, nor for Kafka otherwise."""
    file = stream(tmp_path, "orders", "ledger: {type: hbase}\n")

    def slow(*_: StreamFile) -> dict[str, Any]:
        assert servers.back.wait(60)
        return {}

    def said(*others: str) -> str:
        question = {"answer": (slow,), "once": (slow,), "long": (str(others), slow)}[way]
        asking = CachedQueries(servers.show, SETTINGS, lambda _: {})
        late = asyncio.run(getattr(asking, way)(file, *question, *others, ledger_only=True))
        assert late.status == 504
        text: str = late.detail
        return text.partition(" did not answer")[0]

    assert said() == "HBase (hbase_default)"
    assert said(kafka_of(file), dead_letters_of(file)) == "HBase (hbase_default) and Kafka (kafka_default)"
    more = stream(tmp_path, "more").path
    more.write_text(
        MINIMAL.replace("dead_letters:", "  - {type: parquet, folder: x}\nledger: {type: hbase}\ndead_letters:")
    )
    file = load(more)
    assert said(kafka_of(file), *sinks_of(file)) == (
        "HBase (hbase_default), Kafka (kafka_default) and the sinks' lake_default"
    )


@pytest.mark.covers("Q25")
def test_another_question_has_an_answer_of_its_own(tmp_path: Path, servers: Servers) -> None:
    asking, file = (
        CachedQueries(servers.show, Settings(page_wait_seconds=60, page_cache_seconds=60)),
        stream(tmp_path, "orders"),
    )

    def other(_: StreamFile) -> dict[str, Any]:
        raise WrongUse("partition: the stream has no partition x now")

    async def both() -> list[Answer]:
        return [await asking.answer(file), await asking.answer(file, other), await asking.answer(file)]

    first, second, third = asyncio.run(both())
    assert (first.status, third) == (200, first)
    # What was asked is wrong, not a server.
    assert second.status == 400
    assert second.detail == "partition: the stream has no partition x now"
    assert servers.asked == {"orders": 1}


@pytest.mark.covers("Q25")
def test_servers_that_are_away_hold_up_no_others(tmp_path: Path, servers: Servers) -> None:
    """However many streams they have."""
    before = set(threading.enumerate())
    asking = CachedQueries(servers.show, SETTINGS)
    hanging = [stream(tmp_path, f"hanging_{number}") for number in range(50)]
    servers.away = {file.stream.name for file in hanging}
    other = stream(tmp_path, "other", ZOOKEEPER)
    assert [one.status for one in answers(asking, *hanging)] == [504] * 50
    # While they hang.
    assert until_answered(asking, other).status == 200
    added = [one for one in set(threading.enumerate()) - before if one.name.startswith("tidemark page")]
    # Of those servers, and of the other stream's.
    assert len(added) <= 2 * SETTINGS.page_threads
    # Streams beside them may have to wait for a thread, and are told so.
    beside = stream(tmp_path, "beside")
    assert answers(asking, beside)[0].status == 504
    servers.away = set()
    servers.back.set()
    assert until_answered(asking, beside).status == 200


def test_a_server_that_is_known_to_be_away_is_not_asked_again_at_once(tmp_path: Path, servers: Servers) -> None:
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")
    servers.broken = {"orders": Unreachable("HBase at h:1 did not answer")}
    for _ in range(3):
        (found,) = answers(asking, file)
        assert (found.status, found.detail) == (503, "Unreachable: HBase at h:1 did not answer")
    assert servers.asked == {"orders": 1}
    # A file that was changed may name another server.
    servers.broken = {}
    (found,) = answers(asking, stream(tmp_path, "orders", "description: changed\n"))
    assert found.status == 200


def test_what_is_wrong_with_a_stream_is_looked_at_again(tmp_path: Path, servers: Servers) -> None:
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")
    servers.broken = {"orders": LedgerContradiction("the head is missing")}
    assert answers(asking, file)[0].detail == "LedgerContradiction: the head is missing"
    servers.broken = {"orders": KeyError("canary")}
    (found,) = answers(asking, file)
    assert (found.status, "canary" in found.detail) == (500, False)
    servers.broken = {}
    assert answers(asking, file)[0].status == 200
    assert servers.asked == {"orders": 3}


def test_an_answer_is_kept_for_a_while(tmp_path: Path, servers: Servers) -> None:
    asking = CachedQueries(servers.show, Settings(page_cache_seconds=60))
    file = stream(tmp_path, "orders")
    assert {one.status for one in answers(asking, *[file] * 20)} == {200}
    assert answers(asking, file)[0].status == 200
    assert servers.asked == {"orders": 1}


def test_a_browser_that_goes_away_ends_nothing_for_others(tmp_path: Path, servers: Servers) -> None:
    asking, file = CachedQueries(servers.show, Settings(page_wait_seconds=30)), stream(tmp_path, "orders")
    servers.away = {"orders"}

    async def one_goes() -> Answer:
        gone, stays = asyncio.create_task(asking.answer(file)), asyncio.create_task(asking.answer(file))
        await asyncio.sleep(0.05)
        gone.cancel()
        servers.back.set()
        return await stays

    assert asyncio.run(one_goes()).status == 200
    assert servers.asked == {"orders": 1}


def until_answered(asking: CachedQueries, file: StreamFile) -> Answer:
    deadline = time.monotonic() + 60
    while (found := answers(asking, file)[0]).status != 200:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


@pytest.mark.slow
@pytest.mark.covers("Q25")
def test_who_asks_a_long_question_again_waits_for_the_same_answer(tmp_path: Path, servers: Servers) -> None:
    """As for a plan over many dead letters. Meanwhile other questions are answered, whatever the number of long ones."""
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")
    asked: Counter[str] = Counter()

    def question(key: str) -> Answer | str:
        def slow() -> str:
            asked[key] += 1
            assert servers.back.wait(60)
            return f"the answer to {key}"

        return asyncio.run(asking.long(file, key, slow, by=f"who asks {key}"))

    late = [question(key) for key in ("one", "two", "three", "one", "two")]
    assert [one.status for one in late if isinstance(one, Answer)] == [504] * 5
    began = time.monotonic()
    assert answers(asking, file)[0].status == 200
    assert time.monotonic() - began < AT_ONCE
    servers.back.set()
    for key in ("one", "two", "three"):
        found = question(key)
        for _ in range(20):
            if isinstance(found, str):
                break
            found = question(key)
        assert found == f"the answer to {key}"
    assert asked == {"one": 1, "two": 1, "three": 1}
    # An answer that was fetched is not kept: the ledger may have moved on.
    assert question("one") == "the answer to one"
    assert asked["one"] == 2


def test_a_stale_plan_is_no_servers_fault(tmp_path: Path, servers: Servers) -> None:
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")

    def stale() -> None:
        raise StaleLedger("the plan is stale")

    found = asyncio.run(asking.long(file, "one", stale))
    assert isinstance(found, Answer)
    assert (found.status, found.detail) == (409, "the plan is stale")


# how much one person may ask, and all together


def statuses(
    asking: CachedQueries, file: StreamFile, people: Iterable[str], slow: Callable[[], str], first: int = 0
) -> list[int | str]:
    """What many long questions at once are answered, each asked by the person beside it."""

    async def one(number: int, by: str) -> int | str:
        found = await asking.long(file, f"{number} of {by}", slow, by=by)
        return found.status if isinstance(found, Answer) else found

    async def all_of_them() -> list[int | str]:
        return await asyncio.gather(*(one(number, by) for number, by in enumerate(people, first)))

    return asyncio.run(all_of_them())


@pytest.mark.covers("Q28")
def test_too_many_long_questions_are_refused_and_none_is_given_up(tmp_path: Path, servers: Servers) -> None:
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")
    answers(asking, file)
    answered: list[int] = []

    def slow() -> str:
        assert servers.back.wait(60)
        answered.append(1)
        return "the answer"

    found = statuses(asking, file, [f"viewer {number}" for number in range(40)], slow)
    assert Counter(found) == {504: 32, 429: 8}
    servers.back.set()
    until(lambda: len(answered) == 32, "the questions were answered")
    # There is room again.
    assert statuses(asking, file, ["another"], slow) == ["the answer"]


@pytest.mark.covers("Q28")
def test_one_person_keeps_no_others_from_asking(tmp_path: Path, servers: Servers) -> None:
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")
    answers(asking, file)

    def slow() -> str:
        assert servers.back.wait(60)
        return "the answer"

    assert Counter(statuses(asking, file, ["ann"] * 10, slow)) == {504: MAX_LONG_OF_ONE, 429: 10 - MAX_LONG_OF_ONE}
    # One person keeps one of the threads busy.
    assert statuses(asking, file, ["bob"], lambda: "of bob") == ["of bob"]
    assert statuses(asking, file, ["ann"], lambda: "of ann", first=10) == [429]

    async def again() -> object:
        return await asking.long(file, "0 of ann", slow, by="carl")

    # Whoever waits for the same question asks nothing new.
    servers.back.set()
    assert asyncio.run(again()) == "the answer"


@pytest.mark.covers("Q28")
def test_other_questions_of_one_person_have_a_bound_too(tmp_path: Path, servers: Servers) -> None:
    asking, file = (
        CachedQueries(servers.show, Settings(page_wait_seconds=0.5, page_threads=32)),
        stream(tmp_path, "orders"),
    )
    answers(asking, file)

    def slow() -> str:
        assert servers.back.wait(60)
        return "the answer"

    async def asked(by: str, number: int) -> list[int | str]:
        found = await asyncio.gather(*(asking.once(file, slow, by=by) for _ in range(number)))
        return [one.status if isinstance(one, Answer) else one for one in found]

    assert Counter(asyncio.run(asked("ann", 20))) == {504: MAX_OF_ONE, 429: 20 - MAX_OF_ONE}
    assert asyncio.run(asked("bob", 1)) == [504]
    servers.back.set()
    until(lambda: asyncio.run(asked("ann", 1)) == ["the answer"], "there is room again")


@pytest.mark.covers("Q28", "Q25")
@pytest.mark.parametrize("way", ["once", "apart", "long"])
def test_nobody_waits_for_the_slow_questions_of_others(tmp_path: Path, servers: Servers, way: str) -> None:
    """As many as they have: with a thread for each person, and what one person asks more waits for its own turn."""
    asking, file = CachedQueries(servers.show, SETTINGS), stream(tmp_path, "orders")
    answers(asking, file)
    busy: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def asked(by: str, number: int, question: Callable[[], str]) -> object:
        if way == "apart":
            return await asking.apart(question, by=by)
        if way == "once":
            return await asking.once(file, question, by=by)
        return await asking.long(file, f"{number} of {by}", question, by=by)

    def slow() -> str:
        busy["ann"] += 1
        most["ann"] = max(most["ann"], busy["ann"])
        assert servers.back.wait(60)
        busy["ann"] -= 1
        return "of ann"

    async def all_of_ann() -> list[object]:
        return await asyncio.gather(*(asked("ann", number, slow) for number in range(20)))

    late = asyncio.run(all_of_ann())
    assert {one.status for one in late if isinstance(one, Answer)} == {504, 429}
    for by in ("bob", "carl", "bob"):
        assert asyncio.run(asked(by, len(by), lambda: "at once")) == "at once"
    assert most == {"ann": 1}
    # What has waited for its turn is asked, one after the other.
    servers.back.set()
    until(lambda: asyncio.run(asked("ann", 20, lambda: "of ann")) == "of ann", "there is room again")


@pytest.mark.covers("Q28")
def test_a_long_question_is_given_up_in_the_end(tmp_path: Path, servers: Servers) -> None:
    """One that only computes, as a plan of very many ranges does."""
    asking = CachedQueries(servers.show, Settings(page_wait_seconds=60, page_long_seconds=0.2))
    began = time.monotonic()

    def endless() -> str:
        while time.monotonic() < began + 60:
            RangeSet()
        return "nobody has ended it"

    found = asyncio.run(asking.long(stream(tmp_path, "orders"), "one", endless, by="ann"))
    assert isinstance(found, Answer)
    assert found.status == 400
    assert "took more than 0.2 s and was given up: ask for less at once" in found.detail
    # The thread is free, and the next question has its own time.
    assert asyncio.run(asking.long(stream(tmp_path, "orders"), "two", lambda: str(RangeSet()), by="ann")) != found


def _kafka() -> object:
    return KafkaLog(KafkaEndpoint("127.0.0.1:1")).names()


def _hbase() -> object:
    return Gateway(HBaseEndpoint("127.0.0.1", 1)).repeated("answer", lambda _: None)


def _zookeeper() -> object:
    return ZooKeeper(ZooKeeperEndpoint("127.0.0.1:1")).repeated("read")


@pytest.mark.covers("Q28")
@pytest.mark.parametrize("ask", [_kafka, _hbase, _zookeeper])
def test_whoever_has_taken_too_long_asks_no_server_any_more(ask: Callable[[], object]) -> None:
    with limited(-1, "too long"), pytest.raises(TookTooLong, match="too long"):
        ask()


# the files of the streams


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file is read, in a folder with a right one and a wrong one."""
    found: Counter[str] = Counter()

    def noted(path: Path) -> StreamFile:
        found[path.name] += 1
        return load(path)

    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path))
    monkeypatch.setattr(streams, "load", noted)
    stream(tmp_path, "orders")
    (tmp_path / "wrong.yaml").write_text("".join(f"k{number}: 1\n" for number in range(500)))
    return found


@pytest.mark.covers("Q28")
def test_a_wrong_file_is_not_read_for_each_viewer(tmp_path: Path, loads: Counter[str]) -> None:
    known = StreamCache()
    for _ in range(20):
        found, problems = known.now()
        assert list(found) == ["orders"]
        (wrong,) = problems
        assert wrong.name == "wrong"
        assert wrong.problem.count("\n") == 50
        assert wrong.problem.endswith("wrong.yaml: and 455 more problems")
    assert loads == {"orders.yaml": 1, "wrong.yaml": 1}
    # Until it changes.
    stream(tmp_path, "wrong")
    assert sorted(known.now()[0]) == ["orders", "wrong"]
    (tmp_path / "orders.yaml").unlink()
    assert (list(known.now()[0]), known.now()[1]) == (["wrong"], [])


@pytest.mark.covers("Q28")
def test_a_file_that_takes_long_holds_up_nobody(
    tmp_path: Path, loads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread reads it, and the others are given what was known before."""
    known, reading, goes_on = StreamCache(), threading.Event(), threading.Event()
    known.now()

    def slowly(path: Path) -> StreamFile:
        reading.set()
        assert goes_on.wait(60)
        return load(path)

    monkeypatch.setattr(streams, "load", slowly)
    stream(tmp_path, "slow")
    first = threading.Thread(target=known.now)
    first.start()
    assert reading.wait(60)
    assert [sorted(known.now()[0]) for _ in range(5)] == [["orders"]] * 5
    goes_on.set()
    first.join(60)
    assert sorted(known.now()[0]) == ["orders", "slow"]


@pytest.mark.covers("Q28")
def test_a_topic_that_a_viewer_types_meets_patterns_in_a_process_with_limits(tmp_path: Path) -> None:
    """Here it would take some years, and hold up all of Airflow's API meanwhile."""
    hard = 'pattern: "sec-([a-z0-9]+-?)+logs"\n  exclude: [sec-not-logs]'
    files = {"orders": stream(tmp_path, "orders")}
    for name, pattern in (("hard", hard), ("easy", 'pattern: "[a-z-]+"')):
        path = tmp_path / f"{name}.yaml"
        path.write_text(MINIMAL.replace("stream: orders", f"stream: {name}").replace("topics: [orders]", pattern))
        files[name] = load(path)
    access = StreamAccess(StreamCache(), cast("Any", None), CachedQueries(lambda _: {}, Settings(page_wait_seconds=60)))

    def reading(topic: str) -> tuple[set[str], list[str]]:
        return asyncio.run(access.reading(topic, files, SimpleNamespace(get_name=lambda: "ann")))

    assert reading("orders") == ({"orders", "easy"}, [])
    assert reading("sec-a-logs") == ({"hard", "easy"}, [])
    assert reading("sec-not-logs") == ({"easy"}, [])
    assert reading("__consumer_offsets") == (set(), [])
    # One hard pattern hides none of the others.
    named, slow = reading("sec-" + "a" * 200)
    assert named == {"easy"}
    assert [text.partition(": its pattern takes too long")[0] for text in slow] == ["hard"]


# the connections of a stream


@pytest.mark.covers("O6")
@pytest.mark.parametrize("ledger", ["hbase", "zookeeper"])
def test_a_stream_is_opened_with_every_connection_that_it_names(
    tmp_path: Path, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where dead letters and sinks have others than Kafka and the ledger. Opening it asks Airflow for two."""
    asked: list[str] = []

    def connection(name: str) -> Connection:
        asked.append(name)
        if name == "missing":
            raise ConnectionMissing(f"Airflow has no connection {name}")
        return nowhere(name)

    monkeypatch.setattr(streams, "from_airflow", connection)
    text = MINIMAL.replace(
        "dead_letters:",
        "  - {type: parquet, files: other_lake, folder: x}\n"
        "  - {type: hbase, name: more, table: more, hbase: missing}\ndead_letters:\n  hbase: other_hbase",
    )
    path = tmp_path / "orders.yaml"
    path.write_text(f"{text}ledger: {{type: {ledger}}}\n")
    file, servers = load(path), streams.Servers(3.0)
    opened = servers.open(file)
    assert sorted(asked) == sorted({"kafka_default", f"{ledger}_default"})
    for name in file.stream.connections() - {"missing"}:
        assert opened.connections(name).name == name
    with pytest.raises(ConnectionMissing, match="Airflow has no connection missing"):
        opened.connections("missing")
    assert opened.dead_letter_table() is not None
    assert servers.open(file) is opened


@pytest.mark.covers("U19", "Q25")
def test_many_streams_are_looked_at_at_once_and_one_that_is_away_delays_no_other(
    tmp_path: Path, servers: Servers
) -> None:
    """More streams of servers that hang than there are threads; the others have servers of their own."""
    asking = CachedQueries(servers.show, SETTINGS)
    hung = [stream(tmp_path, f"hung_{number}", ZOOKEEPER) for number in range(10)]
    others = [stream(tmp_path, f"other_{number}") for number in range(20)]
    servers.away = {file.stream.name for file in hung}
    flights = asking.look([*hung, *others], 60)
    until(lambda: sum(one.done() for one in flights) == len(others), "streams of other servers are not answered")
    assert [answer.status for file in others if (answer := asking.known(file)) is not None] == [200] * len(others)
    # A look while they hang begins nothing anew, and those that are asked for too long say so.
    assert len(asking.look([*hung, *others], 60)) == len(hung)
    until(lambda: (answer := asking.known(hung[0])) is not None and answer.status == 504, "it says nothing")
    assert asking.known(hung[-1]) is None
    assert servers.asked.total() == len(others) + SETTINGS.page_threads
    servers.back.set()
    until(lambda: all(one.done() for one in flights), "what hung is not answered")
    assert {answer.status for file in hung if (answer := asking.known(file)) is not None} == {200}
    # An answer that is new enough is not asked for again; one that is older is, and stays until there is another.
    assert asking.look(others, 60) == []
    (again,) = asking.look(others[:1], 0)
    until(again.done, "it is not asked again")
    assert servers.asked["other_0"] == 2
    # Nobody waits for the next answer while there is one that is not much older.
    for age, waited in ((100, 0), (130, 1)):
        for known in asking._streams.values():
            known.answered = time.monotonic() - age
        assert len(asking.look(others[1:2], 60)) == waited
        until(lambda: asking._streams["other_1", servers.show].flight is None, "it is not asked again")
    assert servers.asked["other_1"] == 3


@pytest.mark.covers("U19")
def test_what_one_stream_says_of_its_servers_holds_for_those_that_wait_for_them(
    tmp_path: Path, servers: Servers
) -> None:
    """Fifty streams of a server that is away do not each wait for it before they are known to be unreachable."""
    asking = CachedQueries(servers.show, SETTINGS)
    first, second, third = (stream(tmp_path, name) for name in ("first", "second", "third"))
    servers.broken["first"] = Unreachable("HBase at h:1 did not answer")
    servers.away = {"second", "third"}
    (flight,) = asking.look([first], 60)
    until(flight.done, "the first one is not answered")
    asking.look([second, third], 60)
    said = [getattr(asking.known(file), "detail", "") for file in (first, second, third)]
    assert said == ["Unreachable: HBase at h:1 did not answer"] * 3
    servers.back.set()
    until(lambda: getattr(asking.known(third), "status", 0) == 200, "it stays away")
    # The servers are there again: the next look says nothing else of anybody.
    assert getattr(asking.known(second), "status", 0) == 200


@pytest.mark.covers("Q25")
def test_an_answer_without_kafka_is_shown_and_questions_that_need_kafka_are_refused(
    tmp_path: Path, servers: Servers
) -> None:
    """And Kafka is not asked again at once, by whoever looks."""
    file, asked = stream(tmp_path, "orders"), Counter[str]()

    def show(_: StreamFile) -> LedgerAnswer:
        asked["show"] += 1
        return LedgerAnswer("what the ledger knows", "Unreachable: Kafka at k:1 did not answer")

    asking = CachedQueries(show, SETTINGS, servers.show)
    for _ in range(3):
        (answer,) = answers(asking, file)
        assert (answer.status, answer.found) == (200, "what the ledger knows")
    assert asked["show"] == 1
    refused = asyncio.run(asking.once(file, lambda: asked.update(["once"])))
    later = asyncio.run(asking.long(file, "key", lambda: asked.update(["long"])))
    for one in (refused, later):
        assert isinstance(one, Answer)
        assert (one.status, one.detail) == (503, "Unreachable: Kafka at k:1 did not answer")
    # What the ledger alone answers is asked.
    assert asyncio.run(asking.once(file, lambda: "a window", ledger_only=True)) == "a window"
    assert asked == {"show": 1}
