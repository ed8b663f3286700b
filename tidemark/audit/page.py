"""An audit's report as an HTML page that stands alone: one file, no script, nothing loaded, every text escaped. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidemark.audit.repair import verdict
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.offsets.counting import number_of

# Light or dark as the reader's system: the page stands alone, and knows no other choice.
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
body { background: light-dark(#fff, #18212a); color: light-dark(#1c2024, #e4e9ee); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.good { color: light-dark(#18794e, #5fd39a); } .bad { color: light-dark(#b3261e, #ff8a80); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid light-dark(#d7dbdf, #33404c); vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
code, li { overflow-wrap: anywhere; }
"""
# For servers: the policy that lets this page have its own style, and nothing else.
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)

_KINDS = ("missing", "different", "extra", "twice")
_PAGES = Environment(loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined)


def page_of(first: AuditReport, again: AuditReport | None = None) -> str:
    """The page of a report, and of the audit that followed its repair, if one did."""
    return _PAGES.get_template("page.html.jinja").render(
        first=first,
        again=again,
        outcome=verdict(first, again),
        style=Markup(_STYLE),  # noqa: S704 - ours, and escaped it would be another text than that of the policy
        kinds=list(_KINDS),
        facts=_facts,
        differences=_differences,
        number_of=number_of,
    )


def _facts(report: AuditReport) -> dict[str, object]:
    return {
        "run": report.run,
        "time": f"{datetime.fromtimestamp(report.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC",
        "code": report.code_version,
        "level": report.level.value,
        "looked at": report.level.looked_at,
        "says nothing about": report.level.left_out,
        "windows": report.windows,
        **({} if report.share is None else {"share": str(report.share)}),
    }


def _differences(place: PlaceReport) -> list[str]:
    lines: list[str] = []
    for kind in _KINDS:
        shown: Sequence[str] = getattr(place, f"{kind}_at")
        lines += [f"{kind} {example}" for example in shown]
        if more := getattr(place, kind) - len(shown):
            lines.append(f"{kind}: {number_of(more, 'more row')}")
    lines += [f"block {block}" for block in place.blocks_at]
    if more := place.blocks - len(place.blocks_at):
        lines.append(number_of(more, "more block"))
    return lines
