"""Firefox, spoken to in WebDriver BiDi (https://w3c.github.io/webdriver-bidi), which it has built in: a socket, and no driver beside it.

    with Firefox(program) as firefox:
        tab = firefox.tab()                 a fresh profile's tab: its storage and service workers are its own
        tab.goto(url); tab.evaluate("document.title"); tab.click("#train-start")

A tab has the few methods of Playwright's Page that e2e/driver.py and these tests use, with the same meaning.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Space": " ", "ArrowRight": "\ue014", "ArrowLeft": "\ue012", "End": "\ue010", "Backspace": "\ue003"}
CONTROL = "\ue009"
# Nothing that leaves the machine, no first-run pages, and downloads straight into a folder.
PREFERENCES = {
    "app.normandy.enabled": False, "app.update.enabled": False, "browser.shell.checkDefaultBrowser": False, "browser.aboutwelcome.enabled": False,
    "datareporting.policy.dataSubmissionEnabled": False, "toolkit.telemetry.enabled": False, "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False, "browser.safebrowsing.update.enabled": False, "extensions.update.enabled": False,
    "services.settings.server": "data:,", "browser.download.folderList": 2, "browser.download.useDownloadDir": True,
}  # fmt: skip


class BidiError(Exception):
    """What Firefox answered in place of a result."""


class Socket:
    """A WebSocket client (RFC 6455), as much as one local server needs: text messages, whole ones out, pieces in."""

    def __init__(self, port: int, path: str) -> None:
        self._raw = socket.create_connection(("127.0.0.1", port))
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        asked = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        self._raw.sendall(asked.encode())
        self._in = self._raw.makefile("rb")
        status = self._in.readline()
        if b" 101 " not in status:
            raise BidiError(status.decode(errors="replace"))
        while self._in.readline().strip():
            pass

    def timeout(self, seconds: float) -> None:
        self._raw.settimeout(seconds)

    def _frame(self, code: int, data: bytes) -> None:
        size = len(data)
        length = bytes([128 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 65536 else b"\xff" + struct.pack(">Q", size)
        mask = b"mask"  # any will do between two processes of one machine, but Firefox takes none of zeros
        stream = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
        masked = (int.from_bytes(data, "little") ^ stream).to_bytes(size, "little")
        self._raw.sendall(bytes([128 | code]) + length + mask + masked)

    def send(self, text: str) -> None:
        self._frame(1, text.encode())

    def _exactly(self, count: int) -> bytes:
        data = self._in.read(count)
        if len(data) < count:
            raise BidiError("Firefox has gone")
        return data

    def receive(self) -> str:
        whole = b""
        while True:
            first, second = self._exactly(2)
            size = second & 127
            if size >= 126:
                [size] = struct.unpack(">H", self._exactly(2)) if size == 126 else struct.unpack(">Q", self._exactly(8))
            data = self._exactly(size)
            if first & 15 == 9:
                self._frame(10, data)
            elif first & 15 == 8:
                raise BidiError("Firefox has closed the connection")
            elif first & 15 < 3:
                whole += data
                if first & 128:
                    return whole.decode()

    def close(self) -> None:
        self._raw.close()


class Firefox:
    """One headless Firefox with a profile folder of its own, which goes with it. `errors`: what pages have put on the console as errors."""

    def __init__(self, program: str, start_seconds: float = 300, answer_seconds: float = 600) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ptl-firefox-"))
        self.downloads = self.folder / "downloads"
        self.errors: list[str] = []
        self._number = 0
        for name in ("profile", "downloads"):
            (self.folder / name).mkdir()
        wanted = PREFERENCES | {"browser.download.dir": str(self.downloads)}
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in wanted.items()]
        (self.folder / "profile" / "user.js").write_text("\n".join(lines))
        log = self.folder / "log"
        options = ["--headless", "--no-remote", "--profile", str(self.folder / "profile"), "--remote-debugging-port", "0", "about:blank"]
        with log.open("wb") as out:
            told = {**os.environ, "HOME": str(self.folder), "MOZ_CRASHREPORTER_DISABLE": "1"}
            self._process = subprocess.Popen([program, *options], stdout=out, stderr=out, env=told)
        end = time.monotonic() + start_seconds
        while not (found := re.search(r"BiDi listening on ws://127\.0\.0\.1:(\d+)", log.read_text(errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > end:
                words = log.read_text(errors="replace")[-2000:]
                self.close()
                raise BidiError(f"Firefox did not start: {words}")
            time.sleep(0.05)
        self._socket = Socket(int(found[1]), "/session")
        self._socket.timeout(answer_seconds)
        self.version = self.call("session.new", capabilities={})["capabilities"]["browserVersion"]
        self.call("session.subscribe", events=["log.entryAdded"])

    def call(self, method: str, **params) -> dict:
        """Send a command, return its result; events that come meanwhile are noted."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.receive())
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"] or "")
            if message.get("id") == self._number:
                if message["type"] == "error":
                    raise BidiError(f"{method}: {message['error']}: {message['message']}")
                return message["result"]

    def tab(self, width: int = 1280, height: int = 800) -> Tab:
        user = self.call("browser.createUserContext")["userContext"]
        return Tab(self, self.call("browsingContext.create", type="tab", userContext=user)["context"], width, height)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Firefox:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Tab:
    def __init__(self, firefox: Firefox, context: str, width: int, height: int) -> None:
        self.firefox, self.context = firefox, context
        self._call("browsingContext.setViewport", viewport={"width": width, "height": height})

    def _call(self, method: str, **params) -> dict:
        return self.firefox.call(method, context=self.context, **params)

    def goto(self, url: str, wait: str = "complete") -> None:
        self._call("browsingContext.navigate", url=url, wait=wait)

    def reload(self) -> None:
        self._call("browsingContext.reload", wait="complete")

    def route(self, *_) -> None:
        """Playwright's tests keep a missing icon quiet by it; Firefox does not put one on the console."""

    def evaluate(self, what: str, arg: Any = None) -> Any:
        """The value of an expression, or of a function of `arg`, through JSON; a promise is awaited."""
        function = f"async (arg) => {{ const it = ({what.strip()}); const value = await (typeof it === 'function' ? it(JSON.parse(arg)) : it); return JSON.stringify(value) ?? 'null'; }}"
        answer = self.firefox.call(
            "script.callFunction", functionDeclaration=function, awaitPromise=True, target={"context": self.context},
            arguments=[{"type": "string", "value": json.dumps(arg)}], userActivation=True,
        )  # fmt: skip
        if answer["type"] == "exception":
            raise BidiError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def wait_for_timeout(self, milliseconds: float) -> None:
        time.sleep(milliseconds / 1000)

    def wait_for(self, what: str, seconds: float = 600) -> None:
        """Until an expression is true, also across a page that loads itself anew meanwhile."""
        end = time.monotonic() + seconds
        value: Any = None
        while time.monotonic() < end:
            try:
                if value := self.evaluate(what):
                    return
            except BidiError as error:
                value = error
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what} is {value}")

    def text(self, selector: str) -> str:
        return self.evaluate("(selector) => document.querySelector(selector).innerText", selector)

    def _keys(self, *actions: dict) -> None:
        self._call("input.performActions", actions=[{"type": "key", "id": "keys", "actions": list(actions)}])

    def press(self, key: str, *held: str) -> None:
        value = KEYS.get(key, key)
        down = [{"type": "keyDown", "value": each} for each in (*held, value)]
        self._keys(*down, *({"type": "keyUp", "value": each["value"]} for each in reversed(down)))

    def click(self, selector: str) -> None:
        """A press of the mouse in the middle of an element, once it can be seen."""
        middle = """(selector) => { const e = document.querySelector(selector); if (!e?.checkVisibility() || e.disabled) return null;
          e.scrollIntoView({ block: 'center' }); const { x, y, width, height } = e.getBoundingClientRect(); return [Math.round(x + width / 2), Math.round(y + height / 2)]; }"""
        self.wait_for(f"({middle})({json.dumps(selector)}) !== null", 60)
        x, y = self.evaluate(middle, selector)
        presses = [{"type": "pointerMove", "x": x, "y": y}, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._call("input.performActions", actions=[{"type": "pointer", "id": "mouse", "actions": presses}])

    def fill(self, selector: str, words: str) -> None:
        """Other words in a field, all at once as from the clipboard."""
        self.evaluate(
            """([selector, words]) => { const e = document.querySelector(selector); e.focus(); e.select(); document.execCommand('insertText', false, words); }""",
            [selector, words],
        )
        self.wait_for(f"document.querySelector({json.dumps(selector)}).value === {json.dumps(words)}", 60)
        self.evaluate("(selector) => { document.querySelector(selector).dispatchEvent(new Event('change', { bubbles: true })); }", selector)

    def check(self, selector: str) -> None:
        self.evaluate("(selector) => { document.querySelector(selector).click(); }", selector)
