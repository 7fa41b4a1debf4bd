"""Chromium with the built site and the bench's own workers, on localhost, isolated so that threads may share memory."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

from tools import check, paths
from tools.serve import Server

FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WEB = Path(__file__).parent / "web"


def launch(playwright, **options):
    """Debian's Chromium where it is; elsewhere the one that Playwright brings."""
    program = os.environ.get("PTL_CHROMIUM") or check.chromium()
    return playwright.chromium.launch(args=FLAGS, **({"executable_path": program} if program else {}), **options)


class Served:
    """A folder on localhost: with Served(folder) as server: server.url."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder=folder)
        self.url = self.server.url

    def __enter__(self) -> Served:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


class Tab:
    """A page whose workers can be called: tab.call("ours", "make", preset="medium", threads=2).

    On the server: /site/ is dist/, /jax/ is jax-js, /web/ the bench's workers, /data/ what bench.data wrote (self.data).
    """

    def __init__(self) -> None:
        from playwright.sync_api import sync_playwright

        self._place = tempfile.TemporaryDirectory()
        folder = Path(self._place.name)
        (folder / "site").symlink_to(os.environ.get("PTL_DIST") or paths.DIST)
        (folder / "web").symlink_to(WEB)
        if os.environ.get("PTL_JAX_JS"):
            (folder / "jax").symlink_to(Path(os.environ["PTL_JAX_JS"]) / "dist")
        self.data = folder / "data"
        self._served = Served(folder)
        self._served.__enter__()
        self.playwright = sync_playwright().start()
        self.browser = launch(self.playwright)
        self._page = self.browser.new_page()
        self._page.set_default_timeout(0)
        self.log: list[str] = []
        self._page.on("console", lambda message: self.log.append(message.text))
        self._page.goto(self._served.url + "web/index.html")
        self._page.wait_for_function("globalThis.call && crossOriginIsolated")

    @property
    def version(self) -> str:
        """Chromium's version."""
        return self.browser.version

    def call(self, worker: str, kind: str, **message):
        """Ask a worker (started at its first call) and wait for the answer."""
        return self._page.evaluate("([name, message]) => call(name, message)", [worker, {"kind": kind, **message}])

    def end(self, worker: str) -> None:
        """Terminate a worker, so that its memory and threads are free."""
        self._page.evaluate("(name) => end(name)", worker)

    def close(self) -> None:
        """Close browser and server."""
        self.browser.close()
        self.playwright.stop()
        self._served.__exit__()
        self._place.cleanup()
