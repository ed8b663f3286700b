"""Files of Protocol Buffers as sets of descriptors: what `protoc` makes of the texts that a schema registry has.

The texts are other people's, so `protoc` reads them in a process of its own, which has limits. That takes about 0.1 s, once in
a process of ours for a file and all that it imports. Nothing is kept for other processes: what a file says decides which rows
come of messages, and no file of a cache should.
"""

from __future__ import annotations

import errno
import importlib.util
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

from tidemark.clients.protobuf_known import KNOWN
from tidemark.errors import PROTOBUF, PackageMissing, install

_MAIN: Final = "_schema_of_the_registry.proto"
_SECONDS: Final = 20.0
# Memory is limited in the process itself.
_PROGRAM: Final = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from grpc_tools import protoc
sys.exit(protoc.main(sys.argv))
"""
_MAX_SAID: Final = 200
# An error of a file. Its libraries say other things, too.
_OF_A_FILE: Final = re.compile(r"[^\s:]+\.proto:(?![\d:]* warning:)")
# Of a name that is too long, or that is a file to one import and a folder to another one. A full disk is nobody's schema.
_OF_NAMES: Final = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)


def set_of(text: str, imports: Mapping[str, str]) -> bytes:
    """The FileDescriptorSet of a file, of which it is the last, and of all that it imports.

    `imports` are the texts of files by the names that they are imported by. Google's own need not be among them, nor what
    serializers keep from a registry, but one that is there counts. Raises ValueError for a text that protoc
    refuses, and PackageMissing.
    """
    return _set_of(text, tuple(sorted(imports.items())))


@lru_cache(maxsize=100)
def _set_of(text: str, imports: tuple[tuple[str, str], ...]) -> bytes:
    package = importlib.util.find_spec("grpc_tools")
    if package is None or package.origin is None:
        raise PackageMissing(f"Protobuf by a schema registry needs the package grpcio-tools: {install(*PROTOBUF)}")
    with TemporaryDirectory(prefix="tidemark-protobuf-") as given:
        folder = Path(given).resolve()
        made = folder / "set"
        for name, one in ((_MAIN, text), *imports):
            _write(folder / "files", name, one)
        for name, one in KNOWN.items():
            _write(folder / "known", name, one)
        command = [sys.executable, "-P", "-c", _PROGRAM, f"-I{folder / 'files'}", f"-I{folder / 'known'}"]
        command += [f"-I{Path(package.origin).parent / '_proto'}", "--include_imports", f"--descriptor_set_out={made}"]
        try:
            done = subprocess.run([*command, _MAIN], capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise ValueError(f"protoc did not read it in {_SECONDS:g} s") from None
        if done.returncode != 0 or not made.is_file():
            raise ValueError(f"protoc cannot read it: {_first_problem(done.stderr, folder / 'files')}")
        return made.read_bytes()


def _first_problem(said: bytes, folder: Path) -> str:
    """The error of protoc in one line: the place, and why."""
    lines = said.decode(errors="replace").replace(f"{folder}/", "").splitlines()
    wrong = [line for line in lines if _OF_A_FILE.match(line)]
    return wrong[0].replace(f"{_MAIN}:", "line ", 1)[:_MAX_SAID] if wrong else "it does not say why"


def _write(folder: Path, name: str, text: str) -> None:
    """A file of this name. Raises ValueError for a name that leads out of the folder, or that no file can have there."""
    path = PurePosixPath(name)
    wrong = ValueError(f"it imports {name[:_MAX_SAID]!r}, which is no name of a file")
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise wrong
    try:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    except OSError as problem:
        if problem.errno in _OF_NAMES:
            raise wrong from problem
        raise
