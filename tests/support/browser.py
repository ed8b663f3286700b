"""How the tests start chromium, and where screenshots go."""

from __future__ import annotations

from services.site import REPOSITORY

SCREENSHOTS = REPOSITORY / ".local" / "screenshots"
# Without these flags, a browser without internet looks for hosts that it cannot reach.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
