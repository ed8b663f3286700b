"""The table of docs/benchmarks.md, from the results; and putting a table into a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from services.site import REPOSITORY

RESULTS = REPOSITORY / "docs" / "benchmarks.json"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- results -->", "<!-- end of results -->"


def table(results: dict[str, Any]) -> str:
    """A Markdown table: a row for each measure."""
    lines = [
        "| measure | ratio: minimum, median, maximum | target | met | messages, pairs | day |",
        "|---|---|---|---|---|---|",
    ]
    for one in results.values():
        ratio, messages = one["ratio"], f"{one['messages']:,}" if one["messages"] else "none"
        target = "none" if one["target"] is None else f"{'≥' if one['speed'] else '≤'} {one['target']}"
        met = {True: "yes", False: "**no**", None: ""}[one["met"]]
        lines.append(
            f"| {one['what']} | {ratio['min']}, **{ratio['median']}**, {ratio['max']} | {target} | {met} | "
            f"{messages}, {one['pairs']} | {one['day']} |"
        )
    return "\n".join(lines)


def write(results: dict[str, Any], names: Iterable[str]) -> None:
    """Put results into the file and the page, beside the earlier ones of other measures. `names` give the order."""
    found = (json.loads(RESULTS.read_text()) if RESULTS.exists() else {}) | results
    found = {name: found[name] for name in names if name in found}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    put(PAGE, table(found))


def put(page: Path, results: str) -> None:
    """Put Markdown between the marks of a page, in place of what is there."""
    text = page.read_text(encoding="utf-8")
    new = f"{_BEGIN}\n{results}\n{_END}"
    page.write_text(re.sub(f"{_BEGIN}.*{_END}", lambda _: new, text, flags=re.DOTALL), encoding="utf-8")
