"""The whole job with the real trainer, as a person does it: on a host without headers, under a sub-path, then with no server at all."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e.conftest import DIST, REAL_MS, number, phase, quiet
from e2e.sites import Severable
from e2e.test_offline import NO_SERVER, settled, stored

pytestmark = pytest.mark.slow


def test_train_write_leave_and_come_back_without_a_server(contexts):
    server = Severable(folder=DIST, path="/a/b/", isolated=False).start()
    contexts.expected.append(NO_SERVER)
    context = contexts(service_workers="allow")
    context.set_default_timeout(REAL_MS)
    try:
        page = context.new_page()
        page.goto(server.url, wait_until="commit")  # it loads itself anew
        settled(page)
        assert page.evaluate("crossOriginIsolated"), "threads on a host that sends no headers"

        # One click on what is chosen already: real Shakespeare, medium.
        page.click("#train-start")
        page.wait_for_function("parseFloat(document.getElementById('stat-loss').textContent) < 4.5")  # from 5.55, and falling
        expect(page.locator("#sample-step")).to_contain_text("at step", timeout=REAL_MS)
        first_sample = page.inner_text("#sample-text")
        page.click("#train-stop")
        phase(page, "ended")
        assert first_sample.strip()

        # Small and quick: a text of one's own, then writing with it.
        quiet(page)
        page.check("#corpus-paste", force=True)
        page.fill("#corpus-text", "the cat sat on the mat. " * 400)
        page.check("#preset-tiny", force=True)
        page.fill("#setting-steps", "150")
        page.click("#settings summary")
        page.fill("#setting-learning_rate", "0.003")
        page.click("#train-again")
        page.wait_for_function("document.getElementById('stat-step').textContent === '150 of 150'")
        phase(page, "ended")
        assert number(page, "loss") < 3.0
        page.click("#train-write")
        page.fill("#write-prompt", "the cat ")
        page.fill("#write-tokens", "60")
        page.fill("#write-seed", "1")
        page.click("#write-start")
        expect(page.locator("#write-stats")).to_contain_text("60 bytes ·", timeout=REAL_MS)
        written = page.inner_text("#write-output")
        assert "the" in written.removeprefix("the cat ") or "at" in written
        stored(page)
    finally:
        server.sever()

    # The server is gone. The same tab, loaded anew, goes on with what was saved.
    page.reload()
    settled(page)
    assert page.evaluate("crossOriginIsolated")
    page.click("#tab-runs")
    quiet(page)
    expect(page.locator("#runs-list h2")).to_have_count(2)
    page.locator("#runs-list li").first.get_by_role("button", name="Open").click()
    phase(page, "ended")
    expect(page.locator("#stat-step")).to_contain_text("150 of")
    page.fill("#train-extend-steps", "20")
    page.click("#train-extend")
    expect(page.locator("#stat-step")).to_have_text("170 of 170", timeout=REAL_MS)
    phase(page, "ended")
    page.click("#tab-write")
    page.click("#write-start")
    expect(page.locator("#write-stats")).to_contain_text("bytes ·", timeout=REAL_MS)
