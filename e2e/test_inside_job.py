"""Looking inside in the tab with the real trainer: a small run is trained, and each view shows it; what they say agrees."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from e2e.conftest import REAL_MS, phase, quiet, train_tiny

pytestmark = pytest.mark.slow

TEXT = "the cat sat on the mat and looked at the moon. " * 300
PROMPT = "the cat sat on the "


def percents(words: str) -> list[float]:
    return [float(each) for each in re.findall(r"([\d.]+)\xa0%", words)]


def test_each_view_of_a_model_just_trained(open_page):
    page = open_page()
    train_tiny(page, TEXT)

    page.click("#tab-inside")
    page.fill("#inside-text", PROMPT)
    expect(page.locator("#inside-strip button")).to_have_count(len(PROMPT), timeout=REAL_MS)
    quiet(page)
    expect(page.locator("#attention-heads canvas")).to_have_count(3)
    expect(page.locator("#attention-says")).to_contain_text("Layer 0, head 0", timeout=REAL_MS)
    page.click("#attention-table-box summary")
    first = page.locator("#attention-rows tr").first
    expect(first).to_have_text("0 “t”100.0\xa0% from itself")
    page.focus("#attention-map")
    weights = []
    page.keyboard.press("End")
    for _ in PROMPT:
        page.keyboard.press("ArrowLeft")
    for _ in PROMPT:
        weights += percents(page.inner_text("#attention-readout"))
        page.keyboard.press("ArrowRight")
    assert len(weights) == len(PROMPT) and abs(sum(weights) - 100) < 0.2, "a row adds up to 100 %"

    page.check("#inside-view-lens", force=True)
    expect(page.locator("#lens-says")).to_contain_text("the loss falls from", timeout=REAL_MS)
    before, after = (float(each) for each in re.findall(r"(\d+\.\d\d)", page.inner_text("#lens-says")))
    assert after < 0.5 * before
    likely = page.locator("#lens-cells tbody tr").last.locator("td").last.inner_text().split("\n")
    assert likely[0] in ("c", "m"), "cat, mat or moon"

    page.click("#lens-train")
    expect(page.locator("#lens-tuned-says")).to_contain_text("A tuned lens of 200 steps", timeout=REAL_MS)
    quiet(page)
    tuned, still = (float(each) for each in re.findall(r"(\d+\.\d\d)", page.inner_text("#lens-says")))
    assert tuned < before and still == after, "early layers are read better, and the last one is the model's own"

    page.click("#lens-sharpened-box summary")
    expect(page.locator("#lens-sharpened-head th")).to_have_text(["Loss, nats", *(f"Step {step}" for step in (0, 16, 32, 64, 128, 200))], timeout=REAL_MS)
    last = [float(each) for each in page.locator("#lens-sharpened-rows tr").last.locator("td").all_inner_texts()]
    assert last[0] > 5 and last[0] > last[3] > last[-1] == after, "the browser's storage gave back each step's weights"

    page.check("#inside-view-next", force=True)
    expect(page.locator("#next-choices label")).to_have_count(10, timeout=REAL_MS)
    top = page.locator("#next-choices label").first.inner_text().split("\n")
    assert top[0] == likely[0] and abs(percents(top[-1])[0] - float(likely[1].split()[0])) <= 0.51
    *parts, total = (float(each.split("\n")[-1].replace("−", "-")) for each in page.locator("#next-parts li").all_inner_texts())
    assert len(parts) == 7 and abs(sum(parts) - total) < 0.05

    page.check("#inside-view-change", force=True)
    expect(page.locator("#change-cells td")).to_have_count(6, timeout=REAL_MS)
    assert f"the score of “{likely[0]}”" in page.inner_text("#change-says")
    page.select_option("#change-what", "residual")
    expect(page.locator("#change-cells td")).to_have_count(2 * len(PROMPT), timeout=REAL_MS)
    page.select_option("#change-how", "swap")
    expect(page.locator("#change-most")).to_contain_text("Both texts are the same", timeout=REAL_MS)
    page.fill("#change-source", "the cat sat on it, ")
    page.keyboard.press("Tab")
    quiet(page)
    expect(page.locator("#change-most")).to_contain_text("Blue: ", timeout=REAL_MS)
    expect(page.locator("#change-says")).to_contain_text("After the second text", timeout=REAL_MS)
    page.locator("#change-cells tbody tr").first.locator("td").first.click()
    expect(page.locator("#change-readout")).to_contain_text("that is 0\xa0% of the way"), "both begin alike"

    page.check("#inside-view-flow", force=True)
    expect(page.locator("#flow-steps canvas")).to_have_count(1 + 2 * 12 + 2, timeout=REAL_MS)
    assert f"“{likely[0]}” comes out likeliest" in page.inner_text("#flow-says")
    page.focus("#flow-logits")
    page.keyboard.press("Home")
    for _ in range(ord(likely[0]) // 128):
        page.keyboard.press("ArrowDown")
    for _ in range(ord(likely[0]) % 128):
        page.keyboard.press("ArrowRight")
    score = float(page.inner_text("#flow-readout").split(": ")[1].replace("−", "-"))
    assert abs(score - total) < 0.011, "the same score as under Next token"

    # Nothing of this has changed the model: it goes on training, and is looked into meanwhile.
    page.click("#tab-train")
    page.fill("#train-extend-steps", "100000")
    page.click("#train-extend")
    page.click("#tab-inside")
    page.wait_for_function("parseInt(document.getElementById('stat-step').textContent.replaceAll(',', '')) > 210")
    page.click("#inside-look")
    expect(page.locator("#inside-status")).to_contain_text("at step", timeout=REAL_MS)
    page.wait_for_function("parseInt(document.getElementById('inside-status').textContent.split('step ')[1].replaceAll(',', '')) > 200")
    page.click("#tab-train")
    page.click("#train-stop")
    phase(page, "ended")


def test_a_long_map_is_stopped_while_it_is_made(open_page):
    """The worker hears of it between two passes, not after the last."""
    page = open_page()
    page.context.set_default_timeout(REAL_MS)
    page.check("#preset-medium", force=True)
    page.fill("#setting-steps", "2")
    page.click("#train-start")
    phase(page, "ended")
    page.click("#tab-inside")
    page.fill("#inside-text", TEXT[:100])
    expect(page.locator("#inside-strip button")).to_have_count(100, timeout=REAL_MS)
    page.check("#inside-view-change", force=True)
    expect(page.locator("#change-cells td")).to_have_count(16, timeout=REAL_MS)
    page.evaluate(
        """() => new MutationObserver(() => { if (!document.getElementById('change-stop').hidden) document.getElementById('change-stop').click(); })
          .observe(document.getElementById('change-stop'), { attributes: true })"""
    )
    page.select_option("#change-what", "residual")
    expect(page.locator("#inside-status")).to_have_text("Stopped: there is no map.", timeout=REAL_MS)
    made, of = (int(each) for each in re.findall(r"\d+", page.text_content("#change-progress-says")))
    assert 0 < made < of == 400
    expect(page.locator("#change-result")).to_be_hidden()
    page.select_option("#change-what", "heads")
    expect(page.locator("#change-cells td")).to_have_count(16, timeout=REAL_MS)
    expect(page.locator("#change-result")).to_be_visible()
