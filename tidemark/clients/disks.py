"""What the refusal of a disk means, whichever library hands on the system's words."""

from __future__ import annotations

import errno
import os

from tidemark.errors import NO_ROOM, DiskFull, NotAuthorized, TidemarkError, Unreachable, WrongUse

_QUOTA = os.strerror(errno.EDQUOT)
# A disk that takes no writes, or not from this user.
MAY_NOT = tuple(map(os.strerror, (errno.EACCES, errno.EPERM, errno.EROFS)))
_GIVE_RIGHTS = "Mount the disk for writing, or give this user the right to read and write there, and run again"
# No path is like this, whatever disk is mounted.
_NO_SUCH_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


def is_full(said: str) -> bool:
    """Whether these are the words of a disk without room, or of a user who may use no more of it."""
    return NO_ROOM in said or _QUOTA in said


def lacks_rights(place: str, said: str) -> NotAuthorized | None:
    """The error for what a disk says that takes no writes, or not from this user; None for other words. No retry helps."""
    if any(words in said for words in MAY_NOT):
        return NotAuthorized(f"{place}: {said}. {_GIVE_RIGHTS}")
    return None


def refusal(place: str, failed: str, problem: OSError) -> TidemarkError:
    """What the system's refusal of a file is; `failed` says what could not be done, as `the file cannot be made`.

    WrongUse for a path that leads nowhere; DiskFull, NotAuthorized; and Unreachable for a disk that is away.
    """
    said = f"{failed}: {problem.strerror or problem}"
    if is_full(said):
        return DiskFull.of(place)
    if denied := lacks_rights(place, said):
        return denied
    return (WrongUse if problem.errno in _NO_SUCH_PATH else Unreachable)(f"{place}: {said}")
