"""Runs: a model that came from elsewhere, without AdamW's moments, is trained further as a new run."""

from playwright.sync_api import expect

from e2e.conftest import error, phase, quiet, sent

GPT2 = {"run_id": "x", "name": "gpt2", "step": 0, "parameters": 124_439_808, "bytes": 497_000_000, "resumable": False, "tokenizer": "bpe", "vocabulary": 50257}


def test_an_imported_model_is_trained_further_on_the_text_of_the_page(open_page):
    page = open_page(fake={"runs": [GPT2], "hold": 5}, path="#runs")
    expect(page.locator("#run-x-continue")).to_have_count(0)
    assert page.get_attribute("#run-x-base", "aria-label") == "Train it further: gpt2"
    page.click("#tab-train")
    page.fill("#setting-steps", "120")
    page.click("#tab-runs")
    quiet(page)
    page.focus("#run-x-base")
    page.keyboard.press("Enter")
    phase(page, "running")
    expect(page.locator("#view-train")).to_be_visible()
    expect(page.locator("#resume-offer")).to_be_hidden()
    (asked,) = sent(page, "train.start")
    assert asked["base"] == "x" and asked["training"]["steps"] == 120 and not asked.keys() & {"preset", "config"}
    page.click("#tab-runs")
    quiet(page)
    page.click("#run-x-base")
    error(page, "runs", "A run is going. Stop it first")
    assert len(sent(page, "train.start")) == 1


def test_what_is_wrong_with_the_settings_is_said_where_it_was_asked(open_page):
    page = open_page(fake={"runs": [GPT2]}, path="#runs")
    page.click("#tab-train")
    page.check("#corpus-paste", force=True)
    page.click("#tab-runs")
    quiet(page)
    page.click("#run-x-base")
    error(page, "runs", "There is no text yet")
    assert not sent(page, "train.start")
