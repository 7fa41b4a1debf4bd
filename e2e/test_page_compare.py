"""Base and tuned side by side, and the check for reciting, on the fake trainer."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e.conftest import error, heard, let_through, sent
from e2e.test_page_tune import ADAPTER, trained


def test_comparing(open_page):
    page = trained(open_page, {"adapters": [ADAPTER], "gates": ["compare"]})
    page.click("#compare-start")
    error(page, "compare", "There is no adapter on")
    page.check("#adapter-old")
    heard(page, "adapters", 2)
    page.fill("#compare-tokens", "60")
    page.fill("#compare-seed", "7")
    page.click("#compare-start")
    expect(page.locator("#compare-stats")).to_have_text("The tuned model writes…")
    expect(page.locator("#compare-base-text")).to_contain_text("base says")
    let_through(page, "compare")
    expect(page.locator("#compare-stats")).to_have_text("Done: 60 tokens each.")
    expect(page.locator("#compare-tuned-text")).to_contain_text("tuned says")
    [request] = sent(page, "compare.start")
    assert {name: request[name] for name in ("prompt", "tokens", "temperature", "seed")} == {"prompt": "ROMEO:", "tokens": 60, "temperature": 0.8, "seed": 7}


def test_stopping_a_comparison_and_a_check(open_page):
    page = trained(open_page, {"adapters": [ADAPTER], "gates": ["compare", "memorise"]})
    page.check("#adapter-old")
    heard(page, "adapters", 2)
    page.click("#compare-start")
    expect(page.locator("#compare-stats")).to_have_text("The tuned model writes…")
    page.click("#compare-stop")
    expect(page.locator("#compare-stats")).to_have_text("Stopped by you.")
    page.click("#memorise-start")
    heard(page, "memorise.progress")
    page.click("#memorise-stop")
    expect(page.locator("#memorise-stats")).to_have_text("Stopped by you.")


def test_what_else_ends_a_comparison_and_a_check(open_page):
    """The page says what ended it, and both can be started again."""
    page = trained(open_page, {"adapters": [ADAPTER], "gates": ["compare", "memorise"]})
    page.check("#adapter-old")
    heard(page, "adapters", 2)

    def post(kind: str, **fields) -> None:
        page.evaluate("(event) => tell({ kind: 'test.post', event })", {"kind": kind} | fields)

    for reason, line in (("interrupted", "Ended: the model was needed for something else."), ("failed", "Ended by a fault.")):
        page.click("#compare-start")
        expect(page.locator("#compare-stats")).to_have_text("The tuned model writes…")
        post("compare.wrote", side="tuned", tokens=20, reason=reason, last=True)
        expect(page.locator("#compare-stats")).to_have_text(line)
        page.click("#memorise-start")
        expect(page.locator("#memorise-stop")).to_be_visible()
        post("memorised", stopped=True, reason=reason)
        expect(page.locator("#memorise-stats")).to_have_text(line)
        expect(page.locator("#compare-start")).to_be_visible()
        expect(page.locator("#memorise-start")).to_be_visible()


def test_the_check_for_reciting(open_page):
    page = trained(open_page, {"adapters": [ADAPTER]})
    page.click("#memorise-start")
    expect(page.locator("#memorise-verdict")).to_contain_text("it recites: 7 of 20")
    expect(page.locator("#memorise-stats")).to_have_text("Done, on “the second text”.")
    expect(page.locator("#memorise-rows tr")).to_have_count(6)
    expect(page.locator("#memorise-rows tr").nth(4)).to_contain_text("LoRA")
    assert "7 of length 64+" in page.locator("#memorise-bars .bars").nth(2).get_attribute("aria-label")
    page.click("#memorise-spans-box summary")
    expect(page.locator("#memorise-spans mark")).to_have_text("best of times, it was the worst of times, it was the age of wis")
    expect(page.locator("#memorise-spans .hint")).to_have_text("LoRA: 64 bytes as in “the second text” from byte 1,234 on (line 31).")
    page.fill("#memorise-tokens", "0")
    page.click("#memorise-start")
    error(page, "memorise", "“Tokens to continue” needs a whole number above 0")
    page.fill("#memorise-tokens", "16")
    page.select_option("#memorise-of", "base")
    page.click("#memorise-start")
    heard(page, "memorised", 2)
    first, second = [{name: each[name] for name in each if name not in ("kind", "id")} for each in sent(page, "memorise.start")]
    assert first == {"prefixes": 20} and second == {"prefixes": 20, "tokens": 16, "of": "base"}


@pytest.mark.parametrize("what", ["compare", "memorise"])
def test_the_keyboards_focus_goes_to_stop_and_back(open_page, what):
    page = trained(open_page, {"adapters": [ADAPTER], "gates": [what]})
    page.check("#adapter-old")
    heard(page, "adapters", 2)
    for ends in ("stopped", "by itself"):
        page.focus(f"#{what}-start")
        page.keyboard.press("Enter")
        expect(page.locator(f"#{what}-stop")).to_be_focused()
        if ends == "stopped":
            page.keyboard.press("Enter")
        else:
            let_through(page, what)
        expect(page.locator(f"#{what}-start")).to_be_focused()
