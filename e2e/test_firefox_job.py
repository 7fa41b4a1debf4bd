"""The main job in Firefox, as a person does it, and the same bits there as natively (test_same_bits.py has Chromium's)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from e2e.bidi import Firefox, Tab
from e2e.conftest import REAL_MS, eventually
from e2e.driver import Driver, same_state
from e2e.test_same_bits import STEPS, native, train  # noqa: F401  (a fixture)
from posttrainllm.store.checkpoint import Checkpoint

PROGRAM = os.environ.get("PTL_FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PROGRAM, reason="no Firefox on this machine")]


@pytest.fixture
def firefox() -> Iterator[Firefox]:
    with Firefox(PROGRAM) as browser:
        yield browser
        assert browser.errors == []


def settled(tab: Tab) -> None:
    tab.wait_for("document.querySelector('#engine.ready') !== null", REAL_MS / 1000)


def ended(tab: Tab, steps: int) -> None:
    tab.wait_for("['ended', 'broken'].includes(document.body.dataset.phase)", REAL_MS / 1000)
    assert (tab.text("#train-error"), tab.text("#stat-step")) == ("", f"{steps} of {steps}")


def write(tab: Tab) -> str:
    """60 bytes after "the cat ", written in the Write view."""
    tab.fill("#write-prompt", "the cat ")
    tab.fill("#write-tokens", "60")
    tab.click("#write-start")
    tab.wait_for("document.getElementById('write-stats').innerText.includes('60 bytes ·')", REAL_MS / 1000)
    return tab.text("#write-output").removeprefix("the cat ")


def test_train_write_leave_come_back_and_export(firefox, plain_site):
    """On a host without headers, so that the service worker isolates the page and threads come of it."""
    tab = firefox.tab()
    tab.goto(plain_site.url, wait="none")  # it loads itself anew
    settled(tab)
    assert tab.evaluate("crossOriginIsolated")
    assert "threads" in tab.text("#engine-name") or os.cpu_count() == 1
    tab.check("#corpus-paste")
    tab.fill("#corpus-text", "the cat sat on the mat. " * 400)
    tab.check("#preset-tiny")
    tab.fill("#setting-steps", "150")
    tab.click("#settings summary")
    tab.fill("#setting-learning_rate", "0.004")
    tab.click("#train-start")
    ended(tab, 150)
    assert float(tab.text("#stat-loss")) < 3  # from 5.55
    assert float(tab.text("#stat-validation")) < 3
    tab.click("#train-write")
    assert "the" in (written := write(tab)) or "at" in written
    tab.click("#tab-runs")
    tab.wait_for("document.querySelectorAll('#runs-list h2').length === 1")

    tab.reload()
    settled(tab)
    assert tab.evaluate("crossOriginIsolated")
    tab.click("#tab-runs")
    tab.wait_for("document.querySelectorAll('#runs-list h2').length === 1")
    tab.evaluate("[...document.querySelectorAll('#runs-list button')].find((each) => each.textContent === 'Open').click()")
    tab.wait_for("document.body.dataset.phase === 'ended'")
    tab.fill("#train-extend-steps", "20")
    tab.click("#train-extend")
    tab.wait_for("document.getElementById('stat-step').innerText === '170 of 170'", REAL_MS / 1000)
    ended(tab, 170)
    tab.click("#tab-write")
    assert write(tab).strip()
    tab.click("#tab-runs")
    tab.wait_for("document.querySelectorAll('#runs-list h2').length === 1")
    tab.evaluate("[...document.querySelectorAll('#runs-list button')].find((each) => each.textContent === 'Export').click()")
    tab.click("[id$=-as-safetensors]")

    def exported() -> list:
        return [file for file in firefox.downloads.iterdir() if file.suffix == ".safetensors" and file.stat().st_size]

    [file] = eventually(exported, bool, "the exported file")
    eventually(lambda: list(firefox.downloads.glob("*.part")), lambda parts: not parts, "a download under way")
    assert Checkpoint.from_safetensors(file.read_bytes()).step == 170


@pytest.mark.parametrize("threaded", [True, False])
def test_fifty_steps_give_the_native_weights(firefox, site, plain_site, native, threaded):  # noqa: F811
    driver = Driver(firefox.tab(), (site if threaded else plain_site).url)
    ready = driver.wait("ready")
    assert (ready["threads"] > 1, ready["isolated"]) == (threaded, threaded)
    assert same_state(driver.checkpoint(train(driver)), native)
