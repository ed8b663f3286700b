"""The task `approve`: a second person approves a large replay or backfill, by Airflow's human in the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from tidemark.errors import NotApproved
from tidemark.offsets.counting import number_of
from tidemark.runs.requests.approval import Requesters, check_another, needs_approval

if TYPE_CHECKING:
    from airflow.sdk import Context, TriggerRule

_TASK = "approve"
_REJECTED_BY = "rejected_by"


class SecondPerson(ApprovalOperator):
    """Wait for an approval when the task `check` has found more offsets than `approve_above`; go on at once otherwise.

    Anyone with Airflow's permission to answer may, but not the user who has triggered the run. Rejecting skips the rest of
    the run. Nothing is claimed meanwhile. The result names who approved, and which selection; the XCom `rejected_by` who
    rejected.
    """

    def __init__(self, *, approve_above: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approve_above = approve_above

    def execute(self, context: Context) -> None:
        counts = context["ti"].xcom_pull(task_ids="check", key="found")
        if not needs_approval(self.approve_above, counts["offsets"]):
            self.log.info("%s offsets need no approval", counts["offsets"])
            return
        user, reason = context["dag_run"].triggering_user_name, context["params"]["reason"]
        offsets = number_of(counts["offsets"], "offset")
        self.subject = f"{context['dag'].dag_id}: {offsets}, for {user or 'a run that no user triggered'}"
        self.body = f"Reason: {reason}\n\nOffsets: {', '.join(counts['ranges'])}"
        if (changes := context["ti"].xcom_pull(task_ids="show_changes", key="changes")) is not None:
            self.body += f"\n\nWhat it changes: {changes['sentence']}"
        context["ti"].xcom_push(key="selection", value=counts["selection"])
        super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, str] | None:
        asked, user = context["dag_run"].triggering_user_name, event.get("responded_by_user")
        if event.get("chosen_options") == [self.REJECT]:
            context["ti"].xcom_push(
                key=_REJECTED_BY, value=user["name"] if user else "a user whom Airflow does not name"
            )
        # It does not return where the rest of the run is skipped.
        answer = super().execute_complete(context, event)
        if answer["chosen_options"] != [self.APPROVE]:
            return None
        if user is None:
            raise AirflowFailException(
                "NotApproved: Airflow does not say which user approved it, so nobody knows whether it was a second person. "
                "Clear this task to ask again"
            )
        try:
            check_another(Requesters(asked, user["name"]))
        except NotApproved as problem:
            raise AirflowFailException(f"NotApproved: {problem}. Clear this task to ask again") from problem
        return {"approved_by": user["name"], "selection": context["ti"].xcom_pull(task_ids=_TASK, key="selection")}


def second_person(approve_above: int, trigger_rule: TriggerRule) -> SecondPerson:
    # The task writes its own subject, when it knows the offsets. A retry would ask the same people once more.
    return SecondPerson(
        task_id=_TASK,
        doc_md="Wait until a second person approves this many offsets. Small requests go on at once.",
        subject="Replay or backfill",
        approve_above=approve_above,
        retries=0,
        trigger_rule=trigger_rule,
    )


def approved_by(context: Mapping[str, Any], selection: str) -> str | None:
    """Who has approved this selection in this run; None for nobody, as where `check` has run again since and found another."""
    answer = context["ti"].xcom_pull(task_ids=_TASK)
    return answer["approved_by"] if answer and answer["selection"] == selection else None


def rejected_by(context: Mapping[str, Any], dag: str, run: str) -> str | None:
    """Who has rejected a run of another DAG; None where that run went on."""
    name: str | None = context["ti"].xcom_pull(task_ids=_TASK, dag_id=dag, run_id=run, key=_REJECTED_BY)
    return name
