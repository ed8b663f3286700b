"""Every error that people can meet is explained, with the code that it ends a program with."""

from __future__ import annotations

import re

from tests.covering import REPOSITORY
from tidemark import errors
from tidemark.errors import TidemarkError

_ROW = re.compile(r"^\| `(\w+)` \| (\d+)")


def test_the_documents_name_every_error_with_its_code() -> None:
    text = (REPOSITORY / "docs" / "errors.md").read_text()
    explained = {match[1]: int(match[2]) for line in text.splitlines() if (match := _ROW.match(line))}
    raised = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, TidemarkError) and kind is not TidemarkError
    }
    assert explained == raised
