"""Who asks: the user that a command runs as."""

from __future__ import annotations

import os
import pwd


def user() -> str:
    """The user that this process runs as, by the operating system: its environment could name anybody."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
