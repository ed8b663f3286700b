"""An audit's report as an HTML page that stands alone: one file, no script, nothing loaded, every text escaped. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape

from tidemark.audit.repair import verdict
from tidemark.audit.report import AuditReport, PlaceReport

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
_COVERAGE = ("partition", "start", "position", "covered", "holes", "overlaps", "lost", "skipped")
_SOURCE = ("partition", "log_start", "position", "end", "held", "expired", "unread", "problem")
_GAPS = ("partition", "offsets", "messages", "aborted", "markers", "compacted", "unexplained", "ranges")
_TOMBSTONES = ("window", "offsets", "reason", "asked_by", "approved_by", "ranges")
_FORGOTTEN = ("name", "place", "reason", "by")


def page_of(first: AuditReport, again: AuditReport | None = None) -> str:
    """The page of a report, and of the audit that followed its repair, if one did."""
    outcome = verdict(first, again)
    said = "good", "Clean" if again is None else "Repaired"
    if not outcome.clean:
        said = "bad", "Not clean"
    title = escape(f"Audit of {first.stream}")
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>',
        f'<h1>{title}: <span class="{said[0]}">{said[1]}</span></h1>',
        f"<p>{escape(outcome.sentence)}</p>",
        *_audit(first),
    ]
    if again is not None:
        parts += [f"<h1>The audit after the repair: {_mark(again)}</h1>", *_audit(again)]
    return "\n".join([*parts, "</body></html>", ""])


def _mark(report: AuditReport) -> str:
    return f'<span class="{"good" if report.clean else "bad"}">{"clean" if report.clean else "not clean"}</span>'


def _audit(report: AuditReport) -> Iterable[str]:
    at = f"{datetime.fromtimestamp(report.at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    facts = {
        "run": report.run,
        "time": at,
        "code": report.code_version,
        "level": report.level.value,
        "looked at": report.level.looked_at,
        "says nothing about": report.level.left_out,
        "windows": report.windows,
        **({} if report.share is None else {"share": str(report.share)}),
    }
    yield _table((), facts.items())
    yield f"<p>{escape(report.sentence())}</p>"
    if report.problems:
        yield _heading("Problems")
        yield _list(report.problems)
    if report.places:
        yield from _places(report)
    if report.findings is not None:
        selection = f"<code>{escape(report.findings.digest)}</code>"
        yield f"<p>The findings, {report.findings.offsets} offsets, are the selection {selection}.</p>"
    if report.gaps:
        yield _heading("Offsets without a message")
        yield _fields(_GAPS, report.gaps)
    if report.tombstones:
        yield _heading("Erased")
        yield _fields(_TOMBSTONES, report.tombstones)
    if report.forgotten:
        yield _heading("Places that are gone for good: what was erased later was not cleared there")
        yield _fields(_FORGOTTEN, report.forgotten)
    if report.source:
        yield _heading("Kafka")
        yield _fields(_SOURCE, report.source)
    yield _heading("Coverage")
    yield _fields(_COVERAGE, report.coverage)


def _places(report: AuditReport) -> Iterable[str]:
    yield _heading("Sinks and dead letters")
    rows = ("expected", "found", *_KINDS) if report.level.reads_messages else ()
    yield _fields(("name", *rows, "debris", "compacted", "expired", "replaced", "blocks", "unproven"), report.places)
    if report.not_compared:
        yield f"<p>Not compared: {escape(', '.join(report.not_compared))}.</p>"
    for place in report.places:
        if found := list(_differences(place)):
            yield _heading(f"Differences in {place.name}")
            yield _list(found)


def _differences(place: PlaceReport) -> Iterable[str]:
    for kind in _KINDS:
        shown: Sequence[str] = getattr(place, f"{kind}_at")
        yield from (f"{kind} {one}" for one in shown)
        if more := getattr(place, kind) - len(shown):
            yield f"{kind}: {more} more rows"
    yield from (f"block {one}" for one in place.blocks_at)
    if more := place.blocks - len(place.blocks_at):
        yield f"{more} more blocks"


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _list(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in texts)}</ul>"


def _fields(names: Sequence[str], values: Iterable[object]) -> str:
    return _table([one.replace("_", " ") for one in names], ([getattr(one, name) for name in names] for one in values))


def _table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    head = f"<tr>{''.join(f'<th>{escape(one)}</th>' for one in columns)}</tr>" if columns else ""
    cells = ("".join(map(_cell, row)) for row in rows)
    return f"<table>{head}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'.replace(",", "&nbsp;")
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else value
    return f"<td>{escape(str(text)) if text not in (None, '') else '-'}</td>"
