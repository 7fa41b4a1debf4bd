"""Features in the tab with the real trainer: a small run, a sparse autoencoder of it, its features by their places, writing, the file."""

from __future__ import annotations

import io
import json
import re
import zipfile
from random import Random

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import REAL_MS, heard, sent, train_tiny
from posttrainllm.study.sae import SparseAutoencoder

pytestmark = pytest.mark.slow

WORDS = "the cat sat on the mat and looked at the moon while nine old ships sailed south by silent shores".split()
TEXT = " ".join(Random(3).choices(WORDS, k=6000))
FEATURES, K = 128, 8


def figure(words: str, before: str) -> float:
    """The number right before these words."""
    return float(re.search(r"([\d.,]+)(?:\xa0%)? " + re.escape(before), words)[1].replace(",", ""))


def finding(open_page) -> Page:
    """A tiny model just trained, on Features."""
    page = open_page()
    train_tiny(page, TEXT)
    page.click("#tab-inside")
    page.check("#inside-view-features", force=True)
    page.fill("#features-width", str(FEATURES))
    page.fill("#features-k", str(K))
    page.evaluate(
        """() => {
          window.said = [];
          const stats = document.getElementById('features-stats');
          new MutationObserver(() => said.push(stats.textContent)).observe(stats, { childList: true, characterData: true, subtree: true });
        }"""
    )
    return page


def write(page: Page, strength: float) -> str:
    """What the model writes with that much of the feature shown."""
    page.evaluate(
        "(value) => { const box = document.getElementById('feature-strength'); box.value = value; box.dispatchEvent(new Event('input')); }", strength
    )
    page.click("#feature-write")
    expect(page.locator("#feature-stats")).to_have_text("80 tokens.", timeout=REAL_MS)
    return page.inner_text("#feature-text")


def test_find_open_steer_and_take_out(open_page, tmp_path):
    page = finding(open_page)
    page.fill("#features-steps", "300")
    page.click("#features-start")
    expect(page.locator("#features-stats")).to_have_text("Done: step 300.", timeout=REAL_MS)
    said = page.evaluate("said")
    for words in ("Reading the text", "Training, step"):  # the rest may take less than the eighth of a second between two reports
        assert any(line.startswith(words) for line in said), (words, said)
    facts = page.inner_text("#features-facts")
    l0, explained, alive = (figure(facts, words) for words in ("fire at a token", "explained", f"of {FEATURES} features fire"))
    assert 0 < l0 <= K and explained > 60 and K <= alive <= FEATURES, facts
    loss, through, zeros = (float(each) for each in re.findall(r"\d+\.\d{3}", facts))
    assert loss < through < loss + 0.3 * (zeros - loss), facts
    kept = figure(page.inner_text("#features-says"), "of what")
    assert abs(kept - 100 * (zeros - through) / (zeros - loss)) < 0.5

    heard(page, "features.feature", 1)
    page.select_option("#features-by", "frequency")
    heard(page, "features.feature", 2)
    rows = page.locator("#features-rows tr")
    expect(rows).to_have_count(20)
    index, share, most = rows.nth(1).locator("th, td").all_inner_texts()
    page.click(f"#feature-{index}")
    heard(page, "features.feature", 3)
    expect(page.locator("#feature-title")).to_have_text(f"Feature {index}")
    expect(page.locator("#feature-says")).to_contain_text(f"Fires at {share} of tokens, with {most} at most")
    lines = page.locator("#feature-contexts .context")
    expect(lines).to_have_count(5)
    assert all(lines.nth(at).inner_text().replace("␣", " ").replace("⏎", "\n") in TEXT for at in range(5))
    lines.first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    fired = page.locator("#feature-contexts .hint").first.inner_text()
    assert f" {most}" in fired, "the first is where it fires most"
    assert len(re.findall("“", page.inner_text("#feature-promotes"))) == 8

    page.fill("#feature-prompt", "the cat ")
    plain = write(page, 0)
    assert len(plain) == 80 and write(page, 0) == plain
    assert write(page, 5) != plain

    with page.expect_download() as download:
        page.click("#features-export")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name.endswith(" features.zip")
    with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
        settings, weights = (archive.read(name) for name in ("cfg.json", "sae_weights.safetensors"))
    found = SparseAutoencoder.from_files(settings, weights)
    assert (found.features, found.channels, found.k, found.address) == (FEATURES, 48, K, "blocks.1.resid_post")
    assert json.loads(settings)["metadata"]["hook_name"] == "blocks.1.hook_resid_post"
    assert np.allclose(np.linalg.norm(found.decoder, axis=1), 1, atol=1e-5)

    # The worker ends while it writes: nothing is left to stop.
    shown = page.evaluate(
        """() => {
          const shown = () => !document.getElementById('feature-write-stop').hidden;
          document.getElementById('feature-write').click();
          const before = shown();
          trainer.dispatchEvent(new ErrorEvent('error', { message: 'gone' }));
          return [before, shown()];
        }"""
    )
    assert shown == [True, False]
    assert page.evaluate("document.getElementById('feature-write').hidden") is False


def test_stop_while_it_looks_through_the_text(open_page):
    page = finding(open_page)
    page.fill("#features-width", "2048")  # which takes its while
    page.fill("#features-steps", "3")
    page.evaluate(
        """() => trainer.addEventListener('message', ({ data }) => {
          if (data.what === 'looking' && !window.pressed) { window.pressed = true; document.getElementById('features-stop').click(); }
        })"""
    )
    page.click("#features-start")
    expect(page.locator("#features-stats")).to_have_text("Stopped by you at step 3.", timeout=REAL_MS)
    assert len(sent(page, "features.stop")) == 1
    assert 0 < figure(page.inner_text("#features-facts").split("features fire in")[1], "tokens") < 16_384
    expect(page.locator("#features-rows tr")).to_have_count(20)
