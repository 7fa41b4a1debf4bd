"""A long run in a real tab: hidden it trains on; frozen or discarded by the browser it goes on exactly where it was, and says so."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import REAL_MS, number, phase, stepping
from e2e.driver import same_state
from e2e.test_page_runs import HIDE
from posttrainllm.store.checkpoint import Checkpoint

pytestmark = pytest.mark.slow
STEPS = 900
LOCKS = "navigator.locks.query().then((locks) => locks.held.map((lock) => lock.name).filter((name) => name.startsWith('posttrainllm-training')).sort().join())"
# The browser's own discarding cannot be asked for here: a page that is loaded anew while a run goes is told that it was.
DISCARD = "if (location.protocol === 'http:' && sessionStorage.getItem('posttrainllm-going')) Object.defineProperty(document, 'wasDiscarded', { value: true });"


@contextlib.contextmanager
def halted(page: Page) -> Iterator[None]:
    """The tab's processes stand still, its worker's threads too. (Chromium without a window never freezes a page, whatever
    Page.setWebLifecycleState answers: measured, its timers ran on.)"""
    processes = page.context.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    ids = [each["id"] for each in processes if each["type"] == "renderer"]
    assert ids
    for each in ids:
        os.kill(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in ids:
            os.kill(each, signal.SIGCONT)


def begin(page: Page) -> None:
    page.check("#corpus-paste", force=True)
    page.fill("#corpus-text", "the cat sat on the mat, and the dog sat on the log. " * 300)
    page.check("#preset-tiny", force=True)
    page.fill("#setting-steps", str(STEPS))
    page.click("#train-start")
    stepping(page, 20)


def finished(page: Page, folder: Path) -> Checkpoint:
    """The run once it is done, exported by the page."""
    page.wait_for_function(f"document.getElementById('stat-step').textContent === '{STEPS} of {STEPS}'", timeout=REAL_MS)
    phase(page, "ended")
    page.click("#tab-runs")
    page.locator("#runs-list button", has_text="Export").first.click()
    with page.expect_download() as download:
        page.locator("[id$=-as-safetensors]").click()
    path = folder / "run.safetensors"
    download.value.save_as(path)
    return Checkpoint.from_safetensors(path.read_bytes())


def test_hidden_frozen_and_discarded_it_ends_with_the_same_bits(open_page, tmp_path):
    page = open_page()
    begin(page)
    assert page.evaluate(LOCKS) == "posttrainllm-training,posttrainllm-training-worker"
    straight = finished(page, tmp_path)
    page.wait_for_function(LOCKS + ".then((held) => held === '')")
    page.close()

    page = open_page(script=DISCARD)
    page.on("dialog", lambda dialog: dialog.accept())
    begin(page)
    page.evaluate(HIDE, True)  # trains on, and is saved
    page.wait_for_function("heard.saved >= 1")
    stepping(page, int(number(page, "step")) + 20)
    page.evaluate("delete document.hidden")

    page.evaluate("document.dispatchEvent(new Event('freeze'))")
    with halted(page):
        time.sleep(2)
    page.evaluate("document.dispatchEvent(new Event('resume'))")
    expect(page.locator("#back-notice")).to_contain_text("had halted this tab for")
    stepping(page, int(number(page, "step")) + 20)

    saves = page.evaluate("heard.saved")
    page.evaluate(HIDE, True)
    page.wait_for_function(f"heard.saved > {saves}")
    assert number(page, "step") < STEPS, "the run must still be going: make it longer"
    page.reload()
    expect(page.locator("#back-notice")).to_contain_text("It goes on exactly from step", timeout=REAL_MS)
    again = finished(page, tmp_path)
    assert again.step == STEPS and same_state(straight, again)
    first, second = ([(row["step"], row["loss_nats"], row["validation_loss_nats"]) for row in each.history] for each in (straight, again))
    assert first == second
