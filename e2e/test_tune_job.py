"""Tuning in the tab with the real trainer, as a person does it: train, tune on a second text, compare, export, reload, swap it in."""

from __future__ import annotations

import io
import re
import zipfile
from random import Random

import pytest
from playwright.sync_api import expect

from e2e.conftest import REAL_MS, heard, open_again, quiet, train_tiny

pytestmark = pytest.mark.slow

FIRST = "the cat sat on the mat and looked at the moon. " * 300
WORDS = "we sail the salt seas south and sing so softly while stars shine over silent shores".split()
SECOND = " ".join(Random(1).choices(WORDS, k=1500))  # which does not repeat itself: else nothing of it was never seen


def trained(page) -> None:
    """A tiny model on the first text, on the Tune view."""
    train_tiny(page, FIRST)
    page.click("#tab-tune")
    quiet(page)


def opened(page) -> None:
    """Another day: the run is opened; its adapters are in the list, none of them on."""
    open_again(page)
    page.click("#tab-tune")
    quiet(page)
    assert page.is_checked("#adapter-none")


def compared(page) -> tuple[str, str]:
    """What base and tuned write, side by side."""
    page.click("#compare-start")
    expect(page.locator("#compare-stats")).to_contain_text("Done:", timeout=REAL_MS)
    return page.inner_text("#compare-base-text"), page.inner_text("#compare-tuned-text")


def test_tune_compare_export_reload_and_swap_in(open_page, tmp_path):
    page = open_page()
    trained(page)
    expect(page.locator("#tune-facts")).to_contain_text("1,536 trainable parameters")
    page.fill("#tune-text", SECOND)
    page.fill("#tune-name", "sailing")
    page.fill("#tune-rank", "8")
    page.fill("#tune-steps", "150")
    page.fill("#tune-learning-rate", "0.02")
    page.click("#tune-start")
    expect(page.locator("#tune-status")).to_have_text("Finished 150 steps. The adapter “sailing” is saved, and on.", timeout=REAL_MS)
    expect(page.locator("#forgetting-verdict")).to_contain_text("It forgot")
    assert float(page.inner_text("#forgetting-after")) > float(page.inner_text("#forgetting-before"))

    page.fill("#compare-prompt", "the ")
    page.fill("#compare-tokens", "80")
    page.fill("#compare-temperature", "0")
    base, tuned = compared(page)
    assert len(base) == len(tuned) == 80 and base != tuned
    assert "cat" in base or "moon" in base
    adapter = page.locator("#adapters-list li").nth(1)
    with page.expect_download() as download:
        adapter.get_by_role("button", name="Export: sailing").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "sailing.zip"
    with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
        assert sorted(archive.namelist()) == ["adapter_config.json", "adapter_model.safetensors"]

    opened(page)
    expect(page.locator("#adapters-list")).to_contain_text("sailing")
    page.get_by_role("radio", name="sailing").check()
    expect(page.locator("#tune-status")).to_contain_text("with the adapter “sailing”", timeout=REAL_MS)
    page.fill("#compare-prompt", "the ")
    page.fill("#compare-tokens", "80")
    page.fill("#compare-temperature", "0")
    assert compared(page) == (base, tuned)

    # The exported file, imported beside it, is the same adapter.
    page.set_input_files("#adapters-import", file)
    expect(page.locator("#adapters-list li")).to_have_count(3, timeout=REAL_MS)
    page.get_by_role("radio", name="sailing").first.check()
    quiet(page)
    expect(page.locator("#adapters-list li").nth(1)).to_contain_text("imported")
    assert compared(page) == (base, tuned)

    # Half strength is something else; the check for reciting has the three models side by side.
    page.evaluate("(() => { const box = document.getElementById('strength'); box.value = '0.5'; box.dispatchEvent(new Event('input')); })()")
    expect(page.locator("#compare-tuned-title")).to_contain_text("at 0.50")
    quiet(page)
    assert compared(page)[0] == base
    page.get_by_role("radio", name="sailing").last.check()
    expect(page.locator("#compare-tuned-title")).to_have_text("Tuned: sailing")
    page.fill("#memorise-prefixes", "8")
    page.click("#memorise-start")
    expect(page.locator("#memorise-stats")).to_have_text("Done, on “second text”.", timeout=REAL_MS)
    expect(page.locator("#memorise-rows tr")).to_have_count(6)


def test_a_reload_in_the_middle_keeps_the_last_save(open_page):
    page = open_page()
    trained(page)
    page.evaluate("tell({ kind: 'settings', id: 0, save_every_seconds: 1 })")
    page.fill("#tune-text", SECOND)
    page.fill("#tune-name", "cut off")
    page.fill("#tune-steps", "100000")
    page.click("#tune-start")
    heard(page, "tune.saved", 2)  # the first is of step 0
    page.on("dialog", lambda dialog: dialog.accept())  # it asks before it leaves
    opened(page)
    facts = page.inner_text("#adapters-list li:nth-child(2) .facts")
    step = int(re.search(r"step ([\d,]+) of 100,000", facts)[1].replace(",", ""))
    assert step > 0
    page.get_by_role("radio", name="cut off").check()
    quiet(page)
    base, tuned = compared(page)
    assert base != tuned
