"""Decoding with the real trainer, as a person asks for it on the page: tokens learned in the tab, two runs on them, then a text that
keeps to a grammar while the smaller run guesses ahead."""

from __future__ import annotations

import re

import lark
import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import REAL_MS, number, phase, quiet
from e2e.driver import Driver
from e2e.test_gpu_engine import CONFIG

pytestmark = pytest.mark.slow

TEXT = "the cat sat on the mat and the dog ran to the door. a bird sang in the old tree. " * 300
GRAMMAR = 'start: noun " " verb ("." | " and " start)\nnoun: "the cat" | "the dog" | "a bird"\nverb: "sat" | "ran" | "sang"\n'
REGEX = "((the|a) (cat|dog|bird) (sat|ran|sang)[.] ){4}"


def train(page: Page, button: str, steps: int) -> None:
    page.fill("#setting-steps", str(steps))
    page.fill("#setting-learning_rate", "0.003")
    page.click(button)
    page.wait_for_function(f"document.getElementById('stat-step').textContent === '{steps} of {steps}'", timeout=REAL_MS)
    phase(page, "ended")


def written(page: Page) -> str:
    page.click("#write-start")
    page.wait_for_selector("#write-stop", state="hidden", timeout=REAL_MS)
    expect(page.locator("#write-stats")).to_contain_text("a second ·", timeout=REAL_MS)
    assert page.locator("#write-error.shown").count() == 0, page.inner_text("#write-error")
    return page.evaluate("document.getElementById('write-text').textContent")


def test_speculation_with_a_grammar(open_page):
    page = open_page()
    page.set_default_timeout(REAL_MS)
    page.click("#settings summary")
    page.check("#corpus-paste", force=True)
    page.fill("#corpus-text", TEXT)
    page.check("#tokens-bpe", force=True)
    page.fill("#tokens-vocabulary", "300")
    expect(page.locator("#tokens-facts")).to_contain_text("bytes each in this text", timeout=REAL_MS)
    page.check("#preset-custom", force=True)
    for name, value in (("layers", 1), ("channels", 24), ("heads", 2), ("context", 32)):
        page.fill(f"#size-{name}", str(value))
    train(page, "#train-start", 150)
    page.check("#preset-tiny", force=True)
    train(page, "#train-again", 150)
    bits = number(page, "bits")
    assert bits < 2, "per byte, not per token"

    page.click("#train-write")
    quiet(page)
    expect(page.locator("#write-draft option")).to_have_count(2)
    page.check("#rule-grammar", force=True)
    page.fill("#rule-text", GRAMMAR)
    expect(page.locator("#rule-facts")).to_contain_text("The rule is sound", timeout=REAL_MS)
    page.fill("#write-prompt", "the cat sat. ")
    page.fill("#write-tokens", "80")
    page.fill("#write-seed", "3")
    page.locator("#write-draft").select_option(index=1)
    judge = lark.Lark(GRAMMAR, parser="earley", lexer="dynamic_complete")
    for seed in ("3", "4", "5"):
        page.fill("#write-seed", seed)
        judge.parse(written(page))
        expect(page.locator("#write-stats")).to_contain_text("the rule is kept")
    share = re.fullmatch(r"(\d+)\s% of (\d+)", page.inner_text("#draft-accepted"))
    assert share and 0 < int(share[2])
    assert 1 <= float(page.inner_text("#draft-per-pass")) <= 5

    # Greedy: the same text with the draft and without, under a regular expression. And what else could have come is there.
    page.check("#rule-regex", force=True)
    page.fill("#rule-text", REGEX)
    page.select_option("#rule-end", "longest")
    page.locator("#write-temperature").fill("0")
    drafted = written(page)
    assert re.fullmatch(REGEX, drafted)
    expect(page.locator("#draft-speed-up")).to_contain_text("×")
    page.locator("#write-text .tok").nth(2).hover()
    expect(page.locator("#token-tip .tip-bars li")).to_have_count(10)
    page.select_option("#write-draft", "")
    assert written(page) == drafted
    expect(page.locator("#draft-figures")).to_be_hidden()

    # A rule that no text keeps to is told, and ends nothing else.
    page.fill("#rule-text", r"a(?!\S|\s|$)b")
    expect(page.locator("#rule-error")).to_be_visible(timeout=REAL_MS)
    page.click("#write-start")
    expect(page.locator("#write-error")).to_be_visible(timeout=REAL_MS)

    # The tokens of the model in use, and its merges.
    page.click("#tab-tokens")
    page.check("#tokens-of-model", force=True)
    page.fill("#split-text", "the cat")
    expect(page.locator("#split-facts")).to_contain_text("7 bytes", timeout=REAL_MS)
    assert page.locator("#split-output .tok").count() < 7
    expect(page.locator("#merges-rows tr").first).to_be_visible()

    # Another day: the run is opened with its tokens, and writes the same.
    page.reload()
    page.wait_for_selector("#engine.ready", timeout=REAL_MS)
    page.click("#tab-runs")
    quiet(page)
    expect(page.locator("#runs-list .facts").first).to_contain_text("BPE, ")
    page.locator("#runs-list li", has_text="tiny").get_by_role("button", name="Open").click()
    phase(page, "ended")
    assert number(page, "bits") == pytest.approx(bits, abs=0.002)
    page.click("#tab-write")
    page.check("#rule-regex", force=True)
    page.fill("#rule-text", REGEX)
    page.select_option("#rule-end", "longest")
    page.fill("#write-prompt", "the cat sat. ")
    page.fill("#write-tokens", "80")
    page.locator("#write-temperature").fill("0")
    assert written(page) == drafted


def test_a_draft_for_a_model_on_the_gpu(contexts, site):
    """The model writes on the GPU (Chromium's software one), the draft on the CPU engine beside it: greedy, the very text without a draft."""
    driver = Driver(contexts().new_page(), site.url)
    driver.wait("ready")
    driver.ask("settings", sample_every_seconds=0)
    driver.call("corpus.text", "corpus", text=TEXT)
    training = {"steps": 60, "learning_rate": 0.01, "warmup_steps": 5, "evaluate_every_steps": 1000, "evaluation_tokens": 64}
    driver.ask("train.start", config={"layers": 1, "channels": 8, "heads": 1, "context": 16, "batch": 4}, training=training)
    small = driver.wait("stopped")["run_id"]
    driver.ask("train.start", config={**CONFIG, "layers": 1}, training=training)
    driver.wait("stopped")
    driver.call("engine.use", "engine", name="webgpu", precision="f32")

    def written(**more) -> tuple[str, dict]:
        identity, text = driver.ask("write.start", prompt="the c", tokens=40, temperature=0, **more), ""
        while (event := driver.wait("token", "wrote", reply_to=identity))["kind"] == "token":
            text += event["text"]
        return text, event

    plain, _ = written()
    drafted, last = written(draft=small, ahead=3)
    assert drafted == plain and last["speculation"]["accepted"] > 0
    assert driver.call("engine.use", "engine", name="cpu")["engine"]["name"] == "cpu", "the draft took nothing from the GPU"
