"""The lessons' cells, on the real trainer in a real tab: each prints what its lesson says; and what an editor does around them."""

from __future__ import annotations

import doctest
import json
import re

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import DIST, REAL_MS

LESSONS = [each["name"] for each in json.loads((DIST / "learn" / "index.json").read_text())]
READ = """(index) => {
  const cell = document.querySelectorAll('#lesson .cell:not(.command)')[index];
  return { text: [...cell.querySelectorAll('.cell-out > pre')].map((each) => each.textContent).join('\\n'), state: cell.querySelector('.cell-buttons .hint').textContent };
}"""


@pytest.fixture(scope="module")
def trainer(browser, site):
    """One page with the real trainer, for all lessons: starting it takes longer than most cells."""
    from e2e.conftest import profile

    context = profile(browser)
    page = context.new_page()
    page.goto(site.url + "#learn")
    expect(page.locator("#engine-name")).not_to_have_text("Loading…", timeout=REAL_MS)
    yield page
    context.close()


def ran(page: Page, index: int) -> dict:
    """Run a cell and read what it printed."""
    cell = page.locator("#lesson .cell:not(.command)").nth(index)
    cell.locator(".run-cell").click()
    expect(cell.locator(".cell-buttons .hint")).to_have_text(re.compile("^(Done|It ended|Stopped)"), timeout=REAL_MS)
    return page.evaluate(READ, index)


@pytest.mark.parametrize("name", LESSONS)
def test_every_cell_prints_what_its_lesson_says(trainer, name):
    page = trainer
    lesson = json.loads((DIST / "learn" / f"{name}.json").read_text())
    page.evaluate("address => { location.hash = address; }", f"#learn/{name}")
    expect(page.locator("#lesson h1")).to_have_text(lesson["title"])
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for index, cell in enumerate(lesson["cells"]):
        got = ran(page, index)
        assert got["state"].startswith("Done"), got
        assert doctest.OutputChecker().check_output(cell["output"].strip() + "\n", got["text"].strip() + "\n", flags), (cell["code"], got["text"])


def typed(page: Page, code: str) -> None:
    """The scratch pad with this code in its editor."""
    page.evaluate("code => { localStorage.setItem('posttrainllm-scratch', code); location.hash = '#learn'; }", code)
    expect(page.locator("#lesson h1")).to_contain_text("dot product")
    page.evaluate("location.hash = '#learn/scratch'")
    expect(page.locator("#lesson h1")).to_have_text("Scratch pad")
    expect(page.locator("#lesson .cm-content")).to_be_visible()


def test_stop_interrupts_python(trainer):
    page = trainer
    typed(page, "print('begun')\nwhile True:\n    pass")
    page.click(".run-cell")
    expect(page.locator(".cell-out")).to_contain_text("", timeout=REAL_MS)
    expect(page.locator(".cell-buttons .hint")).to_have_text("Running…", timeout=REAL_MS)
    page.click("text=Stop >> visible=true")
    expect(page.locator(".cell-buttons .hint")).to_have_text("Stopped.", timeout=REAL_MS)
    typed(page, "1 + 1")
    assert ran(page, 0)["text"] == "2", "the trainer goes on"


def test_a_traceback_points_at_its_line(trainer):
    page = trainer
    typed(page, "x = 1\n\nx / 0")
    got = ran(page, 0)
    assert got["state"] == "It ended with an error in line 3." and "ZeroDivisionError" in got["text"]
    assert page.evaluate("document.querySelector('.editor').shadowRoot.getSelection?.().toString() ?? 'x / 0'") in ("x / 0", "")


def test_a_table_and_a_picture(trainer):
    page = trainer
    typed(page, "[{'step': 1, 'loss': 5.5}, {'step': 2, 'loss': 5.0}]")
    ran(page, 0)
    expect(page.locator(".cell-out table tbody tr")).to_have_count(2)
    typed(page, "import numpy as np\nnp.eye(8)")
    ran(page, 0)
    expect(page.locator(".cell-out canvas")).to_have_attribute("aria-label", re.compile("8 × 8, from 0 .*to 1"))


def test_completion_offers_what_there_is(trainer):
    page = trainer
    typed(page, "pt.Corp")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Control+Space")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("Corpus", timeout=REAL_MS)
    page.keyboard.press("Escape")


def test_a_cell_trains_tunes_and_looks_inside(trainer):
    page = trainer
    typed(page, (
        "corpus = pt.Corpus.shakespeare()\n"
        "mine = pt.GPT.create('tiny', seed=1)\n"
        "losses = [r.loss_nats for r in pt.train(mine, corpus, steps=60, warmup_steps=5) if isinstance(r, pt.StepReport)]\n"
        "tuned = pt.lora(mine, rank=2)\n"
        "for r in pt.train(tuned, corpus, steps=3): pass\n"
        "print(losses[-1] < losses[0], tuned.adapter.parameter_count, len(mine.generate('To', tokens=8)) > 0)\n"
        "print(pt.study.logit_lens(mine, 'To be'))"
    ))
    got = ran(page, 0)
    assert got["state"].startswith("Done"), got
    assert got["text"].startswith("True ") and "│" in got["text"] or "blocks" in got["text"], got
