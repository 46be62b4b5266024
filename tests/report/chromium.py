"""Chromium without a window, driven over the WebDriver protocol with the standard library."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def browser() -> str | None:
    """The program, if there is one with its driver."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return found if found and shutil.which("chromedriver") else None


class Page:
    """One tab."""

    def __init__(self, session: str) -> None:
        self._session = session

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = Request(self._session + path, data, {"Content-Type": "application/json"})
        request.method = method
        with urlopen(request, timeout=600) as answer:
            return json.load(answer)["value"]

    def devtools(self, command: str, **parameters: Any) -> Any:
        body = {"cmd": command, "params": parameters}
        return self._call("POST", "/goog/cdp/execute", body)

    def show(self, path: Path, *, width: int, height: int = 800, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        self._call("POST", "/url", {"url": path.resolve().as_uri()})

    def run(self, script: str) -> Any:
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def log(self, kind: str) -> list[dict[str, Any]]:
        return list(self._call("POST", "/se/log", {"type": kind}))

    def picture(self, path: Path) -> None:
        """The whole page, from top to bottom."""
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._call("DELETE", "")


@contextmanager
def chromium(profile: Path):
    """A page in a browser with a profile of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    page = None
    try:
        page = Page(_session(f"http://127.0.0.1:{port}/session", profile))
        yield page
    finally:
        if page is not None:
            page.close()
        driver.terminate()
        driver.wait()


def _session(address: str, profile: Path) -> str:
    options = {"binary": browser(), "args": [*FLAGS, f"--user-data-dir={profile}"]}
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }
    body = json.dumps({"capabilities": {"alwaysMatch": wanted}}).encode()
    for _ in range(3000):
        try:
            with urlopen(Request(address, body, {"Content-Type": "application/json"})) as answer:
                return f"{address}/{json.load(answer)['value']['sessionId']}"
        except URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.1)
    raise TimeoutError("chromedriver does not answer")
