"""The texts of a registry are other people's: whatever a schema imports, only that schema is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import google.type
import pytest
from _pytest.outcomes import Failed
from google.protobuf import descriptor_pb2

from tests.model.planting import planted
from tidemark.clients.protobuf_files import set_of
from tidemark.clients.protobuf_known import KNOWN

_DECIMAL = "confluent/type/decimal.proto"
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


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        # A schema's author writes a file anywhere, or ends the program by a name.
        ("../out.proto", ' or ".." in path.parts', ""),
        ("/tmp/out.proto", "path.is_absolute() or ", ""),
        ("a" * 300 + ".proto", "        if problem.errno in _OF_NAMES:\n", "        if False:\n"),
    ],
)
def test_planted_bugs_of_imports_are_found(name: str, old: str, new: str) -> None:
    with planted("tidemark.clients.protobuf_files", old, new), pytest.raises((Exception, Failed)):
        test_an_import_that_no_file_can_be_named_by_refuses_its_schema((name,))


@pytest.mark.covers("N112")
def test_what_serializers_keep_from_a_registry_is_known() -> None:
    """A file of the same name that the registry has counts instead. Google's are those of the package that has them all."""
    text = _MAIN.replace("message", "".join(f'import "{name}"; ' for name in KNOWN) + "message", 1)
    files = {file.name: file for file in descriptor_pb2.FileDescriptorSet.FromString(set_of(text, {})).file}
    common = Path(google.type.__path__[0])
    theirs = {name: (common / Path(name).name).read_text() for name in KNOWN if name.startswith("google/type/")}
    of_package = descriptor_pb2.FileDescriptorSet.FromString(set_of(text, theirs)).file
    for file in (one for one in of_package if one.name in theirs):
        ours = files[file.name]
        assert [*map(str, ours.message_type)] == [*map(str, file.message_type)]
        assert [*map(str, ours.enum_type)] == [*map(str, file.enum_type)]
    mine = 'syntax = "proto3"; package confluent.type; message Decimal { string text = 7; }'
    own = _MAIN.replace("int64 id", "confluent.type.Decimal id").replace("message", f'import "{_DECIMAL}"; message', 1)
    (of_registry, _) = descriptor_pb2.FileDescriptorSet.FromString(set_of(own, {_DECIMAL: mine})).file
    assert of_registry.message_type[0].field[0].name == "text"


@pytest.mark.covers("N112")
def test_protoc_reads_a_file_and_what_it_imports_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = subprocess.run

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(*given, **named)

    monkeypatch.setattr(subprocess, "run", counted)
    main = 'syntax = "proto3"; package once; import "a.proto"; import "b.proto"; message Once { A a = 1; B b = 2; }'
    parts = {f"{name}.proto": f'syntax = "proto3"; package once; message {name.upper()} {{}}' for name in ("a", "b")}
    found = set_of(main, parts)
    assert set_of(main, dict(reversed(parts.items()))) == found
    assert calls == 1
    # Another version of what it imports is another schema.
    changed = set_of(main, {**parts, "a.proto": parts["a.proto"].replace("{}", "{ int64 id = 1; }")})
    assert (changed != found, calls) == (True, 2)
