"""The routes of one run: its answers to offsets, the report of an audit, and the comparison of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from tidemark.audit.page import CONTENT_SECURITY_POLICY, page_of
from tidemark.plugin import serving
from tidemark.plugin.stream_access import StreamAccess, User
from tidemark.runs.auditing import after_repair, find_report
from tidemark.runs.comparisons import comparison_value, find_comparison
from tidemark.runs.live.open_stream import OpenStream

# The names of a DAG and of a run have up to 250 characters each.
_MAX_OF_A_RUN = 600
_NO_REPORT = "no such report: the page Audits lists those that the ledger has"


@dataclass(frozen=True)
class ComparisonShown:
    """`comparison`: as `tidemark report --json` has it; null for a run that has compared nothing."""

    comparison: dict[str, Any] | None


def routes(access: StreamAccess) -> APIRouter:
    router = APIRouter(tags=["runs"])

    @router.get("/run", include_in_schema=False)
    async def run(request: Request) -> Response:
        """The answers to the offsets of a run. The page asks Airflow's own API for them."""
        return serving.page("run", request)

    @router.get("/streams/{name}/audit", responses=serving.PROBLEMS, response_class=HTMLResponse)
    async def audit_report(
        name: str, run: Annotated[str, Query(min_length=1, max_length=_MAX_OF_A_RUN)], user: User
    ) -> Response:
        """The report of an audit, as the page that `tidemark report --html` writes."""
        text = await access.ask(name, user, lambda opened: _report(opened, run), _NO_REPORT, ledger_only=True)
        return HTMLResponse(text, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})

    @router.get("/api/streams/{name}/comparison", responses=serving.PROBLEMS)
    async def comparison(
        name: str, run: Annotated[str, Query(min_length=1, max_length=_MAX_OF_A_RUN)], user: User
    ) -> ComparisonShown:
        """What a replay was going to change, as it was compared before its first window."""
        return await access.ask(name, user, lambda opened: _compared(opened, run), "no comparison", ledger_only=True)

    return router


def _compared(opened: OpenStream, run: str) -> ComparisonShown:
    found = find_comparison(opened, run)
    return ComparisonShown(None if found is None else comparison_value(found))


def _report(opened: OpenStream, run: str) -> str | None:
    report = find_report(opened, run)
    return None if report is None else page_of(report, after_repair(opened, report))
