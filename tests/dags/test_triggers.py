"""What waits in Airflow's triggerer: sensors that are deferred, and the trigger of an AssetWatcher."""

from __future__ import annotations

import asyncio
from collections import UserList
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRescheduleException, TaskDeferred

from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory
from tidemark.airflow import connections
from tidemark.airflow.operators import CompleteSensor, WindowsSensor
from tidemark.airflow.triggers import BehindTrigger, NewSign, WindowsTrigger
from tidemark.airflow.waiting import Sign, behind, windows_there
from tidemark.errors import TidemarkError, Unreachable, WrongUse

SPAN = {"since": "1970-01-01T00:00Z", "until": "1970-01-01T01:00Z"}


class Looks:
    """How often the stream was looked at, what happens at a look, and what it raises."""

    def __init__(self, made: StreamInMemory) -> None:
        self.made, self.number = made, 0
        self.at: dict[int, Any] = {}

    def __call__(self, stream_file: str) -> Any:
        assert stream_file == "/streams/orders.yaml"
        self.number += 1
        happens = self.at.get(self.number)
        if isinstance(happens, Exception):
            raise happens
        if happens is not None:
            happens()
        return self.made.opened


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looks:
    """A stream with ten messages that nobody has read. Whoever opens it finds it in memory."""
    made = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    made.ends((0, 10))
    found = Looks(made)
    monkeypatch.setattr(connections, "open_here", found)
    return found


def again(trigger: Any) -> Any:
    """As Airflow's triggerer makes it, of what stands in the database."""
    path, kwargs = trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)(**kwargs)


def events(trigger: Any, number: int) -> list[Any]:
    """So many events of a trigger. One that ends earlier gives fewer."""

    async def first() -> list[Any]:
        found = []
        async for one in again(trigger).run():
            found.append(one.payload)
            if len(found) == number:
                break
        return found

    return asyncio.run(first())


@pytest.mark.covers("N74")
def test_a_sensor_is_deferred_until_its_offsets_are_there(looks: Looks) -> None:
    sensor = WindowsSensor(
        task_id="there", stream_file="/streams/orders.yaml", ranges=["orders/0@0-4", "orders/0@6-10"], poke_interval=0
    )
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})  # type: ignore[typeddict-item]
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout is not None
    looks.at[4] = looks.made.ingest
    assert events(deferred.value.trigger, 2) == [{}]
    assert looks.number == 4
    sensor.execute_complete({}, {})  # type: ignore[typeddict-item]
    # By now it is not deferred at all.
    assert sensor.execute({}) is None  # type: ignore[typeddict-item]


@pytest.mark.covers("N74")
def test_a_sensor_waits_for_what_another_task_gives(looks: Looks) -> None:
    with DAG("mine", schedule=None):
        sensor = WindowsSensor(
            task_id="there", stream_file="/streams/orders.yaml", ranges=EmptyOperator(task_id="find").output
        )
    assert sensor.upstream_task_ids == {"find"}
    # As Airflow gives what the instances of a mapped task have given.
    sensor.ranges = UserList(["orders/0@3-4", "orders/0@5-6"])
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})  # type: ignore[typeddict-item]
    given = deferred.value.trigger.serialize()[1]["ranges"]
    assert given == ["orders/0@3-4", "orders/0@5-6"]
    said = "2 offsets are not there yet: orders/0@3-4, orders/0@5-6"
    assert windows_there(looks.made.opened, given) == (False, said)


@pytest.mark.covers("N74")
def test_a_sensor_of_an_hour_is_deferred(looks: Looks) -> None:
    sensor = CompleteSensor(task_id="hour", stream_file="/streams/orders.yaml", **SPAN)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})  # type: ignore[typeddict-item]
    assert deferred.value.trigger.serialize()[1] == {
        "stream_file": "/streams/orders.yaml", "poke_interval": 60, **SPAN,
    }  # fmt: skip
    looks.made.ingest()
    looks.made.now = 10**12
    assert events(deferred.value.trigger, 2) == [{}]


