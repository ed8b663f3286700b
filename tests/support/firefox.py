"""Firefox, driven by WebDriver BiDi (https://w3c.github.io/webdriver-bidi), which it speaks itself.

Playwright drives a Firefox of its own making, or one of the distribution by a command that its long-term versions lack.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import until

FOUND = shutil.which("firefox-esr") or shutil.which("firefox")
# Without these settings, a browser without internet looks for hosts that it cannot reach.
SETTINGS = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.getAddons.cache.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "",
    "toolkit.telemetry.server": "",
}


def one(selector: str) -> str:
    """The first element of a selector, in JavaScript."""
    return f"document.querySelector({json.dumps(selector)})"


def button(name: str) -> str:
    """The first button of a name, in JavaScript."""
    return f"[...document.querySelectorAll('button')].find((one) => one.textContent === {json.dumps(name)})"


class Firefox:
    """One tab. `said` has what its console has said as warning or error, and the errors of its scripts."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._sent = 0
        self.said: list[str] = []
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded", "network.responseCompleted"])
        self._tab = self.ask("browsingContext.create", type="tab")["context"]
        self.ask("browsingContext.setViewport", context=self._tab, viewport={"width": 1280, "height": 900})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers to a command. Raises AssertionError with its words if it refuses."""
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while (got := json.loads(self._socket.recv(timeout=120))).get("id") != self._sent:
            self._note(got)
        assert got["type"] == "success", f"{method}: {got}"
        return got["result"]  # type: ignore[no-any-return]

    def _note(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        if event.get("method") == "log.entryAdded" and about["level"] in ("warn", "error"):
            self.said.append(f"{about['text']} {about.get('stackTrace')}")
        elif event.get("method") == "network.responseCompleted":
            status = about["response"]["status"]
            # 504 is an answer that comes late, and that the page asks for again.
            if status >= 400 and status != 504:
                self.said.append(f"{status} {about['response']['url']}")

    def log_in(self, url: str, token: str) -> None:
        """With the cookie that Airflow's form gives."""
        cookie = {
            "name": "_token",
            "value": {"type": "string", "value": token},
            "domain": urlsplit(url).hostname,
            "path": "/",
        }
        self.ask("storage.setCookie", cookie=cookie)

    def open(self, url: str) -> None:
        self.ask("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def value(self, expression: str) -> Any:
        """What JavaScript makes of an expression: anything that JSON has."""
        asked = f"JSON.stringify({expression}) ?? null"
        got = self.ask("script.evaluate", expression=asked, target={"context": self._tab}, awaitPromise=False)
        assert got["type"] == "success", f"{expression}: {got}"
        return json.loads(got["result"].get("value", "null"))

    def wait_for(self, expression: str) -> Any:
        return until(lambda: self.value(expression), f"{expression} of {self.value('location.href')}", 120)

    def drag(self, element: str, start: float, end: float) -> None:
        """Across an element, between two places of its width: 0 is left, 1 is right. A click if they are the same."""
        self.value(f"({element}).scrollIntoView({{ block: 'center' }})")
        width = self.value(f"({element}).getBoundingClientRect().width")
        found = self.ask("script.evaluate", expression=element, target={"context": self._tab}, awaitPromise=False)
        # From its middle, wherever that is by then: what comes above it later moves it.
        origin = {"type": "element", "element": {"sharedId": found["result"]["sharedId"]}}
        left, right = (
            {"type": "pointerMove", "x": round((at - 0.5) * width), "y": 0, "origin": origin} for at in (start, end)
        )
        acts = [left, {"type": "pointerDown", "button": 0}, right, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": acts}
        self.ask("input.performActions", context=self._tab, actions=[mouse])

    def click(self, element: str) -> None:
        self.drag(element, 0.5, 0.5)

    def write(self, text: str) -> None:
        """With the keyboard, into what has the focus."""
        acts = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self.ask("input.performActions", context=self._tab, actions=[{"type": "key", "id": "keys", "actions": acts}])

    def screenshot(self, path: Path) -> None:
        """Of the whole page."""
        got = self.ask("browsingContext.captureScreenshot", context=self._tab, origin="document")
        path.write_bytes(base64.b64decode(got["data"]))


@contextmanager
def firefox() -> Iterator[Firefox]:
    """A Firefox without a window, and with a new profile."""
    assert FOUND
    with tempfile.TemporaryDirectory() as profile:
        settings = (f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in SETTINGS.items())
        (Path(profile) / "user.js").write_text("\n".join(settings))
        command = [FOUND, "--headless", "--no-remote", "--remote-debugging-port", "0", "--profile", profile]
        with (Path(profile) / "said").open("w+") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said)
            try:
                address = until(lambda: re.search(r"ws://[0-9.:]+", (Path(profile) / "said").read_text()), "Firefox")
                with connect(f"{address[0]}/session", max_size=None) as socket:
                    yield Firefox(socket)
            finally:
                process.terminate()
                process.wait(60)
