"""A headless Chromium that a test can click in, over the DevTools protocol."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-port=0",
)
START_SECONDS = 90.0
ANSWER_SECONDS = 60.0


class Tab:
    """One page of the browser, and what it complained about or asked the network for."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self.complaints: list[str] = []
        """Exceptions and console errors, policy violations included."""
        self.requests: list[str] = []
        """Addresses that were asked for, ``data:`` ones left out."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; events on the way are taken down."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(timeout=ANSWER_SECONDS))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._note(message.get("method", ""), message.get("params", {}))

    def _note(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(event["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and event["entry"]["level"] == "error":
            self.complaints.append(event["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] == "error":
            self.complaints.append(json.dumps(event["args"])[:500])
        elif method == "Network.requestWillBeSent":
            address = event["request"]["url"]
            if not address.startswith("data:"):
                self.requests.append(address)

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until the expression is true."""
        started = time.monotonic()
        while not self.evaluate(expression):
            assert time.monotonic() - started < ANSWER_SECONDS, f"never came true: {expression}"
            time.sleep(0.05)

    def open(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page that says on its root element when it is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        # A page that differs in its fragment alone would not be loaded again.
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def click(self, selector: str, number: int = 0) -> None:
        """Click the ``number``-th element with the mouse, where it is on the screen."""
        find = f"document.querySelectorAll({json.dumps(selector)})[{number}]"
        box = self.evaluate(
            f"(() => {{ const e = {find}; e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button=button, clickCount=1)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a ``select``."""
        self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
            " e.dispatchEvent(new Event('change')); })()"
        )

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """PNG of what is on the screen, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def chromium(executable: str, profile: Path) -> Iterator[Tab]:
    """Start a browser with an empty profile, and end it."""
    command = [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with (profile.parent / "chromium.log").open("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        try:
            with connect(_address(process, Path(log.name)), max_size=None, proxy=None) as connection:
                yield Tab(connection)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """WebSocket of the first page."""
    import urllib.request

    started = time.monotonic()
    while time.monotonic() - started < START_SECONDS and process.poll() is None:
        if found := re.search(r"DevTools listening on ws://(127\.0\.0\.1:\d+)/", log.read_text()):
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            pages = json.loads(opener.open(f"http://{found[1]}/json/list", timeout=30).read())
            if tabs := [page for page in pages if page["type"] == "page"]:
                return str(tabs[0]["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise AssertionError(f"Chromium did not start: {log.read_text()[-2000:]}")
