"""Where a warm engine listens: a socket in a folder that only its owner can enter, named after what the engine is."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from tidemark.errors import WrongUse

# The folder of the sockets, if not the usual one.
FOLDER = "TIDEMARK_ENGINES"
SUFFIX = ".sock"
# The longest path of a socket on Linux, in bytes, without the byte that ends it.
_MAX_BYTES = 107


def named_folder() -> Path:
    """The folder of this user's engines, which may not exist."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path(tempfile.gettempdir()) / f"tidemark-engines-{os.getuid()}"


def folder() -> Path:
    """The folder of this user's engines, made if it does not exist. Raises WrongUse if others could enter it."""
    path = named_folder()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        private = _is_private(path)
    except OSError:
        # A link that leads nowhere, for example, which anybody can make in a folder that all share.
        private = False
    if not private:
        raise WrongUse(
            f"{path} is not a folder that only this user can enter, and whoever can may start code in a warm engine. "
            f"Remove it, or name another folder in {FOLDER}"
        )
    return path.resolve()


def _is_private(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _installation() -> str:
    """The part of an engine's name for this installation of Tidemark, whichever name its Python was started by."""
    return sha256(f"{sys.prefix}\0{Path(__file__).resolve()}".encode()).hexdigest()[:6]


def socket_path(connection: str, parts: Iterable[object]) -> Path:
    """The socket of the engine of a Spark connection. `parts` are what makes it another engine, such as the master."""
    digest = sha256("\0".join(map(str, parts)).encode()).hexdigest()[:6]
    path = folder() / f"{connection}-{_installation()}-{digest}{SUFFIX}"
    if len(os.fsencode(path)) > _MAX_BYTES:
        raise WrongUse(
            f"{path}: longer than {_MAX_BYTES} bytes, which no socket can have; name another folder in {FOLDER}"
        )
    return path


def sockets() -> list[Path]:
    """The sockets of this user's engines, also of engines that have died. None where the folder is not private."""
    path = named_folder()
    if not path.exists() or not _is_private(path):
        return []
    return sorted(path.resolve().glob(f"*-*-*{SUFFIX}"))
