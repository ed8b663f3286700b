"""The texts of a registry are other people's: whatever a schema imports, only that schema is refused."""

from __future__ import annotations

import pytest

from tidemark.clients.protobuf_files import set_of

_MAIN = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'


@pytest.mark.covers("N112")
@pytest.mark.parametrize(
    "names",
    [
        ("../out.proto",),
        ("/tmp/out.proto",),
        ("",),
        ("a\0b.proto",),
        ("a" * 300 + ".proto",),
        ("/".join(["a" * 200] * 30) + ".proto",),
        ("a", "a/b.proto"),
        ("a/b", "a"),
    ],
)
def test_an_import_that_no_file_can_be_named_by_refuses_its_schema(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"it imports '.*, which is no name of a file"):
        set_of(_MAIN, dict.fromkeys(names, 'syntax = "proto3";'))