@pytest.mark.covers("N74")
def test_a_sensor_without_a_triggerer_leaves_its_slot_between_looks(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = WindowsSensor(
        task_id="there", stream_file="/streams/orders.yaml", ranges="orders/0@0-10", deferrable=False
    )

    class Instance:
        def get_first_reschedule_date(self, _: Any) -> None:
            return None

    monkeypatch.setattr(type(sensor), "reschedule", True)
    with pytest.raises(AirflowRescheduleException):
        sensor.execute({"ti": Instance()})  # type: ignore[typeddict-item]
    assert looks.number == 1


@pytest.mark.covers("N74")
@pytest.mark.parametrize(
    ("problem", "raised"),
    [(Unreachable("HBase did not answer"), AirflowException), (WrongUse("no such topic"), AirflowFailException)],
)
def test_an_error_of_a_look_ends_the_wait_as_any_task_ends(
    looks: Looks, problem: TidemarkError, raised: type[Exception]
) -> None:
    """A try again mends some, and others not."""
    looks.at[2] = problem
    (event,) = events(WindowsTrigger("/streams/orders.yaml", 0, ranges="orders/0@0-10"), 2)
    assert event == {"error": f"{type(problem).__name__}: {problem}", "retried": problem.retriable}
    sensor = WindowsSensor(task_id="there", stream_file="/streams/orders.yaml", ranges="orders/0@0-10")
    with pytest.raises(raised) as failed:
        sensor.execute_complete({}, event)  # type: ignore[typeddict-item]
    assert type(failed.value) is raised


@pytest.mark.covers("N75")
def test_a_watcher_gives_a_sign_each_time_that_the_stream_has_fallen_behind(looks: Looks) -> None:
    """Once for the same messages, and not while servers are away. What an ingest has read is behind no more."""
    made = looks.made

    def more() -> None:
        made.ingest()
        made.ends((0, 25))

    # Nothing ends it, be it an error that nobody has foreseen.
    looks.at = {2: Unreachable("Kafka did not answer"), 3: RuntimeError("why?"), 5: made.ingest, 7: more}
    trigger = BehindTrigger("/streams/orders.yaml", messages=10, poke_interval=0)
    said = [one["said"] for one in events(trigger, 2)]
    assert said == ["10 messages are unread; the bound is 10", "15 messages are unread; the bound is 10"]
    assert looks.number == 7


@pytest.mark.covers("N75")
def test_how_far_behind_is_too_far(looks: Looks) -> None:
    made = looks.made
    # Nothing was read yet: nobody knows how old what is there is.
    assert behind(made.opened, None, 3600) is not None
    assert behind(made.opened, 11, None) is None
    made.ingest()
    assert behind(made.opened, 1, 1) is None
    made.ends((0, 14))
    # The first unread message is of the tenth second.
    made.now = 10_000 + 59_000
    assert behind(made.opened, 5, 60) is None
    assert behind(made.opened, 4, 60) == Sign("orders", "4 messages are unread; the bound is 4", 1)
    made.now += 1_000
    assert behind(made.opened, 5, 60) == Sign(
        "orders", "an unread message is 60 seconds old; the bound is 60 seconds", 1
    )


@pytest.mark.covers("N75")
def test_a_sign_is_given_again_when_nothing_came_of_it() -> None:
    passed = NewSign(again_seconds=900)
    sign = Sign("orders", "behind", 3)
    assert [passed.is_new(sign, now) for now in (0, 1, 899, 900, 901)] == [True, False, False, True, False]
    assert passed.is_new(Sign("orders", "behind", 4), 902)


@pytest.mark.covers("N75")
@pytest.mark.parametrize(("given", "said"), [({}, "how far behind"), ({"messages": 0}, "messages is 0")])
def test_a_watcher_without_a_bound_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        BehindTrigger("/streams/orders.yaml", **given)
