"""Plans as files: what is saved is loaded again, and carried out exactly so or not at all. Over a Kafka in memory."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.streams_in_memory import TEXT, KafkaInMemory, StreamInMemory, at
from tidemark.errors import SourceChanged, StaleLedger, WrongUse
from tidemark.ledger.records import positions
from tidemark.runs import lanes, saved_plans
from tidemark.runs.saved_plans import SavedPlan, differences, load, make, pin, save


@pytest.fixture
def orders(tmp_path: Path) -> StreamInMemory:
    made = StreamInMemory(tmp_path, kafka=KafkaInMemory())
    made.ends((3, 9))
    return made


def planned(made: StreamInMemory) -> SavedPlan:
    plan = make(made.opened)
    assert plan is not None
    return plan


def digest(values: dict[str, Any]) -> str:
    rest = {key: value for key, value in values.items() if key != "digest"}
    return sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def test_a_plan_is_saved_once_and_loaded_as_it_was(orders: StreamInMemory, tmp_path: Path) -> None:
    plan, path = planned(orders), tmp_path / "plan.json"
    assert orders.store.values == {}
    assert (plan.seq, plan.window.seq, plan.positions) == (0, 1, positions({at(0): 3}))
    save(plan, path)
    assert load(path) == plan
    assert '\n "stream": "orders",\n' in path.read_text()
    assert plan.digest == digest(json.loads(path.read_text()))
    with pytest.raises(WrongUse, match="the plan cannot be written: File exists"):
        save(plan, path)


def test_a_file_that_is_no_plan_is_refused(
    orders: StreamInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    save(planned(orders), path)
    whole = json.loads(path.read_text())
    size = path.stat().st_size
    for other, said in (
        ([1], "not a plan of format 1"),
        ({**whole, "format": 2}, "not a plan of format 1"),
        ({**whole, "made_at": 7}, f"was changed by hand: its digest is {whole['digest']}, that of its contents"),
        ({"format": 1, "digest": digest({"format": 1})}, "not a saved plan: Object missing required field"),
    ):
        path.write_text(json.dumps(other))
        with pytest.raises(WrongUse, match=said):
            load(path)
    with pytest.raises(WrongUse, match="cannot be read: No such file"):
        load(tmp_path / "missing.json")
    path.write_text(json.dumps(whole, indent=1) + "\n")
    monkeypatch.setattr(saved_plans, "_MOST_BYTES", size)
    load(path)
    monkeypatch.setattr(saved_plans, "_MOST_BYTES", size - 1)
    with pytest.raises(WrongUse, match=f"not a saved plan: it has more than {size - 1} bytes"):
        load(path)


def test_what_differs_from_the_plan_is_shown(orders: StreamInMemory) -> None:
    plan = planned(orders)
    assert differences(plan, planned(orders)) == []
    orders.ends((3, 12))
    assert differences(plan, planned(orders)) == [{"what": "range of orders/0", "saved": "[3, 9)", "now": "[3, 12)"}]
    orders.ingest()
    orders.ends((3, 15))
    assert differences(plan, planned(orders)) == [
        {"what": "window", "saved": "1", "now": "2"},
        {"what": "position of orders/0", "saved": "3", "now": "12"},
        {"what": "range of orders/0", "saved": "[3, 9)", "now": "[12, 15)"},
    ]
    assert {"what": "window", "saved": "1", "now": None} in differences(plan, None)


def test_exactly_the_plan_is_pinned_once(orders: StreamInMemory) -> None:
    plan = planned(orders)
    orders.ends((3, 12))
    orders.now += 60_000
    pending = pin(orders.opened, plan, "run 9")
    assert pending is not None
    window = pending.window
    assert [(one.start, one.until) for one in window.ranges] == [(3, 9)]
    assert (window.run, window.pinned_at, window.goal) == ("run 9", orders.now, positions({at(0): 9}))
    # Another run of the same plan finds it pinned, and uses it.
    orders.now += 1
    assert pin(orders.opened, plan, "run 10") == pending
    orders.process("ingest", "run 9")
    assert pin(orders.opened, plan, "run 9") is None
    said = "1 windows are committed, 0 were when the plan was made, the last one by run run 9"
    with pytest.raises(StaleLedger, match=said):
        pin(orders.opened, plan, "run 10")


def test_a_run_goes_no_further_than_its_plan_and_not_to_the_end_that_the_plan_saw(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, kafka=KafkaInMemory(), text=TEXT + "limits: {max_records: 4}\n")
    made.ends((3, 9))
    plan = planned(made)
    assert plan.window.goal == positions({at(0): 9})
    for run in ("run 9", "run 10"):
        pending = pin(made.opened, plan, run)
        assert pending is not None
        assert pending.window.goal == positions({at(0): 7})


def test_a_window_that_another_run_has_pinned_just_so_is_used(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, kafka=KafkaInMemory(), text=TEXT + "limits: {max_records: 4}\n")
    made.ends((3, 9))
    plan = planned(made)
    pinned = lanes.plan_ingest(made.opened, "run 8")
    assert pinned is not None
    assert pinned.window.goal == positions({at(0): 9})
    assert pin(made.opened, plan, "run 9") == pinned


def test_a_plan_that_the_run_itself_has_overtaken_is_stale(orders: StreamInMemory) -> None:
    plan = planned(orders)
    orders.ends((3, 12))
    orders.ingest("run 9")
    orders.ends((3, 5))
    with pytest.raises(StaleLedger, match="1 windows are committed, 0 were when the plan was made"):
        pin(orders.opened, plan, "run 9")


def test_of_a_kafka_that_has_changed_nothing_is_pinned_or_learned(orders: StreamInMemory) -> None:
    plan = planned(orders)
    orders.ends((3, 7))
    with pytest.raises(
        SourceChanged, match="since the plan was made: orders/0: the log now ends at 7, the window at 9"
    ):
        pin(orders.opened, plan, "run 9")
    assert orders.store.values == {}
    orders.ends((3, 9))
    orders.ingest()
    orders.ends((3, 12))
    plan = planned(orders)
    orders.kafka.ids["orders"] = "another"
    with pytest.raises(SourceChanged, match="topic orders was recreated"):
        pin(orders.opened, plan, "run 10")
