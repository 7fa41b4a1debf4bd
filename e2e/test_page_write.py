"""The Write view, on the fake trainer: samplers, what else could have come, the window, rules, and drafts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import SLOW, error, heard, let_through, phase, quiet, sent, stepping
from e2e.test_page_access import CONTRAST, UNLABELLED
from e2e.test_page_views import RUNS

TINY = {"run_id": "t", "name": "tiny hamlet", "step": 50, "steps": 50, "preset": "tiny", "parameters": 70464, "resumable": True}
OTHERS = [
    {**TINY, "run_id": "u", "name": "other tokens", "tokenizer": "bpe", "vocabulary": 512, "tokenizer_sha256": "zzz"},
    {**TINY, "run_id": "v", "name": "as large", "parameters": 842496},
    {**TINY, "run_id": "w", "name": "damaged", "corrupt": True},
]


def opened(open_page, **fake) -> Page:
    """The Write view with run `a` open."""
    page = open_page(fake={"runs": [*RUNS, TINY, *OTHERS]} | fake, path="#runs")
    page.click("#run-a-open")
    phase(page, "ended")
    page.click("#tab-write")
    quiet(page)
    return page


def write(page: Page, letters: int) -> dict:
    page.fill("#write-tokens", str(letters))
    page.click("#write-start")
    heard(page, "wrote", len(sent(page, "write.start")))
    page.wait_for_selector("#write-start:visible")
    return sent(page, "write.start")[-1]


def test_all_samplers_go_along(open_page):
    page = opened(open_page)
    for name, value in (("temperature", "1.1"), ("top-k", "12"), ("top-p", "0.9"), ("min-p", "0.05"), ("repetition-penalty", "1.3")):
        page.locator(f"#write-{name}").fill(value)
        expect(page.locator(f"#write-{name}-value")).to_contain_text(value)
    page.fill("#write-stop-text", "END\n\\n\\n")
    page.fill("#write-seed", "9")
    page.uncheck("#write-choices")
    request = write(page, 20)
    assert {key: request[key] for key in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop", "choices")} == {
        "temperature": 1.1, "top_k": 12, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.3, "seed": 9, "stop": ["END", "\n\n"], "choices": 0}
    assert "constraint" not in request and "draft" not in request
    assert page.locator("#write-text .tok").count() == 0 and page.inner_text("#write-text").startswith(" héllo")
    expect(page.locator("#write-tokens-hint")).to_be_hidden()


def test_what_else_could_have_come(open_page):
    page = opened(open_page, hold=5)
    assert write(page, 60)["choices"] == 10
    expect(page.locator("#write-stats")).to_contain_text("60 bytes")
    pieces = page.locator("#write-text .tok")
    assert page.inner_text("#write-output").startswith("ROMEO: héllo ROMEO:\nWhat"), "the same text, in pieces"
    assert pieces.count() == 60, "the letter é is two tokens and one piece"
    tip = page.locator("#token-tip")
    pieces.nth(1).hover()
    expect(tip.locator(".tip-head")).to_contain_text("h")
    expect(tip.locator(".tip-head")).to_contain_text("5.0 %, the likeliest")
    expect(tip.locator(".tip-bars li")).to_have_count(10)
    expect(tip.locator(".tip-bars .taken")).to_have_count(1)
    expect(tip.locator(".tip-bars li").nth(2)).to_contain_text("␣")
    pieces.nth(2).hover()
    expect(tip.locator(".tip-head")).to_have_count(2)
    expect(tip.locator(".tip-head").first).to_contain_text("\\xc3")
    expect(tip.locator(".tip-head").first).to_contain_text("42nd")
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()


def test_what_else_could_have_come_by_keyboard_and_aloud(open_page):
    page = opened(open_page)
    write(page, 30)
    page.focus("#write-copy")
    page.keyboard.press("Tab")
    expect(page.locator("#write-output")).to_be_focused()
    expect(page.locator("#token-tip")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#announce")).to_have_text("h, 5.0 %, the likeliest. Likeliest: h 60.7 %; e 20.2 %; space 7.4 %. 2 of 30.")
    page.keyboard.press("Escape")
    expect(page.locator("#token-tip")).to_be_hidden()


def test_the_view_of_a_text_that_goes_on(open_page):
    """Pieces are chosen while more are written; another text begins with none chosen."""
    page = opened(open_page, gates=["write"])
    page.fill("#write-tokens", "400")
    page.click("#write-start")
    expect(page.locator("#write-text .tok")).to_have_count(100)
    page.locator("#write-text .tok").nth(10).click()
    let_through(page, "write")
    heard(page, "wrote")
    expect(page.locator("#token-tip")).to_be_visible()
    assert page.locator("#write-text .here").count() == 1
    write(page, 10)
    expect(page.locator("#token-tip")).to_be_hidden()
    assert page.locator("#write-text .here").count() == 0


def test_letters_without_a_token_of_their_own(open_page):
    page = opened(open_page, held=True)
    write(page, 20)
    pieces = page.locator("#write-text .tok")
    assert pieces.count() == 19 and page.inner_text("#write-output").startswith("ROMEO: héllo ROMEO:\nWhat l")
    pieces.last.hover()
    expect(page.locator("#token-tip .tip-bars")).to_have_count(1)


def test_what_is_out_of_sight_is_said(open_page):
    page = opened(open_page, context=64)
    write(page, 20)
    expect(page.locator("#write-window")).to_have_text("")
    write(page, 150)
    expect(page.locator("#write-window")).to_have_text("This model sees 64 bytes at most. Prompt and text are longer by now: the first 96 are out of its sight.")
    page.fill("#write-prompt", "x" * 100)
    write(page, 1)
    expect(page.locator("#write-window")).to_contain_text("The prompt has 100, so its beginning does not count: the first 48")


def test_tokens_are_called_so(open_page):
    page = opened(open_page, unit="token", runs=[{**RUNS[0], "tokenizer": "bpe", "vocabulary": 1024, "tokenizer_sha256": "abc", "bits_per_byte": 1.25}])
    expect(page.locator("label[for=write-tokens]")).to_have_text("Length, in tokens")
    write(page, 12)
    expect(page.locator("#write-stats")).to_contain_text("12 tokens ·")
    page.click("#tab-runs")
    expect(page.locator("#run-a .facts")).to_contain_text("BPE, 1,024 tokens")
    expect(page.locator("#run-a .facts")).to_contain_text("validation loss 1.930 (1.250 bits per byte)")


def test_a_rule_is_checked_while_it_is_typed_and_goes_along(open_page):
    page = opened(open_page, gates=["check"])
    page.check("#rule-regex", force=True)
    expect(page.locator("#rule-facts")).to_have_text("Reading the rule…")
    let_through(page, "check")
    expect(page.locator("#rule-facts")).to_have_text("The rule is sound. The shortest text takes 12 bytes.")
    page.fill("#rule-text", "[a-z]+")
    page.check("#rule-json", force=True)
    expect(page.locator("#rule-whitespace-box")).to_be_visible()
    page.check("#rule-regex", force=True)
    assert page.input_value("#rule-text") == "[a-z]+", "each kind keeps its own"
    page.select_option("#rule-end", "longest")
    request = write(page, 20)
    assert request["constraint"] == {"kind": "regex", "text": "[a-z]+", "end": "longest", "whitespace": "compact"}
    expect(page.locator("#write-stats")).to_contain_text("the rule is kept")
    page.fill("#rule-text", " ")
    page.click("#write-start")
    error(page, "write", "The rule is empty")
    page.check("#rule-none", force=True)
    assert "constraint" not in write(page, 5)


def test_what_is_wrong_in_a_rule_is_said_beside_it(open_page):
    message = "regex: parentheses are balanced; missing ), unterminated subpattern at position 0 came; correct it."
    page = opened(open_page, fail={"rule": message, "write": message})
    page.check("#rule-grammar", force=True)
    error(page, "rule", "unterminated subpattern")
    expect(page.locator("#rule-facts")).to_have_text("")
    page.click("#write-start")
    error(page, "write", "unterminated subpattern")
    expect(page.locator("#write-start")).to_be_visible()


def test_a_draft_is_a_smaller_run_on_the_same_tokens(open_page):
    page = opened(open_page)
    assert page.locator("#write-draft option").all_inner_texts() == ["none", "tiny hamlet · 70,464 parameters"]
    expect(page.locator("#draft-figures")).to_be_hidden()
    page.select_option("#write-draft", "t")
    page.fill("#write-ahead", "6")
    request = write(page, 40)
    assert (request["draft"], request["ahead"]) == ("t", 6)
    expect(page.locator("#draft-accepted")).to_have_text("75 % of 80")
    expect(page.locator("#draft-per-pass")).to_have_text("2.50")
    expect(page.locator("#draft-speed-up")).to_have_text("2.00 × (640 a second without)")
    page.click("#tab-runs")
    quiet(page)
    page.click("#tab-write")
    quiet(page)
    assert page.input_value("#write-draft") == "t", "the choice stays"
    page.fill("#write-ahead", "17")
    page.click("#write-start")
    error(page, "write", "“Guesses ahead” needs a whole number from 1 to 16.")
    page.select_option("#write-draft", "")
    assert "draft" not in write(page, 5)
    expect(page.locator("#draft-figures")).to_be_hidden()


def test_without_a_smaller_run_the_page_says_what_to_do(open_page):
    page = opened(open_page, runs=RUNS)
    expect(page.locator("#draft-hint")).to_contain_text("No saved run is smaller")
    page = open_page(fake=SLOW, path="#write")
    expect(page.locator("#draft-hint")).to_contain_text("Needs a model to write with first.")
    page.click("#tab-train")
    page.click("#train-start")
    stepping(page, 2)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_width(open_page, width, scheme):
    page = open_page(fake={"runs": [*RUNS, TINY], "context": 64, "fail": {"rule": "regex: it is one; (a came; correct it."}}, path="#runs",
                     viewport={"width": width, "height": 740}, color_scheme=scheme, reduced_motion="reduce")
    page.click("#run-a-open")
    phase(page, "ended")
    page.click("#tab-write")
    quiet(page)
    page.check("#rule-json", force=True)
    expect(page.locator("#rule-error")).to_be_visible()
    page.select_option("#write-draft", "t")
    write(page, 90)
    page.locator("#write-text .tok").nth(40).click()
    box = page.locator("#token-tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNLABELLED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_keyboards_focus_goes_to_stop_and_back(open_page):
    page = opened(open_page, gates=["write"])
    page.fill("#write-tokens", "150")
    for ends in ("stopped", "by itself"):
        page.focus("#write-start")
        page.keyboard.press("Enter")
        expect(page.locator("#write-stop")).to_be_focused()
        if ends == "stopped":
            page.keyboard.press("Enter")
        else:
            let_through(page, "write")
        expect(page.locator("#write-start")).to_be_focused()
