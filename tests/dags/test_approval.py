"""The task `approve`: who may approve, and what was approved. The answers of people are given here as Airflow gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowFailException

from tidemark.airflow.approval import SecondPerson, approved_by, second_person

SELECTION = "a" * 64


class Task:
    """A task instance: what `check` has found, and what `approve` has pushed and returned."""

    def __init__(self, offsets: int) -> None:
        self.found = {"offsets": offsets, "ranges": ["orders/0@0-15"], "selection": SELECTION}
        self.values: dict[tuple[str, str], Any] = {("check", "found"): self.found}

    def xcom_push(self, key: str, value: Any) -> None:
        self.values["approve", key] = value

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        return self.values.get((task_ids, key))


def context(task: Task, asked: str | None = "ann") -> Any:
    return {
        "ti": task,
        "dag_run": SimpleNamespace(triggering_user_name=asked),
        "dag": SimpleNamespace(dag_id="orders__replay"),
        "params": {"reason": "bug 17"},
    }


def answered(operator: SecondPerson, task: Task, user: str | None, asked: str | None = "ann") -> Any:
    """What the task returns after this user has approved."""
    task.xcom_push("selection", SELECTION)
    responder = None if user is None else {"id": user, "name": user}
    event = {
        "chosen_options": ["Approve"],
        "params_input": {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": responder,
    }
    found = operator.execute_complete(cast("Any", context(task, asked)), event)
    task.xcom_push("return_value", found)
    return found


@pytest.fixture
def operator() -> SecondPerson:
    return second_person(10, TriggerRule.ALL_SUCCESS)


@pytest.mark.parametrize("asked", ["ann", None])
def test_another_person_approves_one_selection_and_no_other(operator: SecondPerson, asked: str | None) -> None:
    task = Task(15)
    answered(operator, task, "bob", asked)
    assert approved_by(context(task), SELECTION) == "bob"
    # `check` has run again since, and has found other offsets.
    assert approved_by(context(task), "b" * 64) is None


@pytest.mark.parametrize(("user", "said"), [("ann", "ann has asked for it"), (None, "nobody knows whether")])
def test_the_one_who_asked_does_not_approve_and_nobody_does_not_either(
    operator: SecondPerson, user: str | None, said: str
) -> None:
    task = Task(15)
    with pytest.raises(AirflowFailException, match=said):
        answered(operator, task, user)
    assert approved_by(context(task), SELECTION) is None


def test_the_second_person_reads_what_the_replay_changes(
    operator: SecondPerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApprovalOperator, "execute", lambda *_: None)
    task = Task(15)
    operator.execute(cast("Any", context(task)))
    assert "changes" not in operator.body
    task.values["show_changes", "changes"] = {"sentence": "hbase: 8 the same, 2 changed (amount 2)"}
    operator.execute(cast("Any", context(task)))
    assert operator.body.endswith("What it changes: hbase: 8 the same, 2 changed (amount 2)")


def test_few_offsets_wait_for_nobody(operator: SecondPerson) -> None:
    task = Task(10)
    operator.execute(cast("Any", context(task)))
    assert ("approve", "selection") not in task.values
    assert approved_by(context(task), SELECTION) is None
