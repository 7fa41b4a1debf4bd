"""Tokens on the page, on the fake trainer: the choice under Text, any text in its tokens, and the merges in order."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e.conftest import error, heard, let_through, phase, quiet, sent
from e2e.test_page_access import CONTRAST, UNLABELLED
from e2e.test_page_views import RUNS


def bpe(page) -> None:
    page.check("#tokens-bpe", force=True)
    expect(page.locator("#tokens-facts")).to_contain_text("1,024 different tokens")


def test_learned_while_one_looks_on_and_used_for_the_run(open_page):
    page = open_page(fake={"steps": 20, "gates": ["learn", "join"]})
    expect(page.locator("#tokens-facts")).to_have_text("Each byte of the text is a token: 256 different ones.")
    page.check("#tokens-bpe", force=True)
    expect(page.locator("#tokens-facts")).to_have_text("Counting words: 40 %")
    expect(page.locator("#tokens-progress")).to_be_visible()
    page.click("#train-start")  # waits for it
    phase(page, "queued")
    let_through(page, "learn")
    expect(page.locator("#tokens-facts")).to_have_text("Joining the commonest pairs…")
    assert not sent(page, "train.start")
    plans = len(sent(page, "plan"))
    let_through(page, "join")
    phase(page, "ended")
    expect(page.locator("#tokens-facts")).to_have_text("1,024 different tokens, 2.50 bytes each in this text, the text is 400,000 tokens long.")
    expect(page.locator("#tokens-progress")).to_be_hidden()
    assert len(sent(page, "plan")) > plans, "another vocabulary, another plan"
    assert [(each["name"], each["vocabulary"]) for each in sent(page, "tokens.use")] == [("bpe", 1024)]
    page.fill("#tokens-vocabulary", "100")
    error(page, "tokens", "256 or more")
    page.click("#train-again")
    error(page, "train", "The tokens cannot be used as they are")
    page.fill("#tokens-vocabulary", "1024")  # what the trainer has already
    expect(page.locator("#tokens-facts")).to_contain_text("1,024 different tokens")
    assert len(sent(page, "tokens.use")) == 1
    page.fill("#tokens-vocabulary", "500")
    expect(page.locator("#tokens-facts")).to_contain_text("500 different tokens")
    page.check("#tokens-bytes", force=True)
    expect(page.locator("#tokens-facts")).to_contain_text("256 different ones")
    expect(page.locator("#tokens-save")).to_be_hidden()


def test_learning_that_fails_keeps_the_run_from_beginning(open_page):
    page = open_page(fake={"fail": {"tokens": "There is not enough memory to learn from this text."}})
    page.check("#tokens-bpe", force=True)
    error(page, "tokens", "There is not enough memory")
    page.click("#train-start")
    error(page, "train", "The tokens cannot be used as they are")
    page.check("#tokens-bytes", force=True)
    page.click("#train-start")
    phase(page, "running")


def test_learning_anew_for_another_text_that_fails_is_said_at_the_tokens(open_page):
    page = open_page(fake={})
    bpe(page)
    [request] = sent(page, "tokens.use")
    page.evaluate("(event) => tell({ kind: 'test.post', event })", {"kind": "failed", "code": "x", "message": "This text is too long.", "reply_to": request["id"]})
    error(page, "tokens", "This text is too long.")
    page.click("#train-start")
    error(page, "train", "The tokens cannot be used as they are")


def test_a_tokenizer_from_a_file_and_back_into_one(open_page, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"model": {}}')
    page = open_page(fake={})
    page.check("#tokens-file", force=True)
    expect(page.locator("#tokens-facts")).to_have_text("Choose a tokenizer.json.")
    page.click("#train-start")
    error(page, "train", "The tokens cannot be used as they are")
    page.set_input_files("#tokens-json", file)
    expect(page.locator("#tokens-facts")).to_contain_text("From mine.json: 700 different tokens")
    assert sent(page, "tokens.load")[0]["buffer"] == 13
    with page.expect_download() as download:
        page.click("#tokens-save")
    assert download.value.suggested_filename == "tokenizer.json"

    page = open_page(fake={"fail": {"load_tokens": "tokenizer.json: its model is BPE; Unigram came; export it again."}})
    page.check("#tokens-file", force=True)
    page.set_input_files("#tokens-json", file)
    error(page, "tokens", "its model is BPE")


def test_the_choice_is_told_to_a_trainer_that_is_started_anew(open_page, contexts):
    page = open_page(fake={"fail": {"fatal": ["Lost."]}})
    bpe(page)
    page.click("#train-start")
    page.click("#restart")
    page.wait_for_selector("#engine.ready")
    quiet(page)
    assert [each["name"] for each in sent(page, "tokens.use")] == ["bpe", "bpe"]


def test_any_text_in_its_tokens(open_page):
    page = open_page(fake={})
    page.click("#tab-tokens")
    expect(page.locator("#split-output .tok")).to_have_count(len("To be, or not to be: that is the question."))
    expect(page.locator("#merges-none")).to_be_visible()
    page.click("#tab-train")
    bpe(page)
    page.click("#tokens-see")
    expect(page.locator("#view-tokens")).to_be_visible()
    expect(page.locator("#tokens-of-facts")).to_have_text("BPE: 1,024 different tokens, from Shakespeare.")
    expect(page.locator("#split-facts")).to_have_text("10 tokens · 42 bytes · 4.20 bytes per token")
    chips = page.locator("#split-output .tok")
    expect(chips).to_have_count(10)
    expect(chips.nth(1)).to_contain_text("␣be,")
    labels = chips.locator("small").all_inner_texts()
    assert all(label.isdigit() for label in labels), "each is labelled with its number"
    page.fill("#split-text", "<b>a</b>\nb\tc")
    expect(chips).to_have_count(3)
    expect(chips.nth(1)).to_contain_text("⏎b")
    page.fill("#split-text", "")
    expect(page.locator("#split-facts")).to_have_text("No text, no tokens.")
    page.fill("#split-text", "a " * 2500)
    expect(page.locator("#split-facts")).to_contain_text("the first 2,000 are shown")


def test_a_token_says_more_under_the_pointer_by_keyboard_and_by_touch(open_page):
    page = open_page(fake={}, path="#tokens", has_touch=True)
    tip = page.locator("#token-tip")
    first, fourth = page.locator("#split-output .tok").nth(0), page.locator("#split-output .tok").nth(3)
    first.hover()
    expect(tip).to_contain_text("no. 84 · 1 byte")
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()
    page.focus("#split-text")
    page.keyboard.press("Tab")
    expect(page.locator("#split-output")).to_be_focused()
    expect(tip).to_contain_text("token 1 of 42")
    for key, place in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 42), ("Home", 1)):
        page.keyboard.press(key)
        expect(tip).to_contain_text(f"token {place} of 42")
    expect(page.locator("#announce")).to_have_text("T, number 84, 1 byte, 1 of 42")
    page.keyboard.press("End")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.keyboard.press("Tab")
    expect(tip).to_be_hidden()
    fourth.tap()
    expect(tip).to_contain_text("token 4 of 42")
    page.click("h1:visible")
    expect(tip).to_be_hidden()


def test_merges_in_order_in_pages_and_found(open_page):
    page = open_page(fake={})
    bpe(page)
    page.click("#tokens-see")
    rows = page.locator("#merges-rows tr")
    expect(rows).to_have_count(100)
    expect(rows.first).to_have_text("1t + h = th02565,000×")
    expect(rows.nth(2)).to_contain_text("e + ⏎ = e⏎2")
    expect(page.locator("#merges-facts")).to_have_text("1–100 of 768")
    expect(page.locator("#merges-back")).to_be_disabled()
    page.click("#merges-on")
    expect(page.locator("#merges-facts")).to_have_text("101–200 of 768")
    page.click("#merges-back")
    expect(page.locator("#merges-facts")).to_have_text("1–100 of 768")
    page.fill("#merges-search", "th")
    expect(page.locator("#merges-facts")).to_have_text("1–100 of 256 found")
    page.fill("#merges-search", "no such")
    expect(page.locator("#merges-facts")).to_have_text("No merge makes that.")


def test_the_models_tokens_beside_those_of_the_next_run(open_page):
    page = open_page(fake={"runs": RUNS}, path="#tokens")
    expect(page.locator("#tokens-of")).to_be_hidden()
    page.click("#tab-runs")
    quiet(page)
    page.click("#run-a-open")
    phase(page, "ended")
    bpe(page)
    page.click("#tab-tokens")
    expect(page.locator("#tokens-of")).to_be_visible()
    page.check("#tokens-of-model", force=True)
    expect(page.locator("#tokens-of-facts")).to_contain_text("Bytes")
    heard(page, "split", 2)
    assert sent(page, "tokens.split")[-1]["of"] == "model" and sent(page, "tokens.merges")[-1]["of"] == "model"


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_width(open_page, width, scheme):
    page = open_page(fake={}, viewport={"width": width, "height": 740}, color_scheme=scheme, reduced_motion="reduce")
    bpe(page)
    assert page.evaluate(CONTRAST) == []
    page.click("#tokens-see")
    expect(page.locator("#merges-rows tr")).to_have_count(100)
    page.locator("#split-output .tok").nth(8).click()
    box = page.locator("#token-tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] >= 0 and box["y"] + box["height"] <= 740
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNLABELLED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
