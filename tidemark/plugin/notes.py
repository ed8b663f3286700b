"""The note of a run, which Airflow's own pages show beside it: the run's answer in one line, and why it was asked for.

Airflow's scheduler calls this when a run of ours has ended: no task can write its run's note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from tidemark.views.summary import ANSWER

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

KINDS = frozenset({"ingest", "backfill", "replay", "audit", "erase"})
# Characters that Airflow takes; of these, the most that an answer has, and the fewest that say something.
_MAX, _MAX_ANSWER, _LEAST_ANSWER = 1000, 700, 20
_BEGINS = "Answer: "


class RunListener:
    """Listens for the end of runs."""

    @hookimpl
    def on_dag_run_success(self, dag_run: DagRun, msg: str) -> None:
        _note(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: DagRun, msg: str) -> None:
        _note(dag_run)


def with_answer(note: str | None, answer: str, reason: str) -> str:
    """The note of a run with its newest answer first. What people have written stays whole, an earlier answer does not.

    Unchanged where there is no room for an answer.
    """
    plain = _stored(" ".join(answer.split()))
    paragraphs = [one for one in (note or "").split("\n\n") if one and not one.startswith(_BEGINS)]
    if reason and not paragraphs:
        left = _MAX - len(_BEGINS) - min(len(plain), _MAX_ANSWER) - 2
        paragraphs = [_stored(f"Reason: {reason}")[:left]]
    kept = "".join(f"\n\n{one}" for one in paragraphs)
    room = min(_MAX_ANSWER, _MAX - len(kept) - len(_BEGINS))
    if room < _LEAST_ANSWER:
        return note or ""
    shown = plain if len(plain) <= room else f"{plain[: room - 2]} …"
    return f"{_BEGINS}{shown}{kept}"


def _stored(text: str) -> str:
    """A text as any database takes it: a character that one refuses would stop the scheduler, which writes it."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _note(run: DagRun) -> None:
    if run.dag_id.rpartition("__")[2] not in KINDS:
        return
    answer = _answer_of(run)
    if answer:
        reason = (run.conf or {}).get("reason")
        run.note = with_answer(run.note, answer, reason if isinstance(reason, str) else "")


def _answer_of(run: DagRun) -> str | None:
    """The newest answer that a task of the run has kept, read within what the scheduler does with the run."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(run)
    if session is None:
        return None
    wanted = (
        select(XComModel.value)
        .where(XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == ANSWER)
        .order_by(XComModel.timestamp.desc())
        .limit(1)
    )
    # The scheduler holds locks: it allows no commit here, and what it has changed is written when it commits.
    with session.no_autoflush:
        stored: Any = session.execute(wanted).first()
    answer = XComModel.deserialize_value(stored) if stored is not None else None
    return answer if isinstance(answer, str) else None
