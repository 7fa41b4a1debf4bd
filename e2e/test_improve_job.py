"""Learning from corrections in the tab with the real trainer, as a person does it: correct, improve, promoted, follows, roll back, reload, still there."""

from __future__ import annotations

import json
from random import Random

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import REAL_MS, open_again, train_tiny

pytestmark = pytest.mark.slow

NOUNS = "cat dog fox owl hen pig cow goat lamb mule pony crow swan duck toad newt hare bear wolf deer mouse rat bat hat bell book boat ring lamp cup key drum".split()
SAYS = "It is here. It is gone. I saw it. It sleeps. It ran off. Who can say. Not today. It was sold.".replace(". ", ".|").split("|")
KEPT = "Ask the king."


def base_text() -> str:
    draw = Random(3)
    return "".join(f"Where is the {draw.choice(NOUNS)}?\n{draw.choice(SAYS)}\n\n" for _ in range(1500))


def asked(page: Page, noun: str) -> str:
    """The answer to a question, under Write."""
    page.click("#tab-write")
    page.fill("#write-prompt", f"O {noun}!")
    page.click("#write-start")
    expect(page.locator("#write-stats")).to_contain_text("a second ·", timeout=REAL_MS)
    return page.inner_text("#write-text").strip()


def test_correct_improve_roll_back_and_reload(open_page, tmp_path):
    page = open_page()
    train_tiny(page, base_text())
    page.click("#tab-write")
    page.check("#write-ask")
    page.fill("#write-tokens", "30")
    page.fill("#write-temperature", "0")
    plain = asked(page, "drum")
    assert plain != KEPT
    page.click("#verdict-correct")
    page.fill("#verdict-text", KEPT)
    page.click("#verdict-keep")
    expect(page.locator("#verdict-said")).to_have_text("Your answer is kept.", timeout=REAL_MS)
    page.click("#tab-tune")
    expect(page.locator("#improve-plan")).to_contain_text("at least 8 answers", timeout=REAL_MS)
    file = tmp_path / "corrections.jsonl"  # the rest, as another day's export
    file.write_text("".join(json.dumps({"what": "correct", "prompt": f"O {noun}!", "offered": "It is here.", "kept": KEPT}) + "\n" for noun in NOUNS[:28]))
    page.set_input_files("#records-import", file)
    expect(page.locator("#improve-plan")).to_contain_text("It would learn from", timeout=REAL_MS)

    page.click("#improve-start")
    expect(page.locator("#improve-status")).to_contain_text("Promoted: version 1 is on.", timeout=REAL_MS)
    expect(page.locator("#improve-verdict-text")).to_have_text("It passed.")
    assert asked(page, "key") == KEPT, "which it was never taught"
    page.click("#tab-tune")
    page.click("#version-0-use")
    expect(page.locator("#version-0 .badge")).to_have_text("on", timeout=REAL_MS)
    assert asked(page, "drum") == plain, "the base alone, as it was"
    page.click("#tab-tune")
    page.click("#version-1-use")
    expect(page.locator("#version-1 .badge")).to_have_text("on", timeout=REAL_MS)
    assert asked(page, "key") == KEPT

    open_again(page)
    page.click("#tab-tune")
    expect(page.locator("#version-1 .badge")).to_have_text("on", timeout=REAL_MS)
    expect(page.locator("#records-lead")).to_contain_text("29 corrections")
    page.click("#tab-write")
    page.check("#write-ask")
    page.fill("#write-tokens", "30")
    page.fill("#write-temperature", "0")
    assert asked(page, "key") == KEPT
