"""A browser, the built site on localhost, and pages on it. Used by every browser test.

    page = open_page()                      the site with headers, no service worker, the real trainer
    page = open_page(fake={"steps": 40})    the same with fake_worker.mjs in the trainer's place, set up by these values
    site, plain_site                        servers with and without COOP/COEP (`.url`)

A test must pass on a machine ten times slower than this one, and on a busy one. So it waits for what stays, not for what passes by
itself: the fake stands at `hold` until go_on, and at `gates` until let_through; `quiet` and `heard` wait for the trainer's answers.
PTL_CPU_THROTTLE=6 makes the main thread of every page six times slower, to see that this is so.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from tools import paths
from tools.serve import Server

# Waiting costs nothing where all is well: on busy cores things are slow, not wrong.
EXPECT_MS = 60_000
PAGE_MS = 180_000
REAL_MS = 600_000  # what the real trainer may take for a thing of some seconds
TEST_SECONDS = 1800
expect.set_options(timeout=EXPECT_MS)

HERE = Path(__file__).parent
DIST = Path(os.environ.get("PTL_DIST") or paths.DIST)
SLOW = {"steps": 100_000, "step_ms": 5}  # a run that goes for eight minutes at least
THROTTLE = float(os.environ.get("PTL_CPU_THROTTLE") or 1)
DEBIAN_CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--enable-unsafe-webgpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# Keeps what the page says to its worker in window.sent, counts what it hears by kind in window.heard (once the page itself has taken
# it), and knows which questions are still open. `tell` speaks to the fake behind the page's back.
RECORDER = """{
  window.sent = [];
  window.heard = {};
  window.unanswered = new Set();
  const asks = /^(corpus\\..*|plan|tokens\\.(use|load|split|merges)|write\\.check|tune\\.plan|adapters\\..*|inside\\..*|runs\\.(list|open|rename|delete))$/;
  const post = Worker.prototype.postMessage;
  window.tell = (message) => post.call(window.trainer, message);
  Worker.prototype.postMessage = function (message, transfer) {
    if (message.kind === 'init') {
      window.trainer = this;
      unanswered.clear();
      this.addEventListener('message', ({ data }) => {
        heard[data.kind] = (heard[data.kind] ?? 0) + 1;
        unanswered.delete(data.reply_to);
      });
    }
    if (asks.test(message.kind)) unanswered.add(message.id);
    sent.push(message.buffer ? { ...message, buffer: message.buffer.byteLength } : message.kind === 'init' ? { kind: 'init', stop_flag: Boolean(message.stop_flag) } : message);
    return post.call(this, message, transfer);
  };
}"""
# The page gives its service worker some seconds to isolate it and then goes on without: what a slow machine gets, not what is tested.
PATIENT = """{
  const timer = window.setTimeout;
  window.setTimeout = (what, ms, ...rest) => timer(what, ms === PATIENCE_MS ? 600_000 : ms, ...rest);
}"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


def launch_options() -> dict:
    """Debian's Chromium where it is; elsewhere the one that Playwright brings."""
    program = os.environ.get("PTL_CHROMIUM") or (DEBIAN_CHROMIUM if Path(DEBIAN_CHROMIUM).exists() else None)
    return {"args": FLAGS, **({"executable_path": program} if program else {})}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not (DIST / "index.html").exists():
        pytest.fail("dist/ is not built: run ./build.sh build")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(timeout=PAGE_MS, **launch_options())
        yield chromium
        chromium.close()


def serve(**options) -> Iterator[Server]:
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


