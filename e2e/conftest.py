"""A browser, the built site on localhost, and pages on it. Used by every browser test.

    page = open_page()                      the site with headers, no service worker, the real trainer
    page = open_page(fake={"steps": 40})    the same with fake_worker.mjs in the trainer's place, set up by these values
    site, plain_site                        servers with and without COOP/COEP (`.url`)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tools import paths
from tools.serve import Server

expect.set_options(timeout=30_000)  # on two busy cores things are slow, not wrong

HERE = Path(__file__).parent
DIST = Path(os.environ.get("PTL_DIST") or paths.DIST)
DEBIAN_CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--enable-unsafe-webgpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# Keeps what the page says to its worker in window.sent.
RECORDER = """{
  window.sent = [];
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, transfer) {
    window.sent.push(message.buffer ? { ...message, buffer: message.buffer.byteLength } : message.kind === 'init' ? { kind: 'init', stop_flag: Boolean(message.stop_flag) } : message);
    return post.call(this, message, transfer);
  };
}"""


def launch_options() -> dict:
    """Debian's Chromium where it is; elsewhere the one that Playwright brings."""
    program = os.environ.get("PTL_CHROMIUM") or (DEBIAN_CHROMIUM if Path(DEBIAN_CHROMIUM).exists() else None)
    return {"args": FLAGS, **({"executable_path": program} if program else {})}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not (DIST / "index.html").exists():
        pytest.fail("dist/ is not built: run ./build.sh build")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**launch_options())
        yield chromium
        chromium.close()


def serve(**options) -> Iterator[Server]:
    import threading

    with Server(folder=DIST, **options) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def site() -> Iterator[Server]:
    """dist/ with the headers that isolate a page."""
    yield from serve()


@pytest.fixture(scope="session")
def plain_site() -> Iterator[Server]:
    """dist/ under a sub-path on a host that sends no such headers."""
    yield from serve(path="/some/where/", isolated=False)


@pytest.fixture
def contexts(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes fresh browser profiles; any error on one of their pages fails the test, unless the test takes it from `.errors`."""
    made: list[BrowserContext] = []
    errors: list[str] = []

    def make(**options) -> BrowserContext:
        # bypass_csp: the page forbids eval, which Playwright's wait_for_function uses. test_page.py opens one page without it.
        context = browser.new_context(**{"bypass_csp": True, "service_workers": "block", **options})
        context.set_default_timeout(20_000)
        context.add_init_script(RECORDER)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        context.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        made.append(context)
        return context

    make.errors = errors  # type: ignore[attr-defined]
    yield make
    for context in made:
        context.close()
    assert not errors, "errors on the page:\n" + "\n".join(errors)


@pytest.fixture
def open_page(contexts, site: Server) -> Callable[..., Page]:
    def open_(fake: dict | None = None, path: str = "", wait: bool = True, url: str | None = None, script: str = "", **options) -> Page:
        context = contexts(**options)
        context.add_init_script(script)
        if fake is not None:
            body = f"globalThis.scenario = {json.dumps(fake)};\n" + (HERE / "fake_worker.mjs").read_text()
            headers = {
                "content-type": "text/javascript",
                "cross-origin-embedder-policy": "require-corp",
                "cross-origin-resource-policy": "same-origin",
            }
            context.route("**/worker.mjs", lambda route: route.fulfill(body=body, headers=headers))
        page = context.new_page()
        page.goto((url or site.url) + path)
        page.wait_for_selector("body[data-python]")
        if wait:
            page.wait_for_selector("#engine.ready", timeout=60_000)
        return page

    return open_