def profile(browser: Browser, **options) -> BrowserContext:
    """A fresh browser profile with this file's patience."""
    # bypass_csp: the page forbids eval, which Playwright's wait_for_function uses. test_page_access.py opens one page without it.
    context = browser.new_context(**{"bypass_csp": True, "service_workers": "block", **options})
    context.set_default_timeout(PAGE_MS)
    [patience] = re.findall(r"PATIENCE_MS = (\d+)", (DIST / "offline.mjs").read_text())
    context.add_init_script(RECORDER + PATIENT.replace("PATIENCE_MS", patience))
    if THROTTLE > 1:
        context.on("page", lambda page: context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": THROTTLE}))
    return context


@pytest.fixture
def contexts(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes fresh browser profiles; an error on one of their pages fails the test, unless one of the words in `.expected` is in it."""
    made: list[BrowserContext] = []
    errors: list[str] = []

    def make(**options) -> BrowserContext:
        context = profile(browser, **options)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        context.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        made.append(context)
        return context

    make.expected = []  # type: ignore[attr-defined]
    yield make
    for context in made:
        context.close()
    errors = [error for error in errors if not any(words in error for words in make.expected)]  # type: ignore[attr-defined]
    assert not errors, "errors on the page:\n" + "\n".join(errors)


@pytest.fixture
def open_page(contexts, site: Server) -> Callable[..., Page]:
    def open_(fake: dict | None = None, path: str = "", wait: bool = True, url: str | None = None, script: str = "", **options) -> Page:
        context = contexts(**options)
        context.add_init_script(script)
        if fake is not None:
            body = fake_trainer(fake)
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
            at_rest(page)
        return page

    return open_


def fake_trainer(scenario: dict) -> str:
    """worker.mjs of the fake, set up by these values."""
    parts = [HERE / "fake_worker.mjs", *sorted(part for part in HERE.glob("fake_*.mjs") if part.name != "fake_worker.mjs")]
    return f"globalThis.scenario = {json.dumps(scenario)};\n" + "".join(part.read_text() for part in parts)


def number(page: Page, name: str) -> float:
    return float(page.inner_text(f"#stat-{name}").split()[0].replace(",", ""))


def sent(page: Page, kind: str) -> list[dict]:
    """The requests of one kind that the page has made."""
    return [message for message in page.evaluate("window.sent") if message["kind"] == kind]


def phase(page: Page, name: str) -> None:
    page.wait_for_selector(f'body[data-phase="{name}"]')


def stepping(page: Page, beyond: int = 0) -> None:
    page.wait_for_function(f"parseInt(document.getElementById('stat-step').textContent.replaceAll(',', '')) > {beyond}", timeout=REAL_MS)


def error(page: Page, place: str, words: str) -> None:
    """A sentence beside the thing that failed, which goes away when dismissed."""
    expect(page.locator(f"#{place}-error")).to_contain_text(words)
    page.click(f"#{place}-error button.close")
    expect(page.locator(f"#{place}-error")).to_be_hidden()


def at_rest(page: Page) -> None:
    """The trainer is there, and the page knows what it says to the text and the size chosen at first (unless Train was pressed)."""
    page.wait_for_selector("#engine.ready")
    page.wait_for_function(
        """() => document.body.dataset.phase && document.body.dataset.phase !== 'idle'
          || unanswered.size === 0 && document.getElementById('run-status').textContent.includes(' parameters')"""
    )


def train_tiny(page: Page, text: str) -> None:
    """200 steps of a tiny model on a text, by the real trainer, to their end."""
    page.context.set_default_timeout(REAL_MS)
    page.check("#corpus-paste", force=True)
    page.fill("#corpus-text", text)
    page.check("#preset-tiny", force=True)
    page.fill("#setting-steps", "200")
    page.click("#settings summary")
    page.fill("#setting-learning_rate", "0.004")
    page.click("#train-start")
    expect(page.locator("#stat-step")).to_have_text("200 of 200", timeout=REAL_MS)
    phase(page, "ended")


def open_again(page: Page) -> None:
    """Another day: the page is loaded anew, and the run saved last is opened."""
    page.reload()
    page.wait_for_selector("#engine.ready")
    page.click("#tab-runs")
    quiet(page)
    page.locator("#runs-list li").first.get_by_role("button", name="Open").click()
    phase(page, "ended")


def rewritten(changes: dict[str, str]) -> Callable[[Route], None]:
    """For `route`: a file of the site with some of its words changed, each of which is there once."""

    def serve(route: Route) -> None:
        response = route.fetch()
        body = response.text()
        for find, put in changes.items():
            assert body.count(find) == 1, find
            body = body.replace(find, put)
        route.fulfill(response=response, body=body)

    return serve


def quiet(page: Page) -> None:
    """Every question about texts, plans and runs that the page has asked is answered, and the answer shown."""
    page.wait_for_function("unanswered.size === 0")


def heard(page: Page, kind: str, times: int = 1) -> None:
    """So many events of a kind have come from the trainer, and the page has taken them."""
    page.wait_for_function(f"heard[{kind!r}] >= {times}")


def go_on(page: Page, steps: int | None = None) -> None:
    """Let the fake train on from where it stands at `hold`: so many steps, or to the end."""
    page.evaluate("(steps) => tell({ kind: 'test.go_on', steps })", steps)


def let_through(page: Page, gate: str) -> None:
    """Let the fake do what it keeps back (see fake_worker.mjs)."""
    page.wait_for_function("window.trainer")
    page.evaluate("(gate) => tell({ kind: 'test.open', gate })", gate)


def eventually(look: Callable[[], Any], right: Callable[[Any], bool], what: str) -> Any:
    """The first right value of `look()`: for what follows an event by a frame or two and has no element of its own to wait for."""
    end = time.monotonic() + EXPECT_MS / 1000
    while not right(value := look()):
        assert time.monotonic() < end, f"{what}: {value}"
        time.sleep(0.05)
    return value
